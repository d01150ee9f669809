"""The finished steps of a resumable run: after a restart they are answered from the journal, not repeated."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.policy.restoring import restore
from remit.ports.keys import HubKeys
from remit.ports.remote import Departure
from remit.ports.store import Journal
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.envelope import Call, Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.frames import Allowance, Run


class JournalStep(Struct, frozen=True, omit_defaults=True):
    """One delegation or tool call of a run at one path: begun, or done with its outcome."""

    digest: bytes
    done: bool = False
    response: Response | None = None
    value: Json = None
    fault: Fault | None = None
    tool: bool = False
    """Whether a tool was used."""
    earlier: bool = False
    """Whether it was done in a run that this one retries: there, its path may have held another step."""
    departed: Departure | None = None
    """Set if it was sent elsewhere."""
    local: bool = False
    """Whether it was begun in the process of the hub that recorded it."""
    tokens: int = 0
    """What was reserved for a delegation that was begun."""
    cost: int = 0
    """The money that a run was granted beyond that which it began with."""
    reserved: tuple[Allowance, ...] = ()
    """What the run holds of its user's day."""
    drawable: tuple[int, int] = (0, 0)
    """The tokens and the money that it may still draw of it."""


_decoder = msgspec.json.Decoder(JournalStep)

TAKEN_OVER = fault(
    Code.OUTCOME_UNKNOWN, "another hub took this run over, because this one sent no heartbeat for too long"
)


def is_repeatable(card: AgentCard, request: Request) -> bool:
    """Return whether a request may be executed twice: the callee resumes, or changes nothing."""
    capability = card.capability(request.capability) if request.capability else None
    return card.resumable or (capability is not None and capability.read_only)


def recall(run: Run, path: str, digest: bytes, keys: HubKeys, *, repeatable: bool) -> JournalStep | Fault | None:
    """Return a finished step, the fault of a step with an unknown outcome, or None for a new step.

    An unfinished step is repeated only if that is safe. A step with other content means that the agent's code took
    another way than before, so its earlier outcome cannot replace the new call.
    """
    raw = run.steps.get(path) if run.steps is not None else None
    if raw is None:
        return None
    opened = keys.unlock(raw, _bound_to(run, path))
    if opened is None:
        return fault(
            Code.OUTCOME_UNKNOWN,
            f"step {path} was recorded with another key and cannot be read",
            suggestion="Restore the store's key file from a backup, or check what the work has already done.",
        )
    step = _decoder.decode(opened)
    if step.digest != digest:
        if step.earlier:
            return None
        return fault(Code.OUTCOME_UNKNOWN, f"step {path} is not the one that was recorded before the restart")
    if step.done:
        return step
    return None if repeatable else fault(Code.OUTCOME_UNKNOWN, f"step {path} was under way when the hub stopped")


def begun(run: Run, path: str, keys: HubKeys) -> JournalStep | None:
    """Return the entry of a step that was begun before a restart and not finished."""
    raw = run.steps.get(path) if run.steps else None
    opened = None if raw is None else keys.unlock(raw, _bound_to(run, path))
    step = None if opened is None else _decoder.decode(opened)
    return None if step is None or step.done else step


def tokens_of_calls(run: Run, path: str, keys: HubKeys) -> dict[str, int]:
    """Return what the calls of a delegation from before a restart have spent or, until they end, may spend, by path."""
    tokens: dict[str, int] = {}
    for at, raw in (run.steps or {}).items():
        if not at.startswith(f"{path}.") or "." in at[len(path) + 1 :]:
            continue
        opened = keys.unlock(raw, _bound_to(run, at))
        step = None if opened is None else _decoder.decode(opened)
        if step is not None and step.done and not step.earlier:
            tokens[at] = 0 if step.response is None else step.response.usage.total
        elif step is not None and step.tokens:
            tokens[at] = step.tokens
    return tokens


def note_extension(store: Journal, run: Run, tokens: int, cost: int, keys: HubKeys) -> None:
    """Store what a run holds of its user's day, and its tokens and money beyond those that it began with, if it can
    resume.
    """
    if run.steps is not None:
        drawable = run.drawable_tokens, run.drawable_cost
        step = JournalStep(b"", done=True, tokens=tokens, cost=cost, reserved=run.reserved, drawable=drawable)
        note(store, run, _extension(run), step, keys)


def extension(run: Run, keys: HubKeys) -> tuple[int, int]:
    """Return the tokens and the money that a run was granted beyond those that it began with, before it was resumed."""
    step = _extended(run, keys)
    return (0, 0) if step is None else (step.tokens, step.cost)


def recall_reserved(run: Run, keys: HubKeys) -> None:
    """Give a run that is resumed what it held of its user's day."""
    if (step := _extended(run, keys)) is not None:
        run.reserved = step.reserved
        run.drawable_tokens, run.drawable_cost = step.drawable


def _extended(run: Run, keys: HubKeys) -> JournalStep | None:
    raw = run.steps.get(_extension(run)) if run.steps else None
    opened = None if raw is None else keys.unlock(raw, _bound_to(run, _extension(run)))
    return None if opened is None else _decoder.decode(opened)


def _extension(run: Run) -> str:
    return f"{run.id}!tokens"  # no path of a call, tool or `once` has an exclamation mark after the run


def is_done(run: Run, path: str, keys: HubKeys) -> bool:
    """Return whether a call has ended before, whichever agent executed it: answering it begins nothing."""
    steps = run.steps or {}
    # Attempts at the same call stand beside it (`run.2+1`), and their own calls below them (`run.2+1.1`).
    attempts = [at for at in steps if at == path or (at.startswith(f"{path}+") and "." not in at[len(path) :])]
    opened = [keys.unlock(steps[at], _bound_to(run, at)) for at in attempts]
    known = [_decoder.decode(each) for each in opened if each is not None]
    # Of a hedged pair, the one that answered speaks for both.
    answered = any(step.response is not None and step.response.ok for step in known)
    return bool(attempts) and (answered or all(step.done for step in known))


def has_answer(run: Run, path: str, keys: HubKeys) -> bool:
    """Return whether the call at a path was answered before, with a success or a partial success."""
    opened = keys.unlock(run.steps[path], _bound_to(run, path)) if run.steps is not None else None
    response = None if opened is None else _decoder.decode(opened).response
    return response is not None and response.ok


def take_over(run: Run, at: str, of_run: str, of: str, steps: Mapping[str, bytes], keys: HubKeys) -> None:
    """Give a run, below the path *at*, the successful steps below the path *of*, which it retries.

    *steps* are those of the run that holds them: this one, or another.
    """
    assert run.steps is not None, "only who can be resumed remembers steps"
    for path, raw in steps.items():
        if not path.startswith(f"{of}."):
            continue
        opened = keys.unlock(raw, f"{of_run} step {path}")
        step = None if opened is None else _decoder.decode(opened)
        if step is not None and _succeeded(step):
            to = at + path.removeprefix(of)
            run.steps.setdefault(to, keys.lock(encode(replace(step, earlier=True)), _bound_to(run, to)))


def _succeeded(step: JournalStep) -> bool:
    if step.response is not None:
        return step.response.status is Status.SUCCESS
    return step.tool and step.done and step.fault is None


def note(store: Journal, run: Run, path: str, step: JournalStep, keys: HubKeys) -> None:
    """Store a step, readable only for this hub: it holds what callers got, raw values included."""
    store.journal(run.id, run.epoch, path, keys.lock(encode(step), _bound_to(run, path)))


async def note_durably(store: Journal, run: Run, path: str, step: JournalStep, keys: HubKeys) -> None:
    """Store a step before its effects begin; raise a `RemitError` if another hub has taken the run over."""
    if not await store.journal_durably(run.id, run.epoch, path, keys.lock(encode(step), _bound_to(run, path))):
        raise RemitError(TAKEN_OVER)


def _bound_to(run: Run, path: str) -> str:
    return f"{run.id} step {path}"


def delegation_digest(run: Run, request: Request, keys: HubKeys) -> bytes:
    """Return the digest of a delegation at its path in a run; *request* is the content before redaction."""
    return _digest(run, request.target, request, keys)


def chosen(run: Run, path: str, call: Call, names: Iterable[str], keys: HubKeys) -> str | None:
    """Return the agent that a call by capability went to before the restart, if it is one of *names*."""
    opened = keys.unlock(run.steps[path], _bound_to(run, path)) if run.steps is not None else None
    before = _decoder.decode(opened).digest if opened is not None else b""
    return next((name for name in names if _digest(run, name, call, keys) == before), None)


def _digest(run: Run, target: str, wanted: Request | Call, keys: HubKeys) -> bytes:
    # With the raw values: a retry in another run has other tokens for the same values.
    objective, given = restore(wanted.objective, run.known), restore(wanted.input, run.known)
    identity = (target, objective, given, wanted.capability)
    return keys.digest(encode((*identity, restore(wanted.files, run.known)) if wanted.files else identity))


def tool_digest(run: Run, tool: str, arguments: dict[str, Json], keys: HubKeys) -> bytes:
    """Return the digest of a tool call at its path in a run."""
    return keys.digest(encode((tool, restore(arguments, run.known))))


def combination_digest(strategy: str, count: int, keys: HubKeys) -> bytes:
    """Return the digest of several calls for one answer at their path in a run; each call has its own step."""
    return keys.digest(encode((strategy, count)))
