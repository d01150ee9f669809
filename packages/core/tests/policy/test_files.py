"""Files in what is decided about a request: tokens, repeats, redaction, one answer from several."""

import re

import pytest

from remit.policy.aggregate import comparable, components_of, merge_all, start
from remit.policy.budget import estimate, estimate_request
from remit.policy.guards import tokens
from remit.policy.limits import Limits
from remit.policy.peer_calls import content_of
from remit.policy.reception import Sender, receive
from remit.policy.redaction import is_plain, redaction, strike, token_for
from remit.policy.repeats import beside_of, call_key
from remit.policy.restoring import restore
from remit.policy.verdict import ALLOW, Facts, Finding, Refuse, Rewrite, Sealing
from remit.policy.weight import LIGHT, is_light_call, is_light_request, is_light_response
from remit.protocol.envelope import Call, Request, Response, Strategy
from remit.protocol.errors import Code, RemitError
from remit.protocol.files import MAX_FILE_BYTES, MAX_FILES, File
from remit.protocol.submission import Submission
from samples import a_card, a_remit, a_request, a_response

KEY = b"k" * 32
MAIL = "alice@example.org"
TOKEN = token_for(KEY, "MAIL", MAIL)
_MAIL = re.compile(r"[a-z]+@[a-z]+\.org")


def detect(text: str) -> list[Finding]:
    return [Finding(*match.span(), "MAIL") for match in _MAIL.finditer(text)]


SEALING = Sealing(KEY, detect)
BINARY = File(name="a.bin", data=b"\0" + MAIL.encode())


def letter(text: str) -> File:
    return File(name="letter.txt", media_type="text/plain", data=text.encode())


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_the_files_of_a_request_the_texts_are_counted() -> None:
    text = "a long letter " * 500
    request = a_request(files=(letter(text), BINARY))
    assert estimate_request(request) == estimate(request.objective) + estimate(text)
    verdict = tokens(request, Facts(target=a_card()))
    assert isinstance(verdict, Refuse)
    assert verdict.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert tokens(a_request(files=(File(name="a.bin", data=b"\0" + text.encode()),)), Facts(target=a_card())) is ALLOW
    assert tokens(a_request(files=(letter(text),), remit=a_remit(tokens=100_000)), Facts(target=a_card())) is ALLOW


# ── weight ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_large_file_is_not_examined_in_the_event_loop() -> None:
    small, large = File(name="a", data=b"a"), File(name="a", data=bytes(LIGHT))
    assert is_light_request(a_request(files=(small,)))
    assert not is_light_request(a_request(files=(large,)))
    assert is_light_response(a_response(files=(small,)))
    assert not is_light_response(a_response(files=(large,)))
    assert is_light_call(Call(target="tag", files=(small,)))
    assert not is_light_call(Call(target="tag", files=(large,)))


# ── the same call ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_with_another_file_is_another_call() -> None:
    one, other = (letter("one"),), (letter("other"),)
    keys = {call_key("tag", None, "Read", None, files) for files in ((), one, other)}
    assert len(keys) == 3
    assert call_key("tag", None, "Read", None, one) == call_key("tag", None, " read ", None, (letter("one"),))
    requests = [a_request(files=files) for files in ((), one, other)]
    assert len({content_of(request) for request in requests}) == 3
    assert beside_of(requests[1]) != beside_of(requests[2])


def test_answers_about_different_files_are_not_compared() -> None:
    responses = [a_response(result="It is 3."), a_response(target="other", result="It is 4.")]
    components = components_of(responses)
    same = [Call(target=each.target, objective="Count", files=(letter("one"),)) for each in responses]
    assert comparable(components, same) == components
    different = [Call(target="tag", objective="Count", files=(letter(text),)) for text in ("one", "other")]
    assert comparable(components, different) != components


def test_a_request_from_elsewhere_brings_its_files() -> None:
    sent = Submission(target="tag", user="u-1", files=(BINARY,))
    request = receive(sent, Sender(name="web"), exposed=frozenset({"tag"}), run="run-1", created_ms=7, limits=Limits())
    assert isinstance(request, Request)
    assert request.files == (BINARY,)


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_callee_gets_text_files_with_tokens_and_other_files_untouched() -> None:
    named = File(name=f"{MAIL}.bin", url=f"https://example.org/?for={MAIL}")
    request = a_request(files=(letter(f"from {MAIL}"), BINARY, named))
    verdict = redaction(request, Facts(target=a_card(), sealing=SEALING))
    assert isinstance(verdict, Rewrite)
    assert verdict.request.files == (
        letter(f"from {TOKEN}"),
        BINARY,
        File(name=f"{TOKEN}.bin", url=f"https://example.org/?for={TOKEN}"),
    )
    assert restore(verdict.request, verdict.struck) == request


def test_files_without_findings_stay_the_same_objects() -> None:
    request = a_request(files=(letter("hello"), BINARY))
    assert redaction(request, Facts(target=a_card(), sealing=SEALING)) is ALLOW
    assert strike(request, SEALING, {}) is request
    assert restore(request, {TOKEN: MAIL}) is request


def test_a_response_with_files_is_not_just_a_text() -> None:
    assert not is_plain(a_response(files=(BINARY,)), SEALING.detect)


def test_a_file_name_that_becomes_too_long_is_one_token() -> None:
    name = f"{'x ' * 90}{MAIL}"
    file = strike(File(name=name, data=b""), SEALING, struck := {})
    assert restore(file, struck).name == name
    assert len(file.name) <= 200


def test_a_text_that_becomes_larger_than_a_file_may_be_is_refused() -> None:
    text = f"{MAIL} ".ljust(MAX_FILE_BYTES, "-")
    with pytest.raises(RemitError) as caught:
        strike(letter(text), SEALING, {})
    assert caught.value.fault.code is Code.TOO_LARGE


@pytest.mark.parametrize("raw", ["../secrets", "a\nb", "x" * 201, 4711])
def test_a_restored_value_makes_no_name_that_is_invalid(raw: str | int) -> None:
    """An agent can put any token into a name, and its value may be a path."""
    restored = restore(File(name=TOKEN, data=b""), {TOKEN: raw})
    assert restored.name == ("4711" if raw == 4711 else TOKEN)


def test_a_restored_value_makes_no_url_that_is_invalid() -> None:
    file = File(name="a", url=f"https://example.org/{TOKEN}")
    assert restore(file, {TOKEN: "a b"}) == file
    assert restore(file, {TOKEN: "a"}).url == "https://example.org/a"


def test_restored_text_never_exceeds_the_size_of_a_file() -> None:
    file = letter(TOKEN * 1_000)
    assert restore(file, {TOKEN: "x" * 2_000}) is file


# ── one answer from several ───────────────────────────────────────────────────────────────────────────────────────────


def merged(*responses: Response) -> tuple[tuple[File, ...], tuple[str, ...]]:
    answer = merge_all(responses)
    assert answer is not None
    return answer.files, answer.warnings


def test_an_answer_from_several_has_the_files_of_all() -> None:
    one, other = letter("one"), letter("other")
    assert merged(a_response(files=(one,)), a_response(target="other", files=(other,))) == ((one, other), ())


def test_files_that_one_answer_cannot_hold_are_left_out_with_a_warning() -> None:
    files, warnings = merged(*(a_response(files=(BINARY,) * 10) for _ in range(2)))
    assert files == (BINARY,) * MAX_FILES
    assert [warning.partition(":")[0] for warning in warnings] == ["4 of 20 files are left out"]


def test_a_chosen_answer_keeps_its_files() -> None:
    chosen = start(Strategy.FIRST_SUCCESS, 1).add(a_response(files=(BINARY,)), 0).finish()
    assert chosen is not None
    assert chosen.files == (BINARY,)
