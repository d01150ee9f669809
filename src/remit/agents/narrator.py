"""Several results told as one by a model, as far as it tells only what they say."""

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from remit.agents.model import ModelAgent, model_agent
from remit.agents.prompting import ModelPrompt
from remit.policy.aggregate import Blend, accept, left_out
from remit.policy.budget import estimate, grant_time_ms
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.runtime.brief import Brief

if TYPE_CHECKING:  # a foreign package that need not be there
    from pydantic_ai.models import Model

log = logging.getLogger("remit")

# A model tells a page in less; one that takes longer keeps from the user what is there already.
PATIENCE_MS = 30_000
# In less time no model says anything.
LEAST_MS = 1_000
# So many of the things that a model made up are kept; one is enough to reject its text.
_KEPT = 10


class ModelNarration(Struct, frozen=True, kw_only=True):
    """What a model made of several results; without a text, why there is none that can be used."""

    text: str = ""
    rejected: tuple[str, ...] | None = None
    """The names and figures that stand in nothing it was given; None if it was not rejected."""
    left_out: tuple[str, ...] = ()
    """The titles of the results of which it says nothing."""
    why: str = ""

    @property
    def metadata(self) -> dict[str, Json]:
        """What programs are told of it."""
        if self.text:
            return {"narrated": "model"}
        if self.rejected is not None:
            return {"narrated": "template", "rejected": list(self.rejected), "left_out": list(self.left_out)}
        return {"narrated": "template", "not_told": self.why}


def narrator_of(model: "str | Model | ModelAgent | None") -> "Narrator | None":
    """Return what has a model tell results, however it is named; None without one."""
    return None if model is None else Narrator(model_agent(model))


class Narrator:
    """Has a model tell results as one, within what a brief has left."""

    def __init__(self, model: ModelAgent) -> None:
        self._model = model
        self.aclose = model.aclose

    async def tell(self, blend: Blend, brief: Brief) -> ModelNarration:
        """Return the model's text, if it can be had in time, says nothing of its own, and leaves no result out."""
        # What is told as one is about as long as what it is told from.
        if brief.tokens_left() < 2 * estimate(blend.prompt):
            return ModelNarration(why="too few tokens are left")
        time_ms = grant_time_ms(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        if time_ms < LEAST_MS:
            return ModelNarration(why="too little time is left")
        try:
            prompt = ModelPrompt(instructions=blend.instructions, messages=(), task=blend.material)
            answer = await self._model.reply(brief, prompt, time_ms=time_ms)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not tell results as one: %s", self._model.name, error.fault.code)
            return ModelNarration(why=error.fault.message)
        if answer.unfinished:
            return ModelNarration(why="; ".join(answer.unfinished))
        text = str(answer.result).strip()
        # Every name and figure is looked for in all that the model was given; that may be much.
        return await asyncio.to_thread(_checked, text, blend)


def _checked(text: str, blend: Blend) -> ModelNarration:
    made_up, missing = accept(text, blend), left_out(text, blend)
    return (
        ModelNarration(rejected=made_up[:_KEPT], left_out=missing) if made_up or missing else ModelNarration(text=text)
    )
