"""Has a model write one text from several results, and keeps of it only what the results carry."""

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from remit.policy.aggregate import Blend
from remit.policy.budget import estimate, grant_time_ms
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.runtime.brief import Brief
from remit_models.model import ModelAgent, model_agent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.text.blending import Held, hold

if TYPE_CHECKING:  # an optional package
    from pydantic_ai.models import Model

log = logging.getLogger("remit")

# A model writes a page in less time. Waiting longer would keep finished results from the user.
PATIENCE_MS = 30_000
# No model answers in less time.
LEAST_MS = 1_000


class ModelNarration(Struct, frozen=True, kw_only=True):
    """The text that a model wrote from several results, or the reason why there is none."""

    text: str = ""
    held: Held | None = None
    """How the results bear out what the model wrote; None if it wrote nothing."""
    why: str = ""
    """Why the model wrote nothing."""

    @property
    def metadata(self) -> dict[str, Json]:
        """The same as metadata for programs."""
        if self.held is None:
            return {"narrated": "template", "not_told": self.why}
        return {"narrated": "model" if self.text else "template", **self.held.metadata}


def narrator_of(model: "str | Model | ModelAgent | None") -> "Narrator | None":
    """Return the narrator for a model, given in any form; None without a model."""
    return None if model is None else Narrator(model_agent(model))


class Narrator:
    """Has a model write one text from several results, within the remaining budget of a brief."""

    def __init__(self, model: ModelAgent) -> None:
        self._model = model
        self.aclose = model.aclose

    async def tell(self, blend: Blend, brief: Brief) -> ModelNarration:
        """Return what the results carry of the model's text, if it came in time and nothing essential is missing."""
        # The text is about as long as the results it is written from.
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
            log.warning("%s could not write one text from the results: %s", self._model.name, error.fault.code)
            return ModelNarration(why=error.fault.message)
        if answer.unfinished:
            return ModelNarration(why="; ".join(answer.unfinished))
        text = str(answer.result).strip()
        # Checking every statement against all results takes long, so it runs in a thread.
        held = await asyncio.to_thread(hold, text, blend)
        return ModelNarration(text=held.text, held=held)
