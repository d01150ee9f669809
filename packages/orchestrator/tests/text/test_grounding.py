"""A model's summary is taken only if every name and figure in it stands in what it sums up."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_time import grows_in_proportion
from labelled_cases import cases
from remit.policy.redaction import token_for
from remit_orchestrator.text.grounding import unfounded

TOKEN, OTHER_TOKEN = (token_for(b"k" * 32, "EMAIL", f"{name}@example.org") for name in ("alice", "bob"))

SOURCE = f"""
user: Alice Smith asked Bob Jones (of well-known Acme-Works) to sort 1,000 receipts by Friday, 12 March 2025 at 9:40 am.
The budget is $1,200.50, five percent of 24,010. Use Postgres and src/remit/hub.py.
See ABC-123, "Project Falcon", my_func.
assistant: Growth was 50% in 3-5 days, 0.25 kg and -7 °C. 1.500 Stück für 2 Mio. Euro. The call is at 15:00.
One thing: {TOKEN}.
user: Dr. Lee owes 3,5 Milliarden; J. Doe pays 5k, J.R. Roe nothing.
Written on 3/4/2025, 01.02.24 and 24 December. It took 2 hours. **Carla** Diaz's *Blue* Book.
"""


@pytest.mark.parametrize(
    "text",
    [*cases("grounding", "what_the_source_says_may_be_said_otherwise"), f"Write to {TOKEN}. One of them, one day."],
)
def test_what_the_source_says_may_be_said_otherwise(text: str) -> None:
    assert unfounded(text, SOURCE) == ()


@pytest.mark.parametrize(
    "text",
    [
        "- Tidy up the office.\n* Receipts were sorted\n1. Prepare the rest",
        "## Summary\nKey Decisions:\n- Use Postgres\nOpen Questions: None.",
        "Yesterday it rained. Everything is fine. However, nobody knows! Why? Because.",
        "Schedule Alice. Discussed Postgres. Meanwhile Bob agreed. Then I think I'm done; I’ll go.",
        "The User asked the Assistant. User wants it. It's fine. That's all.",
        "Goal: Tidy the receipts. Next: Remember Bob.",
    ],
)
def test_ordinary_words_that_begin_a_sentence_or_a_point_are_no_names(text: str) -> None:
    assert unfounded(text, SOURCE) == ()


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        *cases("grounding", "what_the_source_does_not_say_is_named"),
        (OTHER_TOKEN, [OTHER_TOKEN]),
        (f"https://x.org/{'a' * 250}", [f"https://x.org/{'a' * 250}"]),
    ],
)
def test_what_the_source_does_not_say_is_named(text: str, invented: list[str]) -> None:
    assert list(unfounded(text, SOURCE)) == invented


@pytest.mark.parametrize(
    ("text", "source", "invented"),
    [
        ("thirty receipts", "There were 20 receipts.", ("thirty receipts",)),
        ("twenty receipts", "There were 20 receipts.", ()),
        ("20 receipts", "There were twenty receipts.", ()),
        ("25 receipts", "There were twenty-five receipts.", ()),
        ("20 receipts", "There were twenty-five receipts.", ("20 receipts",)),
        ("two million", "There were 2 of them.", ("two million",)),
        ("250 people", "There were two hundred and fifty people.", ()),
        ("230 Personen", "Es waren zweihundertdreißig Personen.", ()),
        ("5 trillion", "It cost 5 million.", ("5 trillion",)),
        ("5 miles", "It is 5 kilometres away.", ("5 miles",)),
        ("5 km", "It is 5 kilometres away.", ()),
        ("at noon", "The call is at 12:00.", ()),
        ("at 12 pm", "The call is at noon.", ()),
        ("at midnight", "The call is at 12 pm.", ("midnight",)),
        ("the 1990s", "It began in 1990.", ()),
        ("4. März 2026", "It is due on March 4, 2026.", ()),
        ("4 days", "Tomas has 9 days left, Ingrid has 4.", ()),
        ("96 euros", "It rises from 96 to 104 euros.", ()),
        ("4 days", "Ingrid has 4 children and 9 days and 3 kg.", ("4 days",)),
        ("8400 Euro für das Dach und die Tür", "Der Schaden am Dach und an der Tür ist 8.400 Euro.", ()),
    ],
)
def test_figures_are_the_same_in_words_and_in_digits(text: str, source: str, invented: tuple[str, ...]) -> None:
    assert unfounded(text, source) == invented


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        ("Für den Keller ist keine Versicherung da. Der Dachschaden ist groß.", ()),
        ("Beim Dach hat er es geprüft, und die Rechnung ist da.", ()),
        ("Der Keller ist nass, und das hat Mallory gesagt.", ("Mallory",)),
        ("Es ist im Keller von Herrn Mallory und der Frau Eve Smith.", ("Mallory", "Eve Smith")),
    ],
)
def test_german_nouns_are_no_names(text: str, invented: tuple[str, ...]) -> None:
    assert unfounded(text, "Der Keller ist nicht versichert. Das Dach ist neu und es hat einen Schaden.") == invented


def test_each_is_named_once() -> None:
    assert unfounded("It cost $7. Really, $7.", SOURCE) == ("$7",)


# Words and figures without a space between them, and the signs that part them.
PIECES = cases("grounding", "pieces")


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
@example("0C Paris")
@example("ParisABC-1")
@example("0À'0")
@example(".0May C")
def test_a_text_is_always_founded_on_itself(text: str) -> None:
    assert unfounded(text, text) == ()


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_number_is_founded_on_itself_alone(number: int, other: int) -> None:
    assert (unfounded(f"It is {number:,} big", f"so {other} it was") == ()) == (number == other)


@pytest.mark.unwatched
@pytest.mark.parametrize(
    "sign", ["aA", "a_", "Alice ", "1", "1 ", "1,", "A. ", "a'", "'s ", '"', "-", ": ", "two ", "May "]
)
def test_a_long_source_costs_in_proportion_to_its_length(sign: str) -> None:
    def read(length: int) -> None:
        unfounded((sign * 1_000)[:1_000], (sign * length)[:length])

    assert grows_in_proportion(read, 16_000, 2_000)
