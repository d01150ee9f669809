"""Fields that a dialect cannot express: sent under the key `remit`, and read back as claims.

A claim may add to the document's own fields, but never contradict them or exceed what they allow. It is no more than
any sender may claim: the hub that receives it checks and limits it like everything else.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import convert, decode, malformed, text_of
from remit.protocol.envelope import VERSION, Assignment, Call, Json, Request, Response, fields_of
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.generous import with_warnings
from remit.protocol.problems import SHOWN, path_of
from remit.protocol.remit import Priority, meet, meet_tools
from remit.protocol.submission import Submission

T = TypeVar("T", Submission, Response, Call)

Place = tuple[str | int, ...]
Claims = Mapping[str, Json]

KEY = "remit"
"""The key of the claims. They carry a version, so that a document's own `remit` is not mistaken for them."""

_VERSION = "version"
# Fields whose text is JSON: sent once, in the document's own field.
_JSON = "json"

# The target and the id of the answered request are never claims; a remit is claimed field by field.
_FIXED: dict[type, frozenset[str]] = {
    Submission: frozenset({"target", "remit", "via"}),
    Response: frozenset({"id", "target"}),
    Call: frozenset({"target"}),
}


def flat(request: Request) -> Submission:
    """Return a request as a submission that states its remit field by field."""
    remit = request.remit
    return Submission(
        target=request.target,
        id=request.id,
        origin=request.origin,
        user=remit.user,
        max_tokens=remit.tokens,
        max_cost=remit.cost,
        deadline_ms=remit.time_ms,
        max_depth=remit.max_depth,
        depth=remit.depth,
        chain=remit.chain,
        context_tokens=remit.context_tokens,
        tools=remit.tools,
        targets=remit.targets,
        may_delegate=remit.may_delegate,
        priority=None if remit.priority is Priority.NORMAL else remit.priority,
        run=request.run,
        parent=request.parent,
        parent_session=request.parent_session,
        view=request.view,
        created_ms=request.created_ms,
        traceparent=request.traceparent,
        **fields_of(Assignment, request),
    )


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def beyond(meant: T, parsed: T) -> dict[str, Json]:
    """Return what a dialect's fields lose of *meant*, given what was *parsed* from them; empty if nothing."""
    lost = _lost(meant, parsed)
    as_json = [name for name in lost if _is_json_of(getattr(parsed, name), getattr(meant, name))]
    for name in as_json:
        del lost[name]
    if as_json:
        lost[_JSON] = as_json
    return {_VERSION: VERSION, **lost} if lost else {}


def _lost(meant: Struct, parsed: Struct) -> dict[str, Json]:
    lost: dict[str, Json] = {}
    for name in meant.__struct_fields__:
        wanted, given = getattr(meant, name), getattr(parsed, name)
        if isinstance(wanted, Struct) and type(wanted) is type(given):
            if inner := _lost(wanted, given):
                lost[name] = inner
        elif wanted != given:
            lost[name] = wanted
    return lost


def _is_json_of(text: Json, value: Json) -> bool:
    return isinstance(text, str) and not isinstance(value, str | None) and text_of(value) == text


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def parted(free: Mapping[str, Json]) -> tuple[dict[str, Json], Claims]:
    """Return the content of a field that may hold anything, and the claims in it."""
    claims = free.get(KEY)
    if not isinstance(claims, dict) or _VERSION not in claims:
        return dict(free), {}
    return {name: value for name, value in free.items() if name != KEY}, cast("Claims", claims)


def refined(parsed: T, claims: Claims, place: Place, words: Callable[[T], Struct]) -> T:
    """Return the meaning of the document's fields and the claims at *place* together.

    *words* writes a meaning in the document's fields. Claims that would change those fields are refused.
    """
    if not claims:
        return parsed
    claimed = convert(_merged(parsed, _spelled_out(parsed, claims, place)), type(parsed), place)
    contradicted = list(_differing(words(parsed), words(claimed)))
    if contradicted:
        where = ", ".join(path_of(each) for each in contradicted)
        problem = Problem(path_of(place), f"contradicts the document's own fields: {where}")
        raise RemitError(malformed((problem,)))
    return claimed


def refined_answer(parsed: Response, claims: Claims, place: Place, words: Callable[[Response], Struct]) -> Response:
    """Return an answer with its claims, as `refined` does; claims that are refused are left out, with a warning."""
    try:
        return refined(parsed, claims, place, words)
    except RemitError as error:
        why = "; ".join(f"{each.path} {each.message}" for each in error.fault.problems) or error.fault.message
        return with_warnings(parsed, (f"{path_of(place)} was left out: {why}"[:_MAX_WARNING],))


_MAX_WARNING = 300


def bounded(claimed: Submission, parsed: Submission) -> Submission:
    """Return the claims, limited to what the document's fields allow, and its defaults where they say nothing."""
    return replace(
        claimed,
        max_tokens=_least(claimed.max_tokens, parsed.max_tokens),
        max_cost=_least(claimed.max_cost, parsed.max_cost),
        deadline_ms=_least(claimed.deadline_ms, parsed.deadline_ms),
        max_depth=_least(claimed.max_depth, parsed.max_depth),
        context_tokens=_least(claimed.context_tokens, parsed.context_tokens),
        depth=max(claimed.depth, parsed.depth),
        tools=meet_tools(claimed.tools, parsed.tools),
        targets=meet(claimed.targets, parsed.targets),
        may_delegate=claimed.may_delegate and parsed.may_delegate,
    )


def _spelled_out(parsed: Struct, claims: Claims, place: Place) -> dict[str, Json]:
    """Return the claims alone, with JSON texts decoded."""
    if _VERSION not in claims:
        raise RemitError(malformed((Problem(path_of((*place, _VERSION)), "required field is missing"),)))
    version = claims[_VERSION]
    if version != VERSION:
        problem = Problem(path_of((*place, _VERSION)), f"expected {VERSION}")
        message = f"version {str(version)[:20]!r} of `{KEY}` is not supported; supported: {VERSION}"
        raise RemitError(fault(Code.VERSION_UNSUPPORTED, message, problems=(problem,)))
    rest = {name: value for name, value in claims.items() if name not in (_VERSION, _JSON)}
    problems: list[Problem] = []
    for name in convert(claims.get(_JSON, []), tuple[str, ...], (*place, _JSON)):
        text = getattr(parsed, name) if name in parsed.__struct_fields__ else None
        try:
            rest[name] = decode(text.encode() if isinstance(text, str) else b"", object)
        except RemitError:
            problems.append(Problem(path_of((*place, _JSON)), f"{name[:SHOWN]!r} is not a string that holds JSON"))
    problems += [Problem(path_of((*place, name)), "is never a claim") for name in rest if name in _FIXED[type(parsed)]]
    if problems:
        raise RemitError(malformed(tuple(problems)))
    return rest


def _merged(parsed: Struct, claims: Claims) -> dict[str, Json]:
    whole: dict[str, Json] = msgspec.to_builtins(parsed, str_keys=True)
    for name, value in claims.items():
        held = getattr(parsed, name) if name in parsed.__struct_fields__ else None
        if isinstance(held, Struct) and isinstance(value, dict):
            value = _merged(held, cast("Claims", value))
        whole[name] = value
    return whole


def _differing(one: Struct, other: Struct, place: Place = ()) -> Iterator[Place]:
    for field, name in zip(one.__struct_fields__, one.__struct_encode_fields__, strict=True):
        here, there = getattr(one, field), getattr(other, field)
        if isinstance(here, Struct) and type(here) is type(there):
            yield from _differing(here, there, (*place, name))
        elif here != there:
            yield (*place, name)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
