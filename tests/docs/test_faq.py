"""Each question has a short answer, and a page that says more."""

import re

from doc_pages import page_text

PARTS = re.split(r"^## ", page_text("faq"), flags=re.MULTILINE)[1:]
ANSWERS = {title: answer for title, _, answer in (part.partition("\n") for part in PARTS)}


def test_there_are_fifteen_to_twenty_questions() -> None:
    assert 15 <= len(ANSWERS) <= 20


def test_every_answer_is_shorter_than_eighty_words_and_links_to_a_page() -> None:
    long = [title for title, answer in ANSWERS.items() if len(answer.split()) >= 80]
    unlinked = [title for title, answer in ANSWERS.items() if "](" not in answer]
    assert (long, unlinked) == ([], [])
