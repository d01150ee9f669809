"""What a person is shown of a question: everything that would be sent, and nothing that hides."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast

import msgspec
from hypothesis import given
from msgspec.structs import replace

from remit import File, Question, view_of
from remit.protocol.envelope import Request
from remit.words.terminal import marked
from samples import a_request
from strategies import HIDDEN, told_requests


def question(**fields: Any) -> Question:
    request = fields.pop("request", None) or replace(a_request(), **fields)
    return Question(id="q", text="Shall it?", request=request, asked_ms=0, expires_ms=9)


def leaves(value: Any) -> Iterator[str]:
    """Yield every text and number in a value, names of fields included."""
    if isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            yield name
            yield from leaves(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from leaves(each)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield json.dumps(value)


@given(told_requests)
def test_every_byte_of_a_request_is_shown_or_named(request: Request) -> None:
    view = view_of(question(request=request))
    text = view.text()
    sent = msgspec.to_builtins(replace(request, files=()))
    for leaf in leaves({name: each for name, each in sent.items() if name not in ("version", "approved")}):
        written = msgspec.json.encode(leaf).decode()[1:-1]
        assert marked(leaf) in text or marked(written) in text
    for file, shown in zip(request.files, view.files, strict=True):
        content = file.data or b""
        assert (shown.name, shown.size, shown.digest) == (file.name, len(content), sha256(content).hexdigest())
        assert shown.digest in text
        if file.text is not None and shown.is_whole:
            assert shown.preview == marked(file.text)
        else:
            assert not shown.is_whole
    assert not any(char in text for char in HIDDEN)


def test_what_stands_in_a_file_is_seen_before_it_is_approved() -> None:
    order = File(name="order.txt", media_type="text/plain", data=b"Pay 5000 to EVE-2")
    view = view_of(question(objective="Do as agreed", files=(order,)))
    assert view.sentence.endswith("Do as agreed, and order.txt")
    assert "Pay 5000 to EVE-2" in view.text()


def test_hidden_and_look_alike_characters_are_written_out() -> None:
    assert marked("p\u0430ypal") == "p⟨\u0430 U+0430⟩ypal"
    assert marked("Pay \u202eEVE") == "Pay ⟨U+202E⟩EVE"
    assert marked("ok\U000e0050\U000e0061\U000e0079") == "ok⟨hidden: Pay⟩"
    assert marked("Привет, Ada") == "Привет, Ada"
    assert marked("Müller, naïve 東京") == "Müller, naïve 東京"


def test_the_sentence_says_who_wants_what_from_whom() -> None:
    call = question(origin="tax-claim", target="tax-specialist", objective="File the claim", input={"euros": 75.67})
    assert view_of(call).sentence == "tax-claim asks tax-specialist: File the claim, with euros = 75.67"
    tool = question(origin="clerk", target="pay", act="tool", input={"to": "eve", "amount": 500})
    assert view_of(tool).sentence == 'clerk wants to use pay with to = "eve", amount = 500'
