"""The finished steps of a resumable run: after a restart they are answered from here, not done again."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.envelope import Call, Json, Request, Response
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.keys import Keys
from remit.runtime.ledger import Run
from remit.runtime.ports import Journal


class Step(Struct, frozen=True, omit_defaults=True):
    """One delegation or tool call of a run, at one place in it: begun, or done and with what outcome."""

    digest: bytes
    done: bool = False
    response: Response | None = None
    value: Json = None
    fault: Fault | None = None


_decoder = msgspec.json.Decoder(Step)


def recall(run: Run, path: str, digest: bytes, keys: Keys, *, repeatable: bool) -> Step | Fault | None:
    """Return a finished step, the fault of one that cannot be known, or None for one that is to be done.

    A step that was begun and not finished is done again only if that is safe; a step whose content has changed
    means that the agent's code took another way than before, so what it did then cannot stand for what it does now.
    """
    raw = run.steps.get(path) if run.steps is not None else None
    if raw is None:
        return None
    opened = keys.unlock(raw, _place(run, path))
    if opened is None:
        return fault(Code.OUTCOME_UNKNOWN, f"step {path} was recorded with another key and cannot be read")
    step = _decoder.decode(opened)
    if step.digest != digest:
        return fault(Code.OUTCOME_UNKNOWN, f"step {path} is not the one that was recorded before the restart")
    if step.done:
        return step
    return None if repeatable else fault(Code.OUTCOME_UNKNOWN, f"step {path} was under way when the hub stopped")


def note(store: Journal, run: Run, path: str, step: Step, keys: Keys) -> None:
    """Have a step noted, so that none but this hub's can read it: it holds what callers got, raw values included."""
    store.journal(run.id, run.epoch, path, keys.lock(encode(step), _place(run, path)))


def _place(run: Run, path: str) -> str:
    return f"{run.id} step {path}"


def errand_digest(request: Request, keys: Keys) -> bytes:
    """Return what identifies a delegation at its place in a run; *request* is what was said, before redaction."""
    return _digest(request.target, request.objective, request.input, request.capability, keys)


def chosen(run: Run, path: str, call: Call, names: Iterable[str], keys: Keys) -> str | None:
    """Return whom a call by capability went to before the restart, if it is one of those *names*."""
    opened = keys.unlock(run.steps[path], _place(run, path)) if run.steps is not None else None
    before = _decoder.decode(opened).digest if opened is not None else b""
    return next(
        (name for name in names if _digest(name, call.objective, call.input, call.capability, keys) == before), None
    )


def _digest(target: str, objective: str, given: Json, capability: str | None, keys: Keys) -> bytes:
    return keys.digest(encode((target, objective, given, capability)))


def tool_digest(tool: str, arguments: dict[str, Json], keys: Keys) -> bytes:
    """Return what identifies a tool call at its place in a run."""
    return keys.digest(encode((tool, arguments)))
