"""What a user's words ask for, as a scorer hears them, or as a model does."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from remit.agents.model import ModelAgent
from remit.agents.prompting import ModelPrompt
from remit.policy.budget import estimate
from remit.protocol.card import Capability
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.brief import Brief
from remit.runtime.ports import Classifier
from remit.text.intent import ClassifiedText, ScoredCapability, Scorer, hear
from remit.text.model_intent import answer_schema, instructions, request, tempered, understood

log = logging.getLogger("remit")

# To find out what is wanted may take a quarter of what there is: the rest is for doing it.
SHARE = 4
# A model that takes longer hangs, and words alone are mostly right.
PATIENCE_MS = 15_000
# In less time no model says anything.
LEAST_MS = 1_000
# The answer itself is a hundred tokens; the rest is for models that think first.
OUTPUT_TOKENS = 2_048
LEAST_OUTPUT = 100
# Five examples say what people mean; where many capabilities leave no room for them, two or none have to do.
EXAMPLES = (5, 2, 0)


Make = Callable[[Sequence[Capability]], Classifier | Scorer]
"""Makes of capabilities what finds out which of them is wanted, within a brief or by the text alone."""


def classifier_factory(
    make: Make, model: ModelAgent | None, act: float
) -> Callable[[Sequence[Capability]], Classifier]:
    """Return what makes a classifier of capabilities: what *make* makes, or the *model*, in whose place that stands."""

    def train(capabilities: Sequence[Capability]) -> Classifier:
        made = make(capabilities)
        heard = made if isinstance(made, Classifier) else TextClassifier(made)
        return heard if model is None else ModelClassifier(model, capabilities, heard, act)

    return train


class TextClassifier:
    """A classifier that needs nothing but the text; it works in a thread."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    async def hears(self, text: str, brief: Brief) -> ClassifiedText:  # noqa: ARG002 - nothing is spent
        """Return what the scorer makes of a text and of its parts."""
        return await asyncio.to_thread(hear, text, self._scorer)


class ModelClassifier:
    """A classifier that asks a model; where none can be asked, or it talks nonsense, *otherwise* hears in its place.

    The model is told of what the asking agent can have done, and of nothing else.
    """

    def __init__(
        self, model: ModelAgent, capabilities: Sequence[Capability], otherwise: Classifier, act: float
    ) -> None:
        self._model = model
        self._capabilities = capabilities
        self._otherwise = otherwise
        self._act = act

    async def hears(self, text: str, brief: Brief) -> ClassifiedText:
        """Return what the model makes of a text; or what is heard otherwise, and why."""
        heard = await self._otherwise.hears(text, brief)
        within = reach(brief)
        offered = [each for each in self._capabilities if each.code in within]
        if not offered or not text.strip():
            return heard
        said = await self._asked(text, offered, brief)
        if isinstance(said, ClassifiedText):
            return tempered(said, _among(within, heard), self._act)
        log.warning("%s could not say what a user wants, so words alone had to: %s", self._model.name, said.code)
        return heard._replace(notice=said.message)

    async def _asked(self, text: str, offered: Sequence[Capability], brief: Brief) -> ClassifiedText | Fault:
        room = brief.tokens_left() // SHARE
        codes = [each.code for each in offered]
        schema = answer_schema(codes)
        around = estimate(schema) + estimate(request(text)) + LEAST_OUTPUT
        told = (instructions(offered, examples) for examples in EXAMPLES)
        instructed = next((each for each in told if estimate(each) + around <= room), None)
        if instructed is None:
            why = f"too few tokens are left to have {self._model.name} say what is wanted"
            return fault(Code.TOKEN_BUDGET_EXCEEDED, why)
        time_ms = min(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms() // SHARE)
        if time_ms < LEAST_MS:
            return fault(Code.TIMEOUT, f"too little time is left to have {self._model.name} say what is wanted")
        try:
            answer = await self._model.reply(
                brief,
                ModelPrompt(instructions=instructed, messages=(), task=request(text)),
                time_ms=time_ms,
                max_tokens=min(OUTPUT_TOKENS, room - estimate(instructed) - around + LEAST_OUTPUT),
                schema=schema,
            )
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            return error.fault
        heard = understood(answer.result, codes)
        return fault(Code.RESULT_VALIDATION_FAILED, f"{self._model.name}: {heard}") if isinstance(heard, str) else heard


def reach(brief: Brief) -> frozenset[str]:
    """Return what can be asked for within a brief: capabilities, and workflows, which are agents, by their names."""
    delegates = brief.delegates
    return frozenset(each.name for each in delegates).union(*(each.capabilities for each in delegates))


def _among(codes: Collection[str], heard: ClassifiedText) -> ClassifiedText:
    """Return of what was heard that which is one of the *codes*."""

    def kept(scored: Sequence[ScoredCapability]) -> list[ScoredCapability]:
        return [each for each in scored if each.code in codes]

    return ClassifiedText(kept(heard.whole), [kept(each) for each in heard.parts])
