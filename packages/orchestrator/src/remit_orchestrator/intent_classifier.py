"""Finds what a user's words ask for, by a classifier or a model, and caches recent decisions."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from secrets import token_bytes
from typing import Protocol, runtime_checkable
from unicodedata import normalize

from msgspec import Struct

from remit.policy.budget import estimate
from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.orchestration import Thresholds
from remit_models.model import ModelAgent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.conversation import fits
from remit_orchestrator.text.classification import ClassifiedText, ScoredCapability, Scorer, hear
from remit_orchestrator.text.intent import Decision, Label, Planned
from remit_orchestrator.text.model_proposals import (
    answer_schema,
    checked,
    has_several_parts,
    instructions,
    judged_plan,
    plan_instructions,
    plan_schema,
    request,
    tempered,
    understood,
)
from remit_orchestrator.text.request_plan import RequestPart

# A decision takes about a kilobyte.
MOST = 1_000
_LONG_TEXT = 4_096


@runtime_checkable
class Classifier(Protocol):
    """Finds the capabilities that a user's text asks for: by words, by meaning, or by asking a model."""

    async def classify(self, text: str, brief: Brief) -> ClassifiedText:
        """Return the likely capabilities, best first, spending no more than *brief* has left.

        It raises no error when it cannot classify a text: it returns no candidates, or says which other method it used.
        """
        ...


class DecisionCache:
    """Routing decisions by user, words and offered capabilities; the least recently used is evicted first.

    No decision is shared between users (C10), although it names only capabilities: the response time would tell one
    user what another has asked. Words with redacted values are not shared between conversations either, because each
    conversation has its own tokens. The words themselves are not stored, only a keyed digest.
    """

    def __init__(self, now: Callable[[], float], keep_ms: int, most: int = MOST) -> None:
        self._now = now
        self._keep_s = keep_ms / 1_000
        self._most = most
        self._secret = token_bytes(16)
        self._kept: OrderedDict[bytes, tuple[Decision, float]] = OrderedDict()
        self._cleared = 0
        """How often the cache was cleared. It is part of the key, so a decision in progress at that time is not
        found later.
        """

    def key(self, user: str, text: str, codes: Iterable[str]) -> bytes:
        """Return the cache key of a decision; case and spacing of the words are ignored."""
        # Long texts are costly to normalise, so they must match exactly.
        key_text = " ".join(normalize("NFC", text).casefold().split()) if len(text) <= _LONG_TEXT else text
        content = encode((self._cleared, user, sorted(codes))) + key_text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> Decision | None:
        """Return the cached decision, unless it has expired."""
        decision, until = self._kept.get(key, (None, 0.0))
        if decision is None:
            return None
        if self._now() >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return decision

    def put(self, key: bytes, decision: Decision) -> None:
        """Keep a decision for a while."""
        if self._keep_s <= 0:
            return
        self._kept[key] = (decision, self._now() + self._keep_s)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Drop all decisions, because the offered capabilities have changed."""
        self._cleared += 1
        self._kept.clear()


log = logging.getLogger("remit")

# Classification may use a quarter of the budget: the rest is for the work itself.
SHARE = 4
# A model that takes longer hangs, and the words alone are mostly right.
PATIENCE_MS = 15_000
# No model answers in less time.
LEAST_MS = 1_000
# The answer itself is a hundred tokens; the rest is for models that think first.
OUTPUT_TOKENS = 2_048
LEAST_OUTPUT = 100
# Five examples show what people mean; if many capabilities leave no room for them, two or none must suffice.
EXAMPLES = (5, 2, 0)


Make = Callable[[Sequence[Capability]], Classifier | Scorer]
"""Makes a classifier for a list of capabilities; it may use a brief, or the text alone."""


def classifier_factory(
    make: Make, model: ModelAgent | None, act: float
) -> Callable[[Sequence[Capability]], Classifier]:
    """Return a function that makes classifiers: of the *model* if there is one, with what *make* makes as fallback."""

    def train(capabilities: Sequence[Capability]) -> Classifier:
        made = make(capabilities)
        classifier = made if isinstance(made, Classifier) else TextClassifier(made)
        return classifier if model is None else ModelClassifier(model, capabilities, classifier, act)

    return train


class TextClassifier:
    """A classifier that needs only the text; it runs in a thread."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    async def classify(self, text: str, brief: Brief) -> ClassifiedText:  # noqa: ARG002 - nothing is spent
        """Return the scores of a text and of its parts."""
        return await asyncio.to_thread(hear, text, self._scorer)


class ModelClassifier:
    """A classifier that asks a model, and falls back to *otherwise* if the model fails or its answer is invalid.

    The model sees only the capabilities that the calling agent may use.
    """

    def __init__(
        self, model: ModelAgent, capabilities: Sequence[Capability], otherwise: Classifier, act: float
    ) -> None:
        self._model = model
        self._capabilities = capabilities
        self.otherwise = otherwise
        self._act = act

    async def classify(self, text: str, brief: Brief) -> ClassifiedText:
        """Return the model's classification of a text, or the fallback's with a notice that says why."""
        fallback = await self.otherwise.classify(text, brief)
        within = allowed_capabilities(brief)
        offered = [each for each in self._capabilities if each.code in within]
        if not offered or not text.strip():
            return fallback
        outcome = await self._ask_model(text, fallback.plan, offered, brief)
        if isinstance(outcome, ClassifiedText):
            return tempered(outcome, _restrict(within, fallback), self._act)
        log.warning("%s could not classify a request, so the fallback did: %s", self._model.name, outcome.code)
        return fallback._replace(notice=outcome.message)

    async def _ask_model(
        self, text: str, parts: Sequence[RequestPart], offered: Sequence[Capability], brief: Brief
    ) -> ClassifiedText | Fault:
        room = brief.tokens_left() // SHARE
        codes = [each.code for each in offered]
        schema, task = answer_schema(codes, len(parts)), request(text, parts)
        around = estimate(schema) + estimate(task) + LEAST_OUTPUT
        prompts = (instructions(offered, examples, parts=bool(parts)) for examples in EXAMPLES)
        instructed = next((each for each in prompts if estimate(each) + around <= room), None)
        if instructed is None:
            why = f"too few tokens are left to have {self._model.name} classify the request"
            return fault(Code.TOKEN_BUDGET_EXCEEDED, why)
        time_ms = min(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms() // SHARE)
        if time_ms < LEAST_MS:
            return fault(Code.TIMEOUT, f"too little time is left to have {self._model.name} classify the request")
        try:
            answer = await self._model.reply(
                brief,
                ModelPrompt(instructions=instructed, messages=(), task=task),
                time_ms=time_ms,
                max_tokens=min(OUTPUT_TOKENS, room - estimate(instructed) - around + LEAST_OUTPUT),
                schema=schema,
            )
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            return error.fault
        outcome = understood(answer.result, codes, text, parts)
        if isinstance(outcome, str):
            return fault(Code.RESULT_VALIDATION_FAILED, f"{self._model.name}: {outcome}")
        return outcome


def without_model(classifier: Classifier) -> Classifier:
    """Return a classifier that asks no model: the fallback of one that does."""
    return classifier.otherwise if isinstance(classifier, ModelClassifier) else classifier


def allowed_capabilities(brief: Brief) -> frozenset[str]:
    """Return the capabilities, and the names of workflows, that a brief may ask for."""
    delegates = brief.delegates
    return frozenset(each.name for each in delegates).union(*(each.capabilities for each in delegates))


def _restrict(codes: Collection[str], classified: ClassifiedText) -> ClassifiedText:
    """Return the scores whose capability is one of the *codes*."""

    def kept(scored: Sequence[ScoredCapability]) -> list[ScoredCapability]:
        return [each for each in scored if each.code in codes]

    return ClassifiedText(kept(classified.whole), [kept(each) for each in classified.parts])


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
        reply = await self._ask_model(brief, text, list(capabilities.values()))
        if isinstance(reply, str):
            return self._dropped(rules, reply)
        proposal = await asyncio.to_thread(checked, reply["plan"], text, rules, capabilities, fits, today)
        if isinstance(proposal, str):
            return self._dropped(rules, proposal)
        classified = [await classifier.classify(each.text, brief) for each in proposal.parts]
        outcome = judged_plan(proposal, classified, {code: label for code, (label, _) in offered.items()}, thresholds)
        return PlanChoice(outcome) if isinstance(outcome, Planned) else self._dropped(rules, outcome)

    def _dropped(self, rules: Decision, why: str) -> PlanChoice:
        # The reason may quote the user, so it is not logged.
        log.warning("the plan that %s proposed was not taken", self._model.name)
        return PlanChoice(rules, why)

    async def _ask_model(self, brief: Brief, text: str, offered: Sequence[Capability]) -> dict[str, Json] | str:
        """Return the model's proposal, or why there is none."""
        schema, task = plan_schema([each.code for each in offered]), request(text)
        room = brief.tokens_left() // SHARE
        around = estimate(schema) + estimate(task) + LEAST_OUTPUT
        prompts = (plan_instructions(offered, examples) for examples in _EXAMPLES)
        instructed = next((each for each in prompts if estimate(each) + around <= room), None)
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
