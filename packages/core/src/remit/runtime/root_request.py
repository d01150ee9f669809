"""A root request, made from the arguments of `ask` and validated like one from the wire."""

import os
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.reception import handed_by_user
from remit.protocol.codec import checked
from remit.protocol.envelope import USER, VERSION, Assignment, Request
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.files import File
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import Priority, Remit
from remit.protocol.submission import AskOptions
from remit.protocol.trace import place_of


def root_request(
    agent: str, text: str, user: str, options: AskOptions, *, run: str, created_ms: int, limits: Limits
) -> Request:
    """Return the request that starts a run, or raise a `RemitError` that names every invalid argument."""
    _refuse_unknown(options)
    tokens, time_ms, depth = options.get("max_tokens"), options.get("deadline_ms"), options.get("max_depth")
    context_tokens, cost = options.get("context_tokens"), options.get("max_cost")
    remit = Remit(
        user=user,
        depth=0,
        max_depth=limits.max_depth if depth is None else depth,
        time_ms=limits.root_time_ms if time_ms is None else time_ms,
        tokens=limits.root_tokens if tokens is None else tokens,
        cost=limits.root_cost if cost is None else cost,
        context_tokens=limits.context_tokens if context_tokens is None else context_tokens,
        tools=_names(options.get("tools")),
        targets=_names(options.get("targets")),
        may_delegate=options.get("may_delegate", True),
        priority=options.get("priority") or Priority.NORMAL,
    )
    assignment: dict[str, Any] = {name: options[name] for name in Assignment.__struct_fields__ if name in options}
    assignment["session"] = options.get("session") or run
    assignment["correlation"] = options.get("correlation") or run
    assignment["files"] = _several(options.get("files", ()))
    request = Request(
        version=VERSION,
        id=options.get("request_id") or run,
        origin=USER,
        target=agent,
        remit=remit,
        objective=text,
        run=run,
        created_ms=created_ms,
        traceparent=options.get("traceparent"),
        handover=handed_by_user(options.get("handover"), agent),
        **assignment,
    )
    request = checked(request)
    if request.traceparent is not None and place_of(request.traceparent) is None:
        problem = Problem("traceparent", "expected the W3C format: 00-<32 hex digits>-<16 hex digits>-01")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid traceparent", problems=(problem,)))
    return _within_limits(request, limits)


def _within_limits(request: Request, limits: Limits) -> Request:
    """Return the request within the hub's own bounds: depth, and the context that fits into the budget."""
    remit = request.remit
    bounded = replace(
        remit,
        max_depth=min(remit.max_depth, limits.max_depth),
        context_tokens=min(remit.context_tokens, limits.context_tokens, remit.tokens),
    )
    return replace(request, remit=bounded)


def _names(given: Collection[str] | None) -> frozenset[str] | None:
    """Accept any collection of names; anything else stays as it is, for the validation to report."""
    return frozenset(given) if isinstance(given, list | tuple | set) else given  # pyright: ignore[reportReturnType]


def _several(given: Sequence[File]) -> tuple[File, ...]:
    """Accept a list of files; anything else stays as it is, for the validation to report."""
    return tuple(given) if isinstance(given, list) else given  # pyright: ignore[reportReturnType]


def _refuse_unknown(options: AskOptions) -> None:
    known = AskOptions.__optional_keys__
    problems = tuple(
        Problem(name, f"unknown argument{did_you_mean(name, known)}") for name in options if name not in known
    )
    if problems:
        names = ", ".join(problem.path for problem in problems)
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"unknown arguments: {names}", problems=problems))


class _Digits:
    """Random digits for ids, read in bulk: each read releases the interpreter lock to the writer for a while."""

    def __init__(self) -> None:
        self._left: list[str] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def next(self) -> str:
        if not self._left:
            digits = os.urandom(10 * 256).hex()
            self._left.extend(digits[at : at + 20] for at in range(0, len(digits), 20))
        return self._left.pop()


_digits = _Digits()


def new_run_id(created_ms: int) -> str:
    """Return a fresh id for a run."""
    # Ids that grow with time append to the store's indexes at one end, at half the cost of random ones.
    return f"{created_ms:012x}{_digits.next()}"
