"""Agents of a model answer other agents with more than a text, if their model wants to."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Answer, Artifact, Brief, Capability, Handoff, Hub, Response, Source, Status
from remit.policy.budget import estimate
from remit.protocol.codec import text_of
from remit_models import ModelAgent
from remit_models.model_output import DESCRIPTION, KINDS, NAME, SCHEMA, answer_of
from remit_testing import MemoryStore
from waiting import PATIENCE_S

GIVEN = Source(owner_scope="public", source_id="handbook", relevance=0.9)
WHOLE: dict[str, Any] = {
    "answer": "Three receipts.",
    "summary": "Three.",
    "confidence": 0.8,
    "sources": ["handbook", "receipt-7"],
    "facts": ["Buys tea every week."],
    "artifacts": [{"type": "json", "value": {"count": 3}, "label": "receipts"}],
    "follow_up": True,
}
MEANT = Answer(
    "Three receipts.",
    summary="Three.",
    confidence=0.8,
    sources=(GIVEN, Source(owner_scope="u-1", source_id="receipt-7")),
    new_facts=("Buys tea every week.",),
    artifacts=(Artifact(type="json", value={"count": 3}, label="receipts"),),
    requires_followup=True,
)


def read(content: Any, text: str = "") -> Answer:
    return answer_of(content, text=text, user="u-1", references=(GIVEN,))


def test_everything_that_is_said_is_read() -> None:
    """X2: summary, confidence, sources, facts, artifacts, follow-up."""
    assert read(WHOLE) == MEANT


@pytest.mark.parametrize(
    ("stated", "confidence"),
    [(1, 1.0), (0.25, 0.25), (85, 0.85), ("85 %", 0.85), ("0.4", 0.4), ("high", 0.9), (None, None)],
)
def test_a_confidence_is_read_however_it_is_said(stated: object, confidence: float | None) -> None:
    assert read({"answer": "x", "confidence": stated}) == Answer("x", confidence=confidence)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"confidence": "quite"}, "confidence"),
        ({"confidence": 180}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"sources": [7]}, "sources"),
        ({"facts": {"a": 1}}, "facts"),
        ({"artifacts": [{"type": "poem", "value": 1}]}, "artifacts"),
        ({"artifacts": "none"}, "artifacts"),
        ({"summary": ["x"]}, "summary"),
        ({"follow_up": "perhaps"}, "follow_up"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_the_answer_stands(wrong: dict[str, Any], name: str) -> None:
    warning = f"`{name}` of the model's answer could not be read, and was left out"
    assert read({"answer": "x"} | wrong) == Answer("x", warnings=(warning,))


@pytest.mark.parametrize(
    ("content", "text", "result"),
    [
        ({"summary": "Three."}, "Three receipts.", "Three receipts."),
        ({"summary": "Three."}, "", "Three."),
        ({"answer": {"count": 3}}, "", {"count": 3}),
        ({"count": 3}, "", {"count": 3}),
        ("Three.", "", "Three."),
    ],
)
def test_there_is_an_answer_whatever_is_missing(content: object, text: str, result: object) -> None:
    assert read(content, text).result == result


def test_sources_that_models_describe_are_known_by_their_ids() -> None:
    sources = [{"source_id": "handbook", "owner_scope": "u-2"}, {"url": "https://example.org/\na"}, {"page": 3}]
    read_sources = read({"answer": "x", "sources": sources}).sources
    assert read_sources == (GIVEN, Source(owner_scope="u-1", source_id="https://example.org/ a"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_artifact_that_a_model_is_told_of_is_one(kind: str) -> None:
    artifacts = [{"type": kind, "value": "7"}]
    assert read({"answer": "x", "artifacts": artifacts}).artifacts[0].type == kind


def test_what_a_model_is_told_of_it_is_short() -> None:
    assert estimate(text_of(SCHEMA)) + estimate(DESCRIPTION) < 180


class Desk:
    """A boss that asks a specialist, whose model says what it is told to."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        self.parts = parts
        self.offered: list[list[str]] = []
        self.prompts: list[str] = []
        self.replies: list[Response] = []
        self.call: dict[str, Any] = {"objective": "Count the receipts"}
        self.hub = Hub(store=MemoryStore(), redaction=False)
        capability = Capability(code="COUNT", result_schema={"type": "object"})
        self.hub.add("counter", ModelAgent(FunctionModel(self._say), **options), capabilities=[capability])
        self.hub.add("boss", self._ask, may_call=["counter"])

    def _say(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.offered.append([tool.name for tool in info.output_tools])
        self.prompts.append(str(getattr(messages[-1].parts[-1], "content", "")))
        return ModelResponse(parts=list(self.parts))

    async def _ask(self, brief: Brief) -> str:
        self.replies.append(await brief.delegate("counter", **self.call))
        return "done"

    async def reply(self) -> Response:
        async with self.hub, asyncio.timeout(PATIENCE_S):
            (await self.hub.ask("boss", "Go", user="u-1")).unwrap()
        return self.replies[0]


async def test_a_model_that_says_more_is_heard_by_its_caller() -> None:
    """X2: the response has all of it, and nothing is in the way of the text."""
    desk = Desk(ToolCallPart(NAME, WHOLE))
    desk.call["handoff"] = Handoff(references=(GIVEN,))
    reply = await desk.reply()
    assert reply.ok
    answer = Answer(
        reply.result,
        summary=reply.summary,
        confidence=reply.confidence,
        sources=reply.sources,
        new_facts=reply.new_facts,
        artifacts=reply.artifacts,
        requires_followup=reply.requires_followup,
    )
    assert answer == MEANT
    assert desk.offered == [[NAME]]


@pytest.mark.parametrize(
    ("part", "result"),
    [
        (TextPart("Three receipts."), "Three receipts."),
        (ToolCallPart(NAME, '{"answer": "Three rec'), '{"answer": "Three rec'),
        (ToolCallPart(NAME, '"Three receipts."'), "Three receipts."),
        (ToolCallPart(NAME, {"answer": "Three receipts."}), "Three receipts."),
        (TextPart(f'{{"name": "{NAME}", "arguments": {{"answer": "Three receipts."}}}}'), "Three receipts."),
    ],
)
async def test_a_plain_answer_stays_one_and_a_broken_one_is_a_text(part: Any, result: str) -> None:
    desk = Desk(part)
    reply = await desk.reply()
    assert (reply.status, reply.result, reply.warnings) == (Status.SUCCESS, result, ())
    assert len(desk.offered) == 1


async def test_it_is_offered_neither_to_who_answers_a_user_nor_where_it_is_switched_off_or_a_schema_counts() -> None:
    desk = Desk(TextPart("Three."))
    async with desk.hub:
        await desk.hub.ask("counter", "Count", user="u-1")
    assert desk.offered == [[]]
    desk = Desk(TextPart("Three."), structured_answers=False)
    await desk.reply()
    assert desk.offered == [[]]
    desk = Desk(ToolCallPart("final_result", {"count": 3}))
    desk.call["capability"] = "COUNT"
    assert (await desk.reply()).result == {"count": 3}
    assert NAME not in desk.offered[0]


async def test_references_and_hints_reach_the_prompt() -> None:
    """X1: handoff_data.references and context_hints."""
    desk = Desk(TextPart("Three."))
    mine = Source(owner_scope="u-1", source_id="receipt-7")
    desk.call |= {"handoff": Handoff(references=(GIVEN, mine)), "hints": ("receipt", "ocr")}
    await desk.reply()
    assert desk.prompts == [
        "[Called by: boss]\nTask: Count the receipts\nReferences:\n- handbook (relevance 0.9)\n- receipt-7\n"
        "Hints: receipt; ocr"
    ]
