"""The pairs of statements that an entailment model reads: few, short, and about one thing."""

from remit.words.components import Component, Findings
from remit_orchestrator.text.conflicts.second_reader import (
    LONGEST_QUOTE,
    MOST_CONTRADICTIONS,
    MOST_PAIRS,
    contradictions,
    pointed_out,
    statement_pairs,
)


def pairs_of(*results: str, questions: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    per_result = questions or ("",) * len(results)
    components = [
        Component(str(n), each, question=question)
        for n, (each, question) in enumerate(zip(results, per_result, strict=True))
    ]
    return [(one.text, other.text) for one, other in statement_pairs(components)]


def test_sentences_of_two_results_with_a_word_in_common_are_read_together() -> None:
    assert pairs_of("The invoice has been paid. It rains.", "Snow fell. The invoice is still open.") == [
        ("The invoice has been paid.", "The invoice is still open.")
    ]


def test_two_answers_of_one_sentence_each_are_read_whatever_their_words() -> None:
    assert pairs_of("He has recovered.", "Her patient remains ill.") == [
        ("He has recovered.", "Her patient remains ill.")
    ]


def test_two_things_with_numbers_are_not_read_together() -> None:
    assert pairs_of("Ward 3 is full.", "Ward 5 is empty.") == []
    assert pairs_of("Ward 3 is full.", "Ward 3 is empty.") == [("Ward 3 is full.", "Ward 3 is empty.")]


def test_results_of_two_questions_are_not_read_together() -> None:
    assert pairs_of("The hall is full.", "The hall is empty.", questions=("freight", "rooms")) == []


def test_questions_equal_sentences_and_overlong_ones_are_not_read() -> None:
    long = "The hall " + "really " * LONGEST_QUOTE + "is empty."
    assert pairs_of("The hall is full. Is the hall full?", f"The hall is full. {long}") == []


def test_those_with_the_most_words_in_common_come_first_and_the_rest_is_left_out() -> None:
    many = " ".join(f"The hall has a {'long' * n}er door." for n in range(1, 20))
    more = " ".join(f"The gate of the hall is {'long' * n}ish." for n in range(1, 20))
    pairs = pairs_of(f"{many} The eastern hall is full today.", f"{more} The eastern hall is empty today.")
    assert len(pairs) == MOST_PAIRS
    assert ("The eastern hall is full today.", "The eastern hall is empty today.") in pairs


def test_what_both_results_say_is_not_read() -> None:
    assert pairs_of("The hall is full. The hall is warm.", "The hall is full. The hall is cold.") == [
        ("The hall is warm.", "The hall is cold.")
    ]


def test_a_statement_is_pointed_at_once_with_the_surest_of_its_opposites() -> None:
    components = [Component("a", "The hall is full."), Component("b", "The hall is empty. The hall is closed.")]
    pairs = statement_pairs(components)
    reply = contradictions([(pair, 0.95 if "empty" in pair.second.text else 0.91) for pair in pairs])
    (conflict,) = pointed_out(reply, components, Findings().conflicts)
    assert [each.value for each in conflict.values] == ["The hall is full.", "The hall is empty."]


def test_no_more_is_pointed_at_than_anybody_reads() -> None:
    texts = [" ".join(f"The l{'o' * n}ng hall is {word}." for n in range(26)) for word in ("full", "empty")]
    components = [Component("a", texts[0]), Component("b", texts[1])]
    reply = contradictions([(pair, 0.95) for pair in statement_pairs(components)])
    assert len(pointed_out(reply, components, ())) == MOST_CONTRADICTIONS
