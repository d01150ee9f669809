"""The finished steps of a resumable run: after a restart they are answered from here, not done again."""

import hashlib

import msgspec
from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.ledger import Run


class Step(Struct, frozen=True, omit_defaults=True):
    """One delegation or tool call of a run, at one place in it: begun, or done and with what outcome."""

    digest: bytes
    done: bool = False
    response: Response | None = None
    value: Json = None
    fault: Fault | None = None


_decoder = msgspec.json.Decoder(Step)


def recall(run: Run, path: str, digest: bytes, *, repeatable: bool) -> Step | Fault | None:
    """Return a finished step, the fault of one that cannot be known, or None for one that is to be done.

    A step that was begun and not finished is done again only if that is safe; a step whose content has changed
    means that the agent's code took another way than before, so what it did then cannot stand for what it does now.
    """
    raw = run.steps.get(path) if run.steps is not None else None
    if raw is None:
        return None
    step = _decoder.decode(raw)
    if step.digest != digest:
        return fault(Code.OUTCOME_UNKNOWN, f"step {path} is not the one that was recorded before the restart")
    if step.done:
        return step
    return None if repeatable else fault(Code.OUTCOME_UNKNOWN, f"step {path} was under way when the hub stopped")


def begun(digest: bytes) -> bytes:
    """Return what to note before a step is done."""
    return encode(Step(digest))


def done(digest: bytes, *, response: Response | None = None, value: Json = None, why: Fault | None = None) -> bytes:
    """Return what to note once a step is done, well or not."""
    return encode(Step(digest, True, response, value, why))


def errand_digest(request: Request) -> bytes:
    """Return what identifies a delegation at its place in a run."""
    return hashlib.sha256(encode((request.target, request.objective, request.input, request.capability))).digest()


def tool_digest(tool: str, arguments: dict[str, Json]) -> bytes:
    """Return what identifies a tool call at its place in a run."""
    return hashlib.sha256(encode((tool, arguments))).digest()
