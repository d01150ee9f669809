"""What agents say as it comes: heard by those who listen, redacted, never in half a token, and never kept."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from properties import share
from remit import Brief, Delta, Hub, Kind, Response
from remit.policy.redaction import settled, strike
from remit.policy.verdict import Finding, Sealing
from remit.runtime.events import BEFORE
from remit_redaction.pipeline import detector_pipeline

MakeHub = Callable[..., Hub]

MAIL, IBAN = "alice@example.org", "DE89 3704 0044 0532 0130 00"


def speaker(hub: Hub, pieces: list[str]) -> None:
    @hub.agent("speaker")
    async def speaker(brief: Brief) -> str:
        for piece in pieces:
            brief.say(piece)
            await asyncio.sleep(0)
        return "".join(pieces)


async def overhear(hub: Hub, text: str = "speak") -> list[str]:
    return [
        record.body.text async for record in hub.stream("speaker", text, user="u") if isinstance(record.body, Delta)
    ]


async def test_whoever_streams_reads_along_and_gets_the_answer_last(make_hub: MakeHub) -> None:
    hub = make_hub(redaction=False)
    speaker(hub, ["It ", "is ", "tea."])
    async with hub:
        records = [record async for record in hub.stream("speaker", "speak", user="u")]
    deltas = [record for record in records if record.kind is Kind.DELTA]
    assert [record.body for record in deltas] == [
        Delta(delegation=records[-1].run, agent="speaker", text=text) for text in ("It ", "is ", "tea.")
    ]
    assert {record.seq for record in deltas} == {0}
    assert isinstance(records[-1].body, Response)
    assert records[-1].body.result == "It is tea."


async def test_nothing_of_it_is_kept(make_hub: MakeHub, tmp_path: Path) -> None:
    hub = make_hub(redaction=False)

    @hub.agent("speaker")
    async def speaker(brief: Brief) -> str:
        brief.say("only in passing")
        return "kept"

    async with hub:
        assert await overhear(hub) == ["only in passing"]
    assert all(b"only in passing" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_secret_said_in_pieces_is_heard_as_a_token_by_all_but_who_asked(hub: Hub) -> None:
    """Decision 13: streams hold back a partial token, and only the asker gets back what it held."""
    pieces = ["I wrote to al", "ice@exam", "ple.org and to ", "DE89 37", "04 0044 0532 0130 ", "00. ", "word " * 40]
    speaker(hub, pieces)
    async with hub:
        with hub.events() as events:
            askers_text = "".join(await overhear(hub, f"Mail {MAIL}"))
            overheard: list[str] = []
            async for record in events:
                if isinstance(record.body, Delta):
                    overheard.append(record.body.text)
                if record.kind is Kind.RESULT:
                    break
    assert MAIL in askers_text
    assert MAIL not in "".join(overheard)
    assert IBAN not in "".join(overheard)
    assert "I wrote to [EMAIL:" in "".join(overheard)
    assert all(text.count("[") == text.count("]") for text in overheard)


async def test_a_token_that_a_model_repeats_in_pieces_reaches_the_asker_whole(hub: Hub) -> None:
    @hub.agent("speaker")
    async def speaker(brief: Brief) -> str:
        for letter in f"I have {brief.text} here. " + "word " * 40:
            brief.say(letter)
        return "done"

    async with hub:
        pieces = await overhear(hub, MAIL)
    assert f"I have {MAIL} here." in "".join(pieces)
    assert not any("[EMAIL" in piece for piece in pieces)


async def test_what_is_held_back_is_said_when_the_agent_ends_or_fails(hub: Hub) -> None:
    @hub.agent("speaker")
    async def speaker(brief: Brief) -> str:
        brief.say("a word and no more")
        raise ValueError("oh")

    async with hub:
        assert await overhear(hub) == ["a word and no ", "more"]


async def test_what_a_teams_pattern_finds_in_several_words_is_not_heard_word_by_word(make_hub: MakeHub) -> None:
    """X12: no figure and no sign tells such words from others."""
    hub = make_hub(redaction=detector_pipeline(patterns={"PROJECT": "Falcon Heavy Launch"}))
    speaker(hub, [f"{word} " for word in ("We begin with Falcon Heavy Launch " + "and so on " * 20).split()])
    async with hub:
        events = hub.events()
        await hub.ask("speaker", "speak", user="u")
        events.close()
        text = "".join([record.body.text async for record in events if isinstance(record.body, Delta)])
    assert text.startswith("We begin with [PROJECT:")
    assert "Falcon" not in text


async def test_a_detector_that_fails_silences_the_stream_and_not_the_run(make_hub: MakeHub) -> None:
    def brittle(text: str) -> list[Finding]:
        if "boom" in text:
            raise ValueError("boom")
        return []

    hub = make_hub(redaction=brittle)

    @hub.agent("speaker")
    async def speaker(brief: Brief) -> str:
        brief.say("boom " * 40)
        return "done"

    async with hub:
        records = [record async for record in hub.stream("speaker", "speak", user="u")]
    assert [record for record in records if record.kind is Kind.DELTA] == []
    assert isinstance(records[-1].body, Response)
    assert records[-1].body.result == "done"


_WORDS = st.sampled_from(
    [
        MAIL,
        IBAN,
        "tel: +49 170 1234567",
        "(030) 1234567",
        "4111 1111 1111 1111",
        "my passport number is C01X00T47",
        "password: swordfish",
        "api_key = abcdEFGH1234567890",
        "SSN 536-22-8726",
        "1600 Amphitheatre Parkway",
        "https://svc:hunter2@db.example.com/x",
        "word",
        "[EMAIL:bcdfghjklmnp]",
        "[not",
        "12.5",
        "\n",
        "x" * 90,
    ]
)


@share(2)
@given(st.lists(_WORDS, max_size=12), st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_however_a_text_is_cut_the_pieces_say_no_more_than_the_whole(words: list[str], cuts: list[int]) -> None:
    sealing = Sealing(b"k" * 32, detector_pipeline())
    text = " ".join(words)
    streamed, before, pending, rest, place = "", "", "", text, 0
    while rest:
        cut = cuts[place % len(cuts)]
        place, pending, rest = place + 1, pending + rest[:cut], rest[cut:]
        clean, end = settled(before, pending, sealing, {})
        streamed, before, pending = streamed + clean, (before + pending[:end])[-BEFORE:], pending[end:]
    clean, end = settled(before, pending, sealing, {}, ended=True)
    streamed += clean
    assert end == len(pending)
    originals: dict[str, str | int] = {}
    whole = strike(text, sealing, originals)
    # What stands further away than a piece reaches may make more of a number than it is, but never less.
    assert [raw for raw in map(str, originals.values()) if streamed.count(raw) > whole.count(raw)] == []
