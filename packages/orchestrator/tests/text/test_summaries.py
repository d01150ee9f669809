"""A conversation is summed up without a model: the same however it is cut, and within bounds whatever is said."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_time import grows_in_proportion
from labelled_cases import cases
from remit.policy.redaction import token_for
from remit.protocol.envelope import Message, Note
from remit_orchestrator.text.summaries import Summary, answer_note, extend, notes_of, written

TOKEN = token_for(b"k" * 32, "EMAIL", "alice@example.org")

TALK = (
    "Sort my receipts from March 2025 into 3 categories. The budget is $500, and it must not touch /etc/hosts.",
    "I'll go with 3 categories. I decided to skip `foo_bar`. Which currency do you want?\n- EUR\n- USD",
    "Euros",
    f"Fine. Should I also write to {TOKEN}?",
)


def user(text: str, seq: int = 0) -> Message:
    return Message(role="user", text=text, seq=seq)


def agent(text: str, seq: int = 0) -> Message:
    return Message(role="assistant", text=text, seq=seq)


def talk(texts: Sequence[str] = TALK) -> list[Message]:
    return [(agent if place % 2 else user)(text, place + 1) for place, text in enumerate(texts)]


def summed(*messages: Message) -> Summary:
    return extend(Summary(), messages)


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

words = st.sampled_from(
    [*TALK, "Use a.py.", "We decided on b_c.", "It must be 5 days.", "Why?", "Which one?", "yes", "Agreed. ", "", "\n"]
)
roles: st.SearchStrategy[Literal["user", "assistant"]] = st.sampled_from(["user", "assistant"])
messages = st.lists(
    st.builds(Message, role=roles, text=words | st.text(max_size=60), seq=st.integers(0, 20)), max_size=6
)


@given(messages, messages, messages)
def test_a_summary_is_the_same_however_the_messages_are_cut_into_pieces(
    before: list[Message], some: list[Message], more: list[Message]
) -> None:
    start = extend(Summary(), before)
    assert extend(extend(start, some), more) == extend(start, some + more)


@given(messages)
def test_what_a_summary_covers_already_changes_nothing(conversation: list[Message]) -> None:
    numbered = [msgspec.structs.replace(message, seq=place) for place, message in enumerate(conversation, 1)]
    summary = extend(Summary(), numbered)
    assert extend(summary, numbered) == summary
    assert summary.seq == len(conversation)


@given(messages)
def test_a_summary_stays_small_and_can_be_kept(conversation: list[Message]) -> None:
    summary = extend(Summary(), conversation * 5)
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary
    sizes = [len(items) for items in msgspec.structs.astuple(summary)[:-1]]
    assert all(size <= most for size, most in zip(sizes, (8, 8, 8, 16, 16, 6), strict=True))
    assert all(len(line) <= 170 for line in written(summary).splitlines() if line.startswith("- "))


def test_a_conversation_comes_down_to_what_matters() -> None:
    """O2: the callee can be given a summary of what was said."""
    summary = summed(*talk())
    assert summary == Summary(
        asks=("Sort my receipts from March 2025 into 3 categories.",),
        decisions=(
            "I'll go with 3 categories.",
            "I decided to skip `foo_bar`.",
            "Which currency do you want? → Euros",
        ),
        constraints=("The budget is $500, and it must not touch /etc/hosts.",),
        identifiers=("/etc/hosts", "foo_bar", TOKEN),
        numbers=("March 2025", "$500", "3 categories"),
        questions=(f"Should I also write to {TOKEN}?",),
        seq=4,
    )
    assert written(summary) == "\n".join(
        (
            "The user asked:",
            "- Sort my receipts from March 2025 into 3 categories.",
            "Decided:",
            "- I'll go with 3 categories.",
            "- I decided to skip `foo_bar`.",
            "- Which currency do you want? → Euros",
            "Constraints:",
            "- The budget is $500, and it must not touch /etc/hosts.",
            "Not answered yet:",
            f"- Should I also write to {TOKEN}?",
            f"Names: /etc/hosts, foo_bar, {TOKEN}",
            "Figures: March 2025, $500, 3 categories",
        )
    )


# ── what a sentence is taken for ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    cases("summaries", "what_the_user_wants_is_an_ask"),
)
def test_what_the_user_wants_is_an_ask(text: str) -> None:
    assert summed(user(text)).asks == (text,)


@pytest.mark.parametrize(
    "text",
    cases("summaries", "what_the_user_settles_is_a_decision"),
)
def test_what_the_user_settles_is_a_decision(text: str) -> None:
    assert notes_of(text) == (Note("decision", text),)
    assert summed(user(text)).decisions == (text,)


@pytest.mark.parametrize(
    "text",
    cases("summaries", "what_the_user_demands_is_a_constraint"),
)
def test_what_the_user_demands_is_a_constraint(text: str) -> None:
    assert notes_of(text) == (Note("constraint", text),)
    assert summed(user(text)).constraints == (text,)


@pytest.mark.parametrize(
    "text",
    cases("summaries", "what_is_open_supposed_or_quoted_is_no_note"),
)
def test_what_is_open_supposed_or_quoted_is_no_note(text: str) -> None:
    assert notes_of(text) == ()


def test_a_sentence_that_asks_and_demands_is_both_and_is_written_once() -> None:
    text = "Write a report without names."
    summary = summed(user(text))
    assert (summary.asks, summary.constraints) == ((text,), (text,))
    assert written(summary) == f"The user asked:\n- {text}"


def test_what_an_agent_recommends_is_no_decision_of_anybody() -> None:
    """K14: only what was decided is known."""
    assert summed(agent("Use Postgres. You must choose. I went with option A. If we decided that, fine.")) == Summary(
        decisions=("I went with option A.",)
    )


# ── questions and answers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_question_is_open_until_the_user_says_something() -> None:
    summary = summed(agent("Which one?"), agent("And when?"))
    assert summary.questions == ("Which one?", "And when?")
    assert (
        extend(summary, [user("Thanks for asking, but look at the long list that I sent you before " * 3)]).questions
        == ()
    )


def test_a_short_reply_is_kept_with_the_question_that_it_answers() -> None:
    """K14: nothing is asked twice."""
    assert summed(agent("May I send it?"), user("Yes please")).decisions == ("May I send it? → Yes please",)
    assert summed(agent("Which one?"), user("Use the second. It must be fast.")) == Summary(
        decisions=("Which one? → Use the second. It must be fast.",), constraints=("It must be fast.",)
    )


def test_who_answers_with_a_question_has_not_answered() -> None:
    assert summed(agent("Which one?"), user("Which are there?")) == Summary(asks=("Which are there?",))


def test_silence_answers_nothing() -> None:
    assert summed(agent("Which one?"), user(" \n ")) == Summary()


@pytest.mark.parametrize(
    "question",
    [
        "Done. Which currency?",
        "Which currency?\n\n- EUR\n- USD\n",
        "Which currency?\n1. EUR\na) USD",
        "**Which currency?**",
    ],
)
def test_a_reply_settles_the_question_before_it(question: str) -> None:
    """K14: nothing is asked twice."""
    note = answer_note(question, " Euros,\n please ")
    assert note is not None
    assert note.kind == "answer"
    assert note.text.replace("*", "") == "Which currency? → Euros, please"


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("It is done.", "Thanks"),
        ("Which? I chose EUR.", "Fine"),
        ("Which currency?", " "),
        ("", "Yes"),
        ("- a\n- b", "a"),
    ],
)
def test_without_a_question_or_a_reply_nothing_is_settled(question: str, reply: str) -> None:
    assert answer_note(question, reply) is None


@given(st.text(min_size=1, max_size=1_000), st.text(min_size=1, max_size=1_000))
def test_a_note_is_never_longer_than_can_be_kept(question: str, reply: str) -> None:
    notes = (answer_note(f"{question}?", reply), *notes_of(f"we decided {question} must {reply}"))
    assert all(len(note.text) <= 300 for note in notes if note is not None)


def test_a_document_of_decisions_is_not_kept_whole() -> None:
    assert len(notes_of("".join(f"We decided on number {number}.\n" for number in range(100)))) == 16


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_are_kept_and_what_is_said_again_is_new() -> None:
    conversation = [user(f"Sort pile number {number}.") for number in (*range(10), 4)]
    assert summed(*conversation).asks == tuple(f"Sort pile number {number}." for number in (2, 3, 5, 6, 7, 8, 9, 4))


def test_of_a_long_sentence_the_part_is_kept_that_says_what_it_is() -> None:
    text = "and so on " * 40 + "it must be blue " + "and so on " * 40
    assert "it must be blue" in summed(user(text)).constraints[0]
    assert "it must be blue" in notes_of(text)[0].text


def test_of_a_long_message_the_beginning_and_the_end_are_heard() -> None:
    text = "Sort these. " + "so it is " * 3_000 + "It must never end. " + "so it is " * 3_000 + "\nUse only ink."
    summary = summed(user(text))
    assert summary.asks == ("Sort these.",)
    assert summary.decisions == ("Use only ink.",)
    assert summary.constraints == ()


def test_a_summary_is_written_into_the_room_that_there_is() -> None:
    """O2: fitted to the token budget."""
    summary = summed(*(user(f"Sort pile number {number} of a_{number}.") for number in range(8)))
    whole = written(summary)
    assert written(summary, room=len(whole)) == whole
    assert written(summary, room=170) == "\n".join(
        (
            "The user asked:",
            *(f"- Sort pile number {number} of a_{number}." for number in (4, 5, 6, 7)),
            "Names: a_4, a_5, a_6, a_7",
        )
    )
    assert written(summary, room=10) == ""
    assert written(Summary(), room=0) == ""


def test_no_item_can_pass_for_a_heading() -> None:
    assert written(summed(user("Sort this\u2028Decided:\u2028- all of it"))).count("\n") == 1


@pytest.mark.unwatched
@pytest.mark.parametrize(
    "sign", ["by the end of ", "must", "not ", "we have ", "i will ", "please ", "no ", "? ", "a) ", "use "]
)
def test_hostile_text_costs_in_proportion_to_its_length(sign: str) -> None:
    def read(length: int) -> None:
        text = (sign * length)[:length]
        extend(Summary(), [user(text), agent(text)])
        answer_note(text, text)

    assert grows_in_proportion(read, 8_000, 1_000)
