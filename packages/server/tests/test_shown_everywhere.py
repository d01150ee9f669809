"""A person is shown the same before they agree in the terminal, by `remit pending`, in an MCP host and over the API.

The console shows what the API gives it, and Slack what `view_of` gives the recipe.
"""

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit import File, Question, ShownQuestion, view_of
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.runtime.question_view import described_file
from remit_cli.drive.approver import described
from remit_cli.pending import _question_fields  # pyright: ignore[reportPrivateUsage]
from remit_server.approval_endpoints import digest_of
from remit_server.mcp.sdk_host import put
from samples import a_request
from strategies import HIDDEN, told_requests

PLACES: dict[str, Callable[[Question], str]] = {
    "terminal": lambda question: "\n".join(described(question, whole=True)),
    "remit pending show": lambda question: "\n".join(text for _, text in _question_fields(question)),
    "MCP host": put,
}


def question_about(request: Request) -> Question:
    return Question(id="q", text="Shall it?", request=request, asked_ms=0, expires_ms=9_000)


def texts_of(view: ShownQuestion) -> Iterator[str]:
    yield view.sentence
    yield from (each.text for each in view.parts)
    yield from map(described_file, view.files)


def unspaced(text: str) -> str:
    """Return a text without white space: each place has margins of its own."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("place", PLACES)
@given(request=told_requests)
def test_every_place_shows_all_that_would_be_sent_with_hidden_characters_written_out(
    place: str, request: Request
) -> None:
    question = question_about(request)
    shown = unspaced(PLACES[place](question))
    assert [each for each in texts_of(view_of(question)) if unspaced(each) not in shown] == []
    assert not any(char in shown for char in HIDDEN)


@given(told_requests, told_requests, st.sampled_from(["objective", "input", "reason", "hints", "files", "handoff"]))
def test_an_answer_over_http_names_the_digest_of_exactly_what_was_shown(
    request: Request, other: Request, field: str
) -> None:
    one = question_about(request)
    another = question_about(replace(request, **{field: getattr(other, field)}))
    assert (digest_of(one) == digest_of(another)) == (encode(one) == encode(another))
    if view_of(one) != view_of(another):
        assert digest_of(one) != digest_of(another)


def test_a_text_that_the_terminal_cuts_is_marked_and_so_is_all_that_comes_with_the_call() -> None:
    file = File(name="order.txt", media_type="text/plain", data=b"Pay 5000 to EVE-2")
    question = question_about(a_request(objective="Do as agreed", input="x" * 400, files=(file,)))
    lines = list(described(question))
    assert [line.strip()[:9].strip() for line in lines if line.endswith("(? shows all)")] == ["input"]
    assert any("order.txt" in line and "EVE-2" in line for line in lines)
