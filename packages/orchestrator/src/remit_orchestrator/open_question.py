"""The question to a user that is open in a conversation, and taken once."""

from typing import Any, cast

from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.runtime.brief import Brief

# The key under which the open question is stored in a conversation.
_ASKED = "asked"
# The key for the run that took the reply.
_HEARD = "heard"


def without_options(text: str, given: Json, *, refused: bool = False) -> dict[str, Json]:
    """Return an open question without options: the reply to it is read together with the *text* that led to it."""
    return {"options": [], "words": [], "text": text, "input": given, "refused": refused}


async def keep_question(brief: Brief, asked: dict[str, Json]) -> None:
    """Store the question to the user; if two runs of a session ask at once, the later question is the open one."""
    while not await _changed(brief, {_ASKED: asked}):
        await brief.state()


async def take_question(brief: Brief) -> dict[str, Any] | None:
    """Return the open question, once: the next message in the session is taken as its reply."""

    async def take() -> Json:
        kept, run = await brief.state(), brief.request.run
        heard, asked = kept.get(_HEARD), kept.get(_ASKED)
        if heard is not None and heard["run"] == run:
            return heard["question"]  # taken before a restart, which came before that was recorded
        taken = {_ASKED: None, _HEARD: {"run": run, "question": asked}}
        # Only one of two simultaneous replies is used: the other would execute the same request twice.
        return asked if asked is None or await _changed(brief, taken) else None

    # After a restart, use the stored state: meanwhile this run may have asked another question.
    return cast("dict[str, Any] | None", await brief.once("asked", take))


async def _changed(brief: Brief, changes: dict[str, Json]) -> bool:
    """Store the question and the run that took the reply; False if another run of the session was faster."""
    try:
        await brief.update_state(**changes)
    except RemitError as error:
        if error.fault.code is not Code.STATE_CONFLICT:
            raise
        return False
    return True


def merged_input(before: Json, now: Json) -> Json:
    """Return the data of a request merged with the data of the reply to a question about it."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {**cast("dict[str, Json]", before), **cast("dict[str, Json]", now)}
    return cast("Json", before if now is None else now)
