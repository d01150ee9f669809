"""An agent that finds out what a user wants, has it done by whoever can, and gives one answer.

What it has to ask back ends the run: the reply comes as the next request of the session, days later if need be.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from remit.agents.workflow import AT_ONCE, Course, Words
from remit.policy.intent import (
    THRESHOLDS,
    Choose,
    Classifier,
    Intent,
    Label,
    Routed,
    Thresholds,
    Unclear,
    Unknown,
    decide,
    hear,
)
from remit.policy.plan import Step, Workflow
from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Answer, Json
from remit.runtime.brief import Brief

# What the agent keeps in a conversation while it waits for a reply.
_ASKED = "asked"
_YES = re.compile(r"\W*(y|yes|yeah|ok|okay|sure|please|ja|gerne|oui|si|sí)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\W*(?:the |number |option )?(\d+|first|second|third)\b", re.IGNORECASE)
_PLACES = {"first": 1, "second": 2, "third": 3}
# A field of an input that the user's own words can stand for.
_FREE_TEXT = ("text", "query", "question", "message", "request", "prompt", "objective", "task")


class Orchestrator:
    """Routes what a user says by the capabilities, and workflows, that are there."""

    description = "Finds out what you want, has it done, and answers."

    def __init__(
        self,
        offered: Callable[[], Mapping[str, tuple[Label, Capability]]],
        train: Callable[[Sequence[Capability]], Classifier],
        *,
        thresholds: Thresholds = THRESHOLDS,
        words: Callable[[], Words] = Words,
        at_once: Callable[[], int] = lambda: AT_ONCE,
    ) -> None:
        self._offered = offered
        self._train = train
        self._thresholds = thresholds
        self._words = words
        self._at_once = at_once
        self._trained: tuple[tuple[Capability, ...], Classifier] | None = None

    async def __call__(self, brief: Brief) -> Answer:
        said = _said(brief)
        asked = (await brief.state()).get(_ASKED)
        if asked is not None:
            await brief.change(**{_ASKED: None})
            if (answer := await self._replied(brief, cast("dict[str, Any]", asked))) is not None:
                return answer
        labels = {code: label for code, (label, _) in self._offered().items()}
        heard = await asyncio.to_thread(hear, said, await self._classifier())
        match decide(heard, labels, self._thresholds):
            case Routed(primary=primary, secondary=secondary):
                return await self._carry_out(brief, (primary, *secondary), said, brief.request.input)
            case Choose(options=options, question=question):
                listed = "\n".join(f"{place}. {option.words}" for place, option in enumerate(options, 1))
                codes = [option.intent.code for option in options]
                return await self._ask(brief, f"{question}\n{listed}", {"options": codes, "text": said})
            case Unclear(question=question, option=option):
                return await self._ask(brief, question, {"options": [option.code], "text": said})
            case Unknown(reply=reply):
                return Answer(reply, confidence=0.0, metadata={"intent": None})

    async def _classifier(self) -> Classifier:
        """Return a classifier of what is offered now; it learns anew, in a thread, when that has changed."""
        offered = tuple(capability for _, capability in self._offered().values())
        if self._trained is None or self._trained[0] != offered:
            self._trained = (offered, await asyncio.to_thread(self._train, offered))
        return self._trained[1]

    # ── asking back ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, brief: Brief, question: str, asked: dict[str, Json]) -> Answer:
        await brief.change(**{_ASKED: asked})
        return Answer(question, requires_followup=True, metadata={"asked": list(asked)})

    async def _replied(self, brief: Brief, asked: dict[str, Any]) -> Answer | None:
        """Go on with what the user was asked, if this is the reply to it; None: they want something else."""
        if "missing" in asked:
            given = _fields(_said(brief), asked["missing"])
            if given is None:
                return None
            intents = [self._intent(code) for code in asked["codes"]]
            return await self._carry_out(brief, intents, asked["text"], {**asked["input"], **given})
        chosen = _chosen(_said(brief), asked["options"])
        if chosen is None:
            return None
        return await self._carry_out(brief, (self._intent(chosen),), asked["text"], brief.request.input)

    def _intent(self, code: str) -> Intent:
        label, _ = self._offered()[code]
        return Intent(code, label.target, 1.0)

    # ── doing it ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _carry_out(self, brief: Brief, intents: Sequence[Intent], text: str, given: Json) -> Answer:
        offered, words = self._offered(), self._words()
        steps: list[Step] = []
        for place, intent in enumerate(intents, 1):
            _, capability = offered[intent.code]
            inputs, missing = _inputs(capability.input_schema, text, given)
            if missing:
                question = _ask_for(capability.input_schema or {}, missing)
                codes: list[Json] = [each.code for each in intents]
                wanted: dict[str, Json] = {"codes": codes, "missing": missing, "input": inputs or {}, "text": text}
                return await self._ask(brief, question, wanted)
            is_workflow = intent.code == intent.target
            steps.append(
                Step(
                    name=f"part{place}",
                    agent=intent.target if is_workflow else None,
                    capability=None if is_workflow else intent.code,
                    objective=text,
                    input=inputs,
                    title=words.title(intent.code),
                )
            )
        workflow = Workflow(name="orchestrator", steps=tuple(steps))
        answer = await Course(workflow, brief, words, self._at_once()).run()
        answer.metadata["intents"] = [{"confidence": round(intent.confidence, 2)} for intent in intents]
        return answer


def _said(brief: Brief) -> str:
    """Return the user's words, beside which there may be data."""
    return brief.objective or brief.text


def _chosen(reply: str, options: Sequence[str]) -> str | None:
    if len(options) == 1:
        return options[0] if _YES.match(reply) else None
    found = _NUMBER.match(reply)
    place = 0 if found is None else int(_PLACES.get(found[1].lower(), found[1]))
    return options[place - 1] if 0 < place <= len(options) else None


# ── inputs from words ─────────────────────────────────────────────────────────────────────────────────────────────────


def _inputs(schema: Schema | None, text: str, given: Json) -> tuple[Json, list[str]]:
    """Return the input of a capability, and the fields that it cannot be without and nobody has said."""
    if schema is None:
        return given, []
    fields: dict[str, Any] = dict(cast("dict[str, Any]", given)) if isinstance(given, dict) else {}
    properties: dict[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in fields]
    free = next((name for name in (*_FREE_TEXT, *missing) if name in properties and _is_text(properties[name])), None)
    # The user's own words can stand for one field, if it is the only one that is missing, or is meant for them.
    if free is not None and free not in fields and (free in _FREE_TEXT or missing == [free]):
        fields[free] = text
        missing = [name for name in missing if name != free]
    return (fields or cast("Json", given)), missing


def _is_text(schema: object) -> bool:
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string"


def _ask_for(schema: Schema, missing: Sequence[str]) -> str:
    properties: dict[str, Any] = schema.get("properties", {})
    lines = [
        f"- {name}" + (f": {about}" if (about := properties.get(name, {}).get("description")) else "")
        for name in missing
    ]
    return "\n".join(("I need to know more for this. Please reply with a line `name: value` for each:", *lines))


def _fields(reply: str, missing: Sequence[str]) -> dict[str, Json] | None:
    """Read a reply that gives fields: as JSON, as lines of name and value, or, for a single field, as it is."""
    try:
        read = json.loads(reply)
    except ValueError:
        read = None
    if isinstance(read, dict):
        return {name: value for name, value in cast("dict[str, Json]", read).items() if name in missing} or None
    pairs = (line.partition(":") for line in reply.splitlines())
    found = {name.strip(" -*`"): _value(value.strip()) for name, colon, value in pairs if colon}
    found = {name: value for name, value in found.items() if name in missing}
    if found or len(missing) > 1 or not reply.strip():
        return found or None
    return {missing[0]: _value(reply.strip())}


def _value(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text
