"""What replies to a question mean, by phrases alone: agreement, refusal, options; everything else is no answer."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import remit_orchestrator
from remit.protocol.errors import RemitError
from remit_orchestrator.dialogue.phrases import phrases_of, tokens
from remit_orchestrator.dialogue.replies import (
    Agreed,
    ChosenOption,
    NamedInPart,
    NoneOfThese,
    Other,
    TurnedDown,
    read_reply,
)

PHRASES = phrases_of("en")
OPTIONS = ["Rent out a bike", "Take a bike back", "Tell what a rental costs"]
FOLDER = Path(remit_orchestrator.__file__).parent / "phrases"


def own(language: str) -> dict[str, list[str]]:
    return tomllib.loads((FOLDER / f"{language}.toml").read_text("utf-8"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_each_language_has_forty_ways_to_agree_and_to_refuse(language: str) -> None:
    phrases = own(language)
    assert len(set(phrases["agree"])) >= 40
    assert len(set(phrases["deny"]) | set(phrases["never_mind"])) >= 40


@pytest.mark.parametrize("language", ["en", "de"])
def test_phrases_are_written_as_they_are_looked_for(language: str) -> None:
    for kind, phrases in own(language).items():
        if kind not in {"places", "texts", "language"}:
            assert [each for each in phrases if " ".join(tokens(each)) != each.casefold()] == [], kind


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_agreement_agrees_and_every_refusal_refuses(language: str) -> None:
    phrases = own(language)
    assert [each for each in phrases["agree"] if read_reply(each, OPTIONS, PHRASES) != Agreed()] == []
    refusals = [*phrases["deny"], *phrases["never_mind"]]
    refused = {each: read_reply(each, OPTIONS, PHRASES) for each in refusals}
    assert [each for each, reply in refused.items() if not isinstance(reply, TurnedDown | NoneOfThese)] == []


def test_no_phrase_agrees_and_refuses() -> None:
    agreed = {tokens(each) for each in PHRASES.agree}
    assert agreed & {tokens(each) for each in (*PHRASES.deny, *PHRASES.never_mind, *PHRASES.none_of_these)} == set()


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("Yes, please!", Agreed()),
        ("oh yes, go ahead, thanks", Agreed()),
        ("Alright", Agreed()),
        ("No problem, go ahead.", Agreed()),
        ("ja, bitte", Agreed()),
        ("👍", Agreed()),
        ("yes, but on Tuesday", Agreed("but on Tuesday")),
        ("no", TurnedDown()),
        ("ok, never mind", TurnedDown()),
        ("Don’t!", TurnedDown()),
        ("yes please don't", TurnedDown()),
        ("of course not", TurnedDown()),
        ("no, to my bank", TurnedDown("to my bank")),
        ("Nein, danke", TurnedDown()),
        ("2", ChosenOption(1)),
        ("number two, please", ChosenOption(1)),
        ("the last one", ChosenOption(2)),
        ("die zweite bitte", ChosenOption(1)),
        ("yes, 3", ChosenOption(2)),
        ("rent out a bike", ChosenOption(0)),
        ("take a bike back, please", ChosenOption(1)),
        ("the costs", NamedInPart(2)),
        ("4", NoneOfThese()),
        ("none of these", NoneOfThese()),
        ("keine davon", NoneOfThese()),
        # "Bike" is in two names.
        ("my bike", Other()),
        ("7", Other()),
        ("1 or 2", Other()),
        ("2 bikes for my sons", Other()),
        ("what is the weather like", Other()),
        ("", Other()),
        ("yes " * 5_000, Other()),
    ],
)
def test_a_reply_is_read_by_its_phrases(reply: str, meant: object) -> None:
    assert read_reply(reply, OPTIONS, PHRASES) == meant


def test_a_team_may_bring_phrases_of_its_own(tmp_path: Path) -> None:
    known: dict[str, Any] = own("en")["texts"]  # pyright: ignore
    forms = known.pop("forms")
    texts = "\n".join(f'{name} = "{text}"' for name, text in known.items())
    texts += "\n[texts.forms]\n" + "\n".join(f'{name} = "{text}"' for name, text in forms.items())
    path = tmp_path / "fr.toml"
    path.write_text(f'language = "fr"\nagree = ["oui", "d accord"]\n[texts]\n{texts}', "utf-8")
    phrases = phrases_of(str(path))
    assert read_reply("Oui, d'accord", OPTIONS, phrases) in (Agreed(), Agreed("d'accord"))
    assert read_reply("yes", OPTIONS, phrases) == Agreed()
    path.with_name("wrong.toml").write_text("agree = 7", "utf-8")
    with pytest.raises(RemitError, match="cannot be read"):
        phrases_of(str(path.with_name("wrong.toml")))
    with pytest.raises(RemitError, match="cannot be read"):
        phrases_of(str(tmp_path / "none.toml"))
