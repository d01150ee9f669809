"""Has a model propose the plan of a request with several parts, and checks the proposal."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import date

from msgspec import Struct

from remit.policy.budget import estimate
from remit.protocol.card import Capability
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.protocol.orchestration import Thresholds
from remit.runtime.brief import Brief
from remit_models.model import ModelAgent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.conversation import fits
from remit_orchestrator.intent_classifier import LEAST_MS, LEAST_OUTPUT, OUTPUT_TOKENS, PATIENCE_MS, SHARE, Classifier
from remit_orchestrator.text.intent import Decision, Label, Planned
from remit_orchestrator.text.model_intent import request
from remit_orchestrator.text.model_plan import checked, judged_plan
from remit_orchestrator.text.plan_prompt import has_several_parts, plan_instructions, plan_schema

log = logging.getLogger("remit")

# Examples tell people's words apart; if many capabilities leave no room for them, their descriptions must suffice.
_EXAMPLES = (3, 0)


class PlanChoice(Struct, frozen=True):
    """The decision about a request, and why the model's plan was not taken."""

    decision: Decision
    notice: str = ""


class PlanProposer:
    """Has a model propose plans; a proposal that does not stand in the request is dropped."""

    def __init__(self, model: ModelAgent) -> None:
        self._model = model

    async def choose(
        self,
        brief: Brief,
        text: str,
        rules: Decision,
        *,
        offered: Mapping[str, tuple[Label, Capability]],
        classifier: Classifier,
        thresholds: Thresholds,
        today: date,
    ) -> PlanChoice:
        """Return the model's plan, or the decision that the *rules* made if there is no proposal that fits."""
        if not offered or not has_several_parts(text):
            return PlanChoice(rules)
        capabilities = {code: capability for code, (_, capability) in offered.items()}
        said = await self._asked(brief, text, list(capabilities.values()))
        if isinstance(said, str):
            return self._dropped(rules, said)
        proposal = await asyncio.to_thread(checked, said["plan"], text, rules, capabilities, fits, today)
        if isinstance(proposal, str):
            return self._dropped(rules, proposal)
        heard = [await classifier.classify(each.text, brief) for each in proposal.parts]
        found = judged_plan(proposal, heard, {code: label for code, (label, _) in offered.items()}, thresholds)
        return PlanChoice(found) if isinstance(found, Planned) else self._dropped(rules, found)

    def _dropped(self, rules: Decision, why: str) -> PlanChoice:
        # The reason may quote the user, so it is not logged.
        log.warning("the plan that %s proposed was not taken", self._model.name)
        return PlanChoice(rules, why)

    async def _asked(self, brief: Brief, text: str, offered: Sequence[Capability]) -> dict[str, Json] | str:
        """Return the model's proposal, or why there is none."""
        schema, task = plan_schema([each.code for each in offered]), request(text)
        room = brief.tokens_left() // SHARE
        around = estimate(schema) + estimate(task) + LEAST_OUTPUT
        told = (plan_instructions(offered, examples) for examples in _EXAMPLES)
        instructed = next((each for each in told if estimate(each) + around <= room), None)
        if instructed is None:
            return "too few tokens are left"
        time_ms = min(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms() // SHARE)
        if time_ms < LEAST_MS:
            return "too little time is left"
        prompt = ModelPrompt(instructions=instructed, messages=(), task=task)
        most = min(OUTPUT_TOKENS, room - estimate(instructed) - around + LEAST_OUTPUT)
        try:
            answer = await self._model.reply(brief, prompt, time_ms=time_ms, max_tokens=most, schema=schema)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            return error.fault.message
        return {"plan": answer.result}
