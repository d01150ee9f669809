"""The finished steps of a resumable run: after a restart they are answered from here, not done again."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.policy.redaction import restore
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.envelope import Call, Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.frames import Run
from remit.runtime.keys import HubKeys
from remit.runtime.ports import Departure, Journal


class JournalStep(Struct, frozen=True, omit_defaults=True):
    """One delegation or tool call of a run, at one place in it: begun, or done and with what outcome."""

    digest: bytes
    done: bool = False
    response: Response | None = None
    value: Json = None
    fault: Fault | None = None
    tool: bool = False
    """Whether a tool was used."""
    earlier: bool = False
    """Whether it was done in a run that this one tries again: there it may have been something else."""
    departed: Departure | None = None
    """That it was sent somewhere else."""


_decoder = msgspec.json.Decoder(JournalStep)

TAKEN_OVER = fault(
    Code.OUTCOME_UNKNOWN, "another hub took this run over, because this one had not been heard of for too long"
)


def is_repeatable(card: AgentCard, request: Request) -> bool:
    """Say whether a request may be carried out twice: by who goes on where they were, or where nothing changes."""
    capability = card.capability(request.capability) if request.capability else None
    return card.resumable or (capability is not None and capability.read_only)


def recall(run: Run, path: str, digest: bytes, keys: HubKeys, *, repeatable: bool) -> JournalStep | Fault | None:
    """Return a finished step, the fault of one that cannot be known, or None for one that is to be done.

    A step that was begun and not finished is done again only if that is safe; a step whose content has changed
    means that the agent's code took another way than before, so what it did then cannot stand for what it does now.
    """
    raw = run.steps.get(path) if run.steps is not None else None
    if raw is None:
        return None
    opened = keys.unlock(raw, _place(run, path))
    if opened is None:
        return fault(
            Code.OUTCOME_UNKNOWN,
            f"step {path} was recorded with another key and cannot be read",
            suggestion="Put the key file of the store back from a backup; else look at what the work left behind.",
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
    """Return what is known of a step that was begun before a restart, and not finished."""
    raw = run.steps.get(path) if run.steps else None
    opened = None if raw is None else keys.unlock(raw, _place(run, path))
    step = None if opened is None else _decoder.decode(opened)
    return None if step is None or step.done else step


def is_done(run: Run, path: str, keys: HubKeys) -> bool:
    """Say whether a call has ended before, whoever carried it out: to answer it, nothing is begun."""
    steps = run.steps or {}
    # Attempts at the same call stand beside it (`run.2+1`), and what was asked for within them below (`run.2+1.1`).
    attempts = [at for at in steps if at == path or (at.startswith(f"{path}+") and "." not in at[len(path) :])]
    opened = [keys.unlock(steps[at], _place(run, at)) for at in attempts]
    known = [_decoder.decode(each) for each in opened if each is not None]
    # Of two that were asked beside each other, the one that answered speaks for both.
    answered = any(step.response is not None and step.response.ok for step in known)
    return bool(attempts) and (answered or all(step.done for step in known))


def has_answer(run: Run, path: str, keys: HubKeys) -> bool:
    """Say whether what was asked at a place has been answered before, with a success or a part of one."""
    opened = keys.unlock(run.steps[path], _place(run, path)) if run.steps is not None else None
    response = None if opened is None else _decoder.decode(opened).response
    return response is not None and response.ok


def take_over(run: Run, at: str, of_run: str, of: str, steps: Mapping[str, bytes], keys: HubKeys) -> None:
    """Let a run know, below the place *at*, what was done with success below the place *of*, which is tried again.

    *steps* are those of the run in which that is: this one, or another.
    """
    assert run.steps is not None, "only who can be resumed remembers steps"
    for path, raw in steps.items():
        if not path.startswith(f"{of}."):
            continue
        opened = keys.unlock(raw, f"{of_run} step {path}")
        step = None if opened is None else _decoder.decode(opened)
        if step is not None and _succeeded(step):
            to = at + path.removeprefix(of)
            run.steps.setdefault(to, keys.lock(encode(replace(step, earlier=True)), _place(run, to)))


def _succeeded(step: JournalStep) -> bool:
    if step.response is not None:
        return step.response.status is Status.SUCCESS
    return step.tool and step.done and step.fault is None


def note(store: Journal, run: Run, path: str, step: JournalStep, keys: HubKeys) -> None:
    """Have a step noted, so that none but this hub's can read it: it holds what callers got, raw values included."""
    store.journal(run.id, run.epoch, path, keys.lock(encode(step), _place(run, path)))


async def note_durably(store: Journal, run: Run, path: str, step: JournalStep, keys: HubKeys) -> None:
    """Have a step noted before its effects begin; raise a `RemitError` if another hub has the run by now."""
    if not await store.journal_durably(run.id, run.epoch, path, keys.lock(encode(step), _place(run, path))):
        raise RemitError(TAKEN_OVER)


def _place(run: Run, path: str) -> str:
    return f"{run.id} step {path}"


def errand_digest(run: Run, request: Request, keys: HubKeys) -> bytes:
    """Return what identifies a delegation at its place in a run; *request* is what was said, before redaction."""
    return _digest(run, request.target, request, keys)


def chosen(run: Run, path: str, call: Call, names: Iterable[str], keys: HubKeys) -> str | None:
    """Return whom a call by capability went to before the restart, if it is one of those *names*."""
    opened = keys.unlock(run.steps[path], _place(run, path)) if run.steps is not None else None
    before = _decoder.decode(opened).digest if opened is not None else b""
    return next((name for name in names if _digest(run, name, call, keys) == before), None)


def _digest(run: Run, target: str, said: Request | Call, keys: HubKeys) -> bytes:
    # With what tokens stand for: another run, which tries this one again, has others for the same.
    objective, given = restore(said.objective, run.known), restore(said.input, run.known)
    return keys.digest(encode((target, objective, given, said.capability)))


def tool_digest(run: Run, tool: str, arguments: dict[str, Json], keys: HubKeys) -> bytes:
    """Return what identifies a tool call at its place in a run."""
    return keys.digest(encode((tool, restore(arguments, run.known))))


def combination_digest(strategy: str, asked: int, keys: HubKeys) -> bytes:
    """Return what identifies several calls for one answer at their place in a run; each call has a step of its own."""
    return keys.digest(encode((strategy, asked)))
