"""Capabilities known by their words: told apart with few examples, in many languages, at a bounded cost."""

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent import TEAM, calibration_error
from properties import share
from remit.protocol.card import Capability
from remit.protocol.orchestration import Thresholds
from remit_orchestrator.classifiers import words as learn
from remit_orchestrator.classifiers.words import Calibration, Examples, WordClassifier, gather
from remit_orchestrator.text.classification import ScoredCapability, Scorer


def a_capability(code: str, *examples: str, description: str = "") -> Capability:
    return Capability(code=code, description=description, examples=examples)


def best(classifier: Scorer, text: str) -> ScoredCapability:
    return classifier.scores(text)[0]


@pytest.fixture(scope="module")
def team() -> WordClassifier:
    return WordClassifier(TEAM)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("please forecast the sales of the coming year", "FORECAST"),
        ("calculate the NPV at 9 percent", "VALUE"),
        ("is the investment worth it?", "VALUE"),
        ("I need a presentation with slides for monday", "REPORT"),
        ("what age are the people who buy shoes", "AUDIENCE"),
        ("should we advertise on television?", "CHANNELS"),
        ("reccomend chanels for advertizing", "CHANNELS"),
    ],
)
def test_a_handful_of_examples_is_enough_to_tell_capabilities_apart(team: WordClassifier, text: str, code: str) -> None:
    assert best(team, text).code == code


def test_confidences_fall_from_the_best_and_are_probabilities(team: WordClassifier) -> None:
    scores = team.scores("forecast our sales for next year")
    assert scores[0].code == "FORECAST"
    assert scores[0].confidence > 0.8
    assert [each.confidence for each in scores] == sorted((each.confidence for each in scores), reverse=True)
    assert sum(each.confidence for each in scores) <= 1
    assert len({each.code for each in scores}) == len(scores) == len(TEAM)


@pytest.mark.parametrize("text", ["my cat sleeps all day", "the weather was lovely on sunday", "thanks a lot"])
def test_what_is_beside_the_point_is_not_taken_for_anything(team: WordClassifier, text: str) -> None:
    assert best(team, text).confidence < Thresholds().nothing


def test_words_that_say_nothing_weigh_little(team: WordClassifier) -> None:
    """`what`, `is` and `the` are in the examples of the one, `npv` and `report` in those of the others."""
    assert best(team, "what is the report").code == "REPORT"


@pytest.mark.parametrize("text", ["", "  \n", "!?…", "\u200b\ufeff", "—"])
def test_a_text_without_words_asks_for_nothing(team: WordClassifier, text: str) -> None:
    assert team.scores(text) == ()


def test_what_has_nothing_in_common_with_any_example_asks_for_nothing(team: WordClassifier) -> None:
    assert team.scores("你好") == ()


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (
            ("Buche einen Flug nach Rom", "Reserviere ein Zimmer im Hotel", "Miete ein Auto"),
            "ich brauche flüge nach Wien",
        ),
        (("Réserve un vol", "Réserve une chambre d’hôtel", "Loue une voiture"), "je veux reserver un vol pour Rome"),
        (("订一张机票", "预订酒店房间", "租一辆车"), "帮我订机票"),
        (("航空券を予約する", "ホテルを予約する", "車を借りる"), "航空券がほしい"),
        (("จองตั๋วเครื่องบิน", "จองห้องพักโรงแรม", "เช่ารถ"), "อยากได้ตั๋วเครื่องบิน"),
        (("항공권 예약", "호텔 예약", "자동차 대여"), "항공권을 예약해 주세요"),
        (("हवाई जहाज़ का टिकट बुक करो", "होटल का कमरा बुक करो", "गाड़ी किराए पर लो"), "मुझे हवाई टिकट चाहिए"),
        (("احجز رحلة طيران", "احجز غرفة في فندق", "استأجر سيارة"), "أريد حجز رحلة طيران"),
        (("забронируй авиабилет", "забронируй гостиницу", "арендуй машину"), "нужны авиабилеты в Рим"),
    ],
)
def test_one_example_in_any_language_is_a_beginning(texts: tuple[str, str, str], question: str) -> None:
    classifier = WordClassifier([a_capability(str(place), text) for place, text in enumerate(texts)])
    assert best(classifier, question).code == "0"


def test_accents_case_and_width_do_not_matter() -> None:
    classifier = WordClassifier([a_capability("A", "prüfe die Größe"), a_capability("B", "melde dich an")])
    assert classifier.scores("PRUFE DIE GRÖSSE") == classifier.scores("prüfe die größe")
    assert classifier.scores("ｐrüfe die größe") == classifier.scores("prüfe die größe")


def test_a_description_alone_can_be_learnt_from() -> None:
    classifier = WordClassifier(
        [a_capability("A", description="Book a flight"), a_capability("B", description="Pay a bill")]
    )
    assert best(classifier, "flight to Rome").code == "A"


def test_one_capability_alone_is_no_certainty() -> None:
    classifier = WordClassifier([a_capability("A", "book a flight", "find me a plane")])
    assert best(classifier, "book a flight").confidence > 0.8
    assert best(classifier, "my aunt plants tulips behind the house").confidence < 0.6


def test_nothing_to_learn_from_is_nothing_to_answer() -> None:
    assert WordClassifier([]).scores("book a flight") == ()
    assert WordClassifier([a_capability("A"), a_capability("B", " ", "!!")]).scores("book a flight") == ()


def test_capabilities_of_one_code_are_learnt_as_one() -> None:
    twice = WordClassifier(
        [a_capability("A", "book a flight"), a_capability("B", "pay a bill"), a_capability("A", "find a plane")]
    )
    once = WordClassifier([a_capability("A", "book a flight", "find a plane"), a_capability("B", "pay a bill")])
    assert twice.scores("a plane") == once.scores("a plane")


def test_learning_gives_the_same_each_time(team: WordClassifier) -> None:
    text = "what should the report say of the campaign"
    assert WordClassifier(TEAM).scores(text) == team.scores(text)


@share(1 / 2)
@given(st.text())
def test_any_text_can_be_asked_about(team: WordClassifier, text: str) -> None:
    assert all(0 < each.confidence <= 1 for each in team.scores(text))


@pytest.mark.parametrize("unit", ["a", "a ", "'a", "forecast ", "é", "ﷺ", "\ud800", "\u0301", "中", "0", "- '", "\x00"])
def test_what_is_made_to_be_slow_is_not(team: WordClassifier, unit: str) -> None:
    start = time.process_time()
    team.scores(unit * 500_000)
    assert time.process_time() - start < 0.5


def test_only_the_beginning_of_a_long_text_counts(team: WordClassifier) -> None:
    request = "write a report on what follows. " + "lorem ipsum " * 200
    assert team.scores(request + "forecast our sales " * 1_000) == team.scores(request)


# ── what is learnt ────────────────────────────────────────────────────────────────────────────────────────────────────


def made_up(rng: random.Random, topic: Sequence[str], common: Sequence[str]) -> str:
    """A sentence with a few words on its topic among words that are on all."""
    return " ".join(rng.sample(topic, 3) + rng.choices(common, k=3))


def test_confidence_means_what_it_says_on_made_up_topics() -> None:
    """Of those that say 0.8, eight in ten are right; what is on no topic gets little."""
    rng = random.Random(7)
    syllables = [one + other for one in "bdfgklmnprstvz" for other in "aeiou"]
    words = ["".join(rng.choices(syllables, k=3)) for _ in range(900)]
    common, strange = words[:60], words[60:300]
    # Neighbouring topics share a quarter of their words, so that some sentences cannot be told apart.
    topics = [words[300 + 9 * place : 312 + 9 * place] for place in range(40)]
    classifier = WordClassifier(
        a_capability(str(place), *(made_up(rng, topic, common) for _ in range(8))) for place, topic in enumerate(topics)
    )
    labelled = [(made_up(rng, topic, common), str(place)) for place, topic in enumerate(topics) for _ in range(10)]
    beside = [made_up(rng, strange, common) for _ in range(100)]

    answers = [(best(classifier, text), code) for text, code in labelled]
    answers += [(scores[0], "") for text in beside if (scores := classifier.scores(text))]
    assert sum(top.code == code for top, code in answers) / len(labelled) > 0.85
    assert calibration_error(((top.confidence, top.code == code) for top, code in answers), bins=5) < 0.08
    confidences = sorted(top.confidence for top, _ in answers[: len(labelled)])
    strangers = sorted(top.confidence for top, _ in answers[len(labelled) :])
    assert confidences[len(confidences) // 4] > 2 * strangers[len(strangers) // 2]


def test_examples_are_taken_once_and_without_blanks() -> None:
    examples = gather(
        [a_capability("A", "x", "y", "x", " ", description="x"), a_capability("B"), a_capability("C", description="d")]
    )
    assert examples == Examples(("A", "C"), ("x", "y", "d"), (0, 0, 1), (True, True, False))


def test_too_many_examples_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "MOST_EXAMPLES", 7)
    many = [a_capability(code, *(f"{code} {number}" for number in range(10))) for code in "ABC"]
    assert gather(many).own == (0, 0, 1, 1, 2, 2)
    monkeypatch.setattr(learn, "MOST_EXAMPLES", 1)
    assert gather(many).own == (0, 1, 2)


def test_the_likeliest_few_are_named_of_many() -> None:
    classifier = WordClassifier([a_capability(f"C{each}", f"book flight number{each}") for each in range(20)])
    assert len(classifier.scores("book a flight")) == learn.MOST_SCORED


def test_a_better_score_never_means_less() -> None:
    """Even if the little that was held out says so: these examples are swapped between their capabilities."""
    swapped = [a_capability("A", "book a flight", "pay a bill"), a_capability("B", "pay the bill", "book the flight")]
    learnt = learn.learn(
        gather(swapped), [[1.0, 0, 0, 0.9], [0, 1, 0.9, 0], [0, 0.9, 1, 0], [0.9, 0, 0, 1]], Calibration(0, 2, 2)
    )
    assert learnt.sureness.slope >= 1
    assert learnt.sureness.sharpness >= 1
    assert learnt.scored([0.0, -1.0]) == ()
