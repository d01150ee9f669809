"""A draft that is edited row by row: what is not changed stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit_relay.commands.shared.row_edits import WIDTH, Edited, Finished, NotUnderstood, RowEditor, edit, opened, shown

LETTER = "Dear expert,\n\nhow long does a token live?\nThanks"
PARAGRAPH = " ".join(f"Sentence number {number} is here." for number in range(1, 11))


def after(text: str, *typed: str) -> str:
    editor = opened("d", text)
    for line in typed:
        taken = edit(editor, line)
        assert isinstance(taken, Edited), taken
        editor = taken.editor
    return editor.text


@given(st.text())
def test_the_rows_hold_the_whole_text(text: str) -> None:
    assert opened("d", text).text == text


@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12), min_size=1))
def test_no_row_is_longer_than_can_be_typed_again(words: list[str]) -> None:
    assert all(len(row.text) <= WIDTH for row in opened("d", " ".join(words)).rows)


@given(st.text(min_size=1).filter(str.strip), st.data())
def test_a_row_that_is_replaced_leaves_all_others(text: str, data: st.DataObject) -> None:
    editor = opened("d", text)
    number = data.draw(st.integers(1, len(editor.rows)))
    taken = edit(editor, f"{number} new words")
    assert isinstance(taken, Edited)
    rows = taken.editor.rows
    assert rows[number - 1].text == "new words"
    assert (rows[: number - 1], rows[number:]) == (editor.rows[: number - 1], editor.rows[number:])


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["2 how long does it live?"], "Dear expert,\n\nhow long does it live?\nThanks"),
        (["2-3 Bye"], "Dear expert,\n\nBye"),
        (["d 1"], "how long does a token live?\nThanks"),
        (["d 3"], "Dear expert,\n\nhow long does a token live?"),
        (["d 1-3"], ""),
        (["i 1 Hello!"], f"Hello!\n{LETTER}"),
        (["i 4 Anna"], f"{LETTER}\nAnna"),
        (["3     indented"], "Dear expert,\n\nhow long does a token live?\n    indented"),
        (["3 two\nlines"], "Dear expert,\n\nhow long does a token live?\ntwo\nlines"),
        (["d 1-3", "i 1 anew"], "anew"),
        (["D 3", "1 Hi,"], "Hi,\n\nhow long does a token live?"),
        (["show"], LETTER),
    ],
)
def test_rows_are_replaced_deleted_and_inserted(typed: list[str], text: str) -> None:
    assert after(LETTER, *typed) == text


def test_a_paragraph_is_changed_in_its_middle() -> None:
    editor = opened("d", PARAGRAPH)
    assert len(editor.rows) > 3
    assert after(PARAGRAPH, "2 Other words.").count("is here.") == PARAGRAPH.count("is here.") - 2
    assert "\n" not in after(PARAGRAPH, "2 Other words.", "d 3", "i 2 And more.")


@pytest.mark.parametrize("typed", ["0 x", "4 x", "3-2 x", "2-4 x", "i 5 x", "d 9"])
def test_a_row_that_is_not_there_is_said(typed: str) -> None:
    taken = edit(opened("d", LETTER), typed)
    assert taken == NotUnderstood(("There are rows 1 to 3.",))


@pytest.mark.parametrize("typed", ["", "hello", "2", "d", "i 2", "d 2 x", "i 1-2 x", "send now", "²3 x"])
def test_what_is_no_edit_changes_nothing_and_is_answered(typed: str) -> None:
    taken = edit(opened("d", LETTER), typed)
    assert isinstance(taken, NotUnderstood)
    assert taken.lines


def test_it_is_sent_or_left_by_a_word() -> None:
    assert edit(opened("d", LETTER), "Send") == Finished(sends=True)
    assert edit(opened("d", LETTER), " cancel ") == Finished(sends=False)


def test_the_rows_are_shown_with_their_numbers_and_without_control_characters() -> None:
    assert shown(opened("d", "one\x1b[2J\n    two")) == ("  1  one", "  2      two")
    taken = edit(opened("d", LETTER), "1 Hi,")
    assert isinstance(taken, Edited)
    assert (taken.lines, taken.editor.changed) == (("  1  Hi,",), True)
    assert isinstance(taken.editor, RowEditor)
