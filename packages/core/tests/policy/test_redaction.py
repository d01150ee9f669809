"""Personal data gives way to tokens and comes back for whoever held it: laws that hold for any content."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.redaction import TOKEN, everything, is_plain, redaction, settled, strike, token_for
from remit.policy.restoring import of_kinds, restore, reveal
from remit.policy.verdict import ALLOW, Allow, Detector, Facts, Finding, Rewrite, Sealing
from remit.protocol.card import Capability
from remit.protocol.codec import checked, encode
from remit.protocol.conditions import ValueBounds
from remit.protocol.envelope import Artifact, ContextFilter, Handoff, Handover, Request, Response, Source, ToolFinding
from remit.protocol.errors import Code, Problem, fault
from remit.protocol.records import Approval, Notice, Progress, Refusal, ToolUse
from samples import a_card, a_remit, a_request, a_response
from strategies import json_values, requests, responses

KEY = b"k" * 32
OTHER_KEY = b"o" * 32

_SECRET = re.compile(r"(?P<MAIL>[a-z]+@[a-z]+\.org)|(?P<CARD>(?<!\d)4111\d{12}(?!\d))|(?<=pin: )(?P<PIN>\d{4,9})(?!\d)")


def detect(text: str) -> list[Finding]:
    """Find e-mail addresses, numbers of sixteen digits that begin with 4111, and a few digits after `pin: `."""
    return [Finding(*match.span(), match.lastgroup or "") for match in _SECRET.finditer(text)]


SEALING = Sealing(KEY, detect)
ALICE, BOB, CARD = "alice@example.org", "bob@example.org", "4111111111111111"
NUMBER = int(CARD)


def token(kind: str, raw: str | int, key: bytes = KEY) -> str:
    return token_for(key, kind, raw)


def struck(value: Any, sealing: Sealing = SEALING) -> tuple[Any, dict[str, str | int]]:
    originals: dict[str, str | int] = {}
    return strike(value, sealing, originals), originals


def detecting(*findings: Finding) -> Sealing:
    """Return the sealing whose detector finds the same places in every text."""
    return found_by(lambda text: findings)


def found_by(detector: Detector) -> Sealing:
    return Sealing(KEY, detector)


# Texts in which something is planted, and JSON that holds it anywhere: as values, in keys, as numbers, under a name.
secrets = st.sampled_from([f" {ALICE}", f" {BOB}", f" {CARD}"])
fillers = st.text(st.characters(codec="utf-8", exclude_characters="[]"), max_size=8).map(lambda text: f" {text} ")
planted_texts = st.lists(fillers | secrets, max_size=5).map("".join)
planted: st.SearchStrategy[Any] = st.recursive(
    planted_texts | st.just(NUMBER) | st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(planted_texts | st.just("pin"), inner, max_size=3),
    max_leaves=8,
)


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(planted)
def test_what_was_struck_comes_back_whole(value: Any) -> None:
    """X12: redacted on the way, restored for the caller."""
    clean, originals = struck(value)
    assert restore(clean, originals) == value


@given(planted)
def test_nothing_that_was_struck_is_left(value: Any) -> None:
    written = encode(struck(value)[0]).decode()
    assert not any(secret in written for secret in (ALICE, BOB, CARD))


@given(planted)
def test_striking_twice_strikes_no_more_than_once(value: Any) -> None:
    clean, _ = struck(value)
    again, originals = struck(clean)
    assert again is clean
    assert originals == {}


@given(planted)
def test_the_same_is_struck_to_the_same_under_one_key_and_to_another_under_another(value: Any) -> None:
    """X12: deterministic within a run, and of no use in any other."""
    clean, originals = struck(value)
    assert struck(value) == (clean, originals)
    assert not originals.keys() & struck(value, Sealing(OTHER_KEY, detect))[1].keys()


@given(planted)
def test_who_holds_nothing_gets_nothing_back(value: Any) -> None:
    clean, _ = struck(value)
    assert restore(clean, {}) is clean
    assert restore(clean, struck(value, Sealing(OTHER_KEY, detect))[1]) is clean


@given(json_values)
def test_what_holds_nothing_is_the_same_object(value: Any) -> None:
    assert struck(value)[0] is value
    assert restore(value, {"[MAIL:bcdfghjklmnp]": ALICE}) is value


@given(requests | responses)
def test_an_envelope_without_secrets_is_the_same_object(envelope: Request | Response) -> None:
    assert struck(envelope)[0] is envelope
    assert restore(envelope, {"[MAIL:bcdfghjklmnp]": ALICE}) is envelope


@given(st.data(), planted)
def test_whatever_an_envelope_says_is_struck_and_comes_back(data: st.DataObject, value: Any) -> None:
    """X12: every field in which something is said, whichever it is."""
    text = data.draw(planted_texts)
    handoff = Handoff(original_request=text, findings=(text,), data={"x": value}, prior_outputs={text: value})
    request = a_request(objective=text, input=value, handoff=handoff, hints=(text,), reason=text)
    response = a_response(
        result=value,
        summary=text,
        artifacts=(Artifact(type="json", value=value, label=text),),
        new_facts=(text,),
        warnings=(text,),
        finished=(text,),
        unfinished=(text,),
        metadata={text: value},
    )
    for envelope in (request, response, Refusal(request=request, response=response)):
        clean, originals = struck(envelope)
        assert restore(clean, originals) == envelope
        assert not any(secret in encode(clean).decode() for secret in (ALICE, BOB, CARD))


@given(st.text(), st.sampled_from(["A", "MAIL", "API_KEY", "X" * 32]), st.binary(min_size=1, max_size=64))
def test_every_token_is_recognized_as_one(raw: str, kind: str, key: bytes) -> None:
    match = TOKEN.fullmatch(token(kind, raw, key))
    assert match is not None
    assert match[1] == kind


def test_text_and_number_of_the_same_digits_have_tokens_of_their_own() -> None:
    """Else a number could come back as a text, or a text as a number."""
    assert token("CARD", CARD) != token("CARD", NUMBER)
    assert token("CARD", CARD) != token("OTHER", CARD)


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_keeps_everything_but_what_was_found() -> None:
    clean, originals = struck(f"write to {ALICE}, or {BOB}, or {ALICE}!")
    assert clean == f"write to {token('MAIL', ALICE)}, or {token('MAIL', BOB)}, or {token('MAIL', ALICE)}!"
    assert originals == {token("MAIL", ALICE): ALICE, token("MAIL", BOB): BOB}


def test_half_a_character_is_struck_and_comes_back_like_any_other() -> None:
    text = f"\ud800{ALICE}\udfff"
    clean, originals = struck(text)
    assert (ALICE in clean, restore(clean, originals)) == (False, text)
    assert TOKEN.fullmatch(token("X", "\ud800"))


@pytest.mark.parametrize(
    "findings",
    [
        pytest.param([Finding(4, 4, "X")], id="empty"),
        pytest.param([Finding(6, 2, "X")], id="backwards"),
        pytest.param([Finding(-9, -2, "X")], id="before"),
        pytest.param([Finding(100, 200, "X")], id="behind"),
    ],
)
def test_a_finding_of_nothing_strikes_nothing(findings: list[Finding]) -> None:
    text = "0123456789"
    assert struck(text, detecting(*findings)) == (text, {})


@pytest.mark.parametrize(
    ("findings", "left"),
    [
        pytest.param([Finding(-3, 4, "X")], "456789", id="begins before the text"),
        pytest.param([Finding(7, 99, "X")], "0123456", id="ends behind the text"),
        pytest.param([Finding(0, 4, "X"), Finding(2, 6, "Y")], "6789", id="overlap"),
        pytest.param([Finding(0, 8, "X"), Finding(2, 4, "Y")], "89", id="one within another"),
        pytest.param([Finding(6, 8, "X"), Finding(0, 4, "Y")], "4589", id="out of order"),
        pytest.param([Finding(2, 4, "X"), Finding(2, 8, "Y")], "0189", id="same start"),
        pytest.param([Finding(2, 4, "X"), Finding(2, 4, "X")], "01456789", id="twice"),
    ],
)
def test_everything_that_any_finding_names_is_struck(findings: list[Finding], left: str) -> None:
    """X12: a detector of the user's own may find things twice, crosswise or in any order; none of it passes."""
    text = "0123456789"
    clean, originals = struck(text, detecting(*findings))
    assert TOKEN.sub("", clean) == left
    assert restore(clean, originals) == text


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), max_size=6))
def test_whatever_a_detector_finds_comes_back_whole(text: str, places: list[tuple[int, int]]) -> None:
    sealing = detecting(*(Finding(start, end, "X") for start, end in places))
    clean, originals = struck(text, sealing)
    gone = {at for start, end in places for at in range(max(start, 0), min(end, len(text)))}
    if not TOKEN.search(text):
        assert TOKEN.sub("", clean) == "".join(char for at, char in enumerate(text) if at not in gone)
    assert restore(clean, originals) == text


@pytest.mark.parametrize("kind", ["mail", "e-mail", "E MAIL", "9LIVES", "", "X" * 40, "[X]", "ÄRZTE", "_X", "a:b"])
def test_a_kind_that_cannot_be_in_a_token_is_written_so_that_it_can(kind: str) -> None:
    """X12: else the token would be none, and never come back; a number would even stay as it is."""
    sealing = found_by(lambda text: [Finding(0, len(text), kind)] if text else [])
    for value in ("secret", NUMBER):
        clean, originals = struck(value, sealing)
        assert TOKEN.fullmatch(clean)
        assert restore(clean, originals) == value
    clean, originals = struck("secret", sealing)
    assert restore(f"it is {clean}!", originals) == "it is secret!"


def test_a_detector_that_does_not_know_tokens_leaves_them_whole() -> None:
    """X12: what was struck once comes back in one step, however many hops it went through."""
    words = found_by(lambda text: [Finding(*each.span(), "WORD") for each in re.finditer(r"[A-Za-z]{4,}", text)])
    clean, originals = struck("hello big wide world", words)
    again, more = struck(f"{clean} again", words)
    assert again.startswith(clean)
    assert restore(again, originals | more) == "hello big wide world again"


def test_what_only_looks_like_a_token_hides_no_number() -> None:
    """X12: a look-alike with a number in the place of its kind is a text like any other."""
    digits = found_by(lambda text: [Finding(*each.span(), "CARD") for each in re.finditer(r"\d{16}", text)])
    clean, _ = struck(f"[A{CARD}:bcdfghjklmnp]", digits)
    assert CARD not in clean


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_goes_whole_and_comes_back_as_a_number() -> None:
    clean, originals = struck({"card": NUMBER, "sum": 12, "at": [NUMBER, True, None, 1.5]})
    mark = token("CARD", NUMBER)
    assert clean == {"card": mark, "sum": 12, "at": [mark, True, None, 1.5]}
    assert originals == {mark: NUMBER}
    assert restore(clean, originals) == {"card": NUMBER, "sum": 12, "at": [NUMBER, True, None, 1.5]}


def test_a_number_within_a_text_comes_back_as_text() -> None:
    assert restore(f"card {token('CARD', NUMBER)}.", {token("CARD", NUMBER): NUMBER}) == f"card {CARD}."
    assert restore({token("CARD", NUMBER): 1}, {token("CARD", NUMBER): NUMBER}) == {CARD: 1}


def test_a_number_that_is_no_secret_is_the_same_object() -> None:
    value = [1_700_000_000_000, -1_700_000_000_000, 1.5e15, 0]
    assert struck(value)[0] is value


def test_a_number_of_which_part_is_a_secret_goes_whole() -> None:
    """X12: nothing that was found passes; part of a number is no number."""
    sealing = found_by(lambda text: [Finding(0, 6, "PREFIX")] if len(text) > 12 else [])
    clean, originals = struck(NUMBER, sealing)
    assert clean == token("PREFIX", NUMBER)
    assert restore(clean, originals) == NUMBER


@pytest.mark.parametrize("value", [1_234_567, -NUMBER, float(NUMBER)], ids=["named", "negative", "float"])
def test_a_number_in_another_form_is_found_too(value: float) -> None:
    """X12: a short one under a telling name, one with a sign, one that a table has made a fraction of."""
    clean, originals = struck({"pin": value, "n": 1})
    assert TOKEN.fullmatch(str(clean["pin"]))
    assert restore(clean, originals) == {"pin": value, "n": 1}


def test_a_short_number_is_what_its_name_says_or_none() -> None:
    """A sum of money can have the digits of a telephone; without a name that says so it stays a number."""
    always = found_by(lambda text: [Finding(len(text) - 7, len(text), "PHONE")] if len(text) >= 7 else [])
    value = {"sum": 5_551_234, "few": 555_123, "list": [5_551_234]}
    assert struck(value, always)[0] is value
    assert struck([1_234_567, 1e300, float("inf"), 1_234_567.5, {"pin": 12_345.5}])[1] == {}


def test_what_no_detector_could_look_at_goes_whole() -> None:
    """X12: texts, names and every number that could be somebody's, whatever it is called."""
    value = {"a": "text", "n": 1_234_567, "s": [536_228_726, NUMBER, -1_234_567, 12], "e": ""}
    clean, originals = struck(value, found_by(everything))
    assert TOKEN.sub("", re.sub(r"[\[\]{}',: ]", "", TOKEN.sub("", str(clean)))) == "12"
    assert restore(clean, originals) == value


# ── structure ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_are_struck_and_restored_like_values() -> None:
    clean, originals = struck({ALICE: {BOB: 1}, "x": 2})
    assert clean == {token("MAIL", ALICE): {token("MAIL", BOB): 1}, "x": 2}
    assert restore(clean, originals) == {ALICE: {BOB: 1}, "x": 2}


def test_the_name_of_a_field_helps_to_tell_what_stands_in_it() -> None:
    pin = token("PIN", "1234")
    assert struck({"pin": "1234", "n": "1234"})[0] == {"pin": pin, "n": "1234"}
    assert struck({"pin": ["1234"]})[0] == {"pin": [pin]}
    assert struck({"pin": {"n": "1234"}})[0] == {"pin": {"n": "1234"}}


def test_the_name_itself_is_not_struck_again_with_its_value() -> None:
    clean, originals = struck({ALICE: BOB})
    assert originals == {token("MAIL", ALICE): ALICE, token("MAIL", BOB): BOB}
    assert clean == {token("MAIL", ALICE): token("MAIL", BOB)}


def test_a_name_that_is_no_name_says_nothing() -> None:
    texts: list[str] = []

    def listening(text: str) -> list[Finding]:
        texts.append(text)
        return []

    struck({"x" * 65: "value"}, found_by(listening))
    assert texts == ["x" * 65, "value"]


def test_a_finding_that_begins_in_the_name_strikes_the_value_alone() -> None:
    sealing = found_by(lambda text: [Finding(0, len(text), "ALL")] if ": " in text else [])
    clean, originals = struck({"name": "value"}, sealing)
    assert (clean, originals) == ({"name": token("ALL", "value")}, {token("ALL", "value"): "value"})


def test_two_keys_that_are_struck_to_one_lose_nothing() -> None:
    """X12: an agent may send a value raw and as the token that it knows, in one object."""
    both = {token("MAIL", ALICE): "as a token", ALICE: "raw"}
    clean, _ = struck(both)
    assert sorted(clean.values()) == ["as a token", "raw"]
    assert ALICE not in str(clean)


@pytest.mark.parametrize(
    ("field", "room"), [("objective", 100_000), ("original_request", 100_000), ("source_id", 200), ("tool", 200)]
)
def test_a_text_that_tokens_would_make_too_long_goes_whole(field: str, room: int) -> None:
    """X12: what is recorded must still be readable, and tokens are longer than much of what they stand for."""
    text = "a@b.org " * (room // 8)
    envelopes: dict[str, Any] = {
        "objective": a_request(objective=text),
        "original_request": Handoff(original_request=text),
        "source_id": Source(owner_scope="u", source_id=text),
        "tool": ToolUse(delegation="d", agent="a", tool=text),
    }
    envelope = envelopes[field]
    clean, originals = struck(envelope)
    assert getattr(clean, field) == token("TEXT", text)
    assert checked(clean) == clean
    assert restore(clean, originals) == envelope


def test_two_keys_that_come_back_as_one_lose_nothing() -> None:
    held: dict[str, str | int] = {token("CARD", CARD): CARD, token("CARD", NUMBER): NUMBER}
    whole = restore({token("CARD", CARD): "text", token("CARD", NUMBER): "number"}, held)
    assert sorted(whole.values()) == ["number", "text"]


def test_lists_and_tuples_stay_what_they_are() -> None:
    clean, originals = struck((ALICE, [ALICE]))
    assert clean == (token("MAIL", ALICE), [token("MAIL", ALICE)])
    assert restore(clean, originals) == (ALICE, [ALICE])


def test_records_are_struck_in_all_that_they_say_and_in_nothing_else() -> None:
    why = fault(
        Code.DELEGATION_FAILED,
        f"no {ALICE}",
        suggestion=f"ask {BOB}",
        problems=(Problem(f"$.{ALICE}", f"not {BOB}"),),
        foreign=ALICE,
    )
    mail, other = token("MAIL", ALICE), token("MAIL", BOB)
    wrong = replace(
        why, message=f"no {mail}", suggestion=f"ask {other}", problems=(Problem(f"$.{mail}", f"not {other}"),),
        foreign=mail,
    )  # fmt: skip
    assert struck(why)[0] == wrong
    response = a_response(fault=why, result=None)
    assert struck(response)[0] == replace(response, fault=wrong)
    tool = ToolUse(delegation="d", agent="a", tool="t", input={"to": ALICE}, fault=why)
    assert struck(tool)[0] == replace(tool, input={"to": mail}, fault=wrong)
    assert struck(Notice(delegation="d", agent="a", text=ALICE))[0].text == mail
    progress = Progress(delegation="d", agent="a", text=ALICE, finished=(ALICE,), unfinished=(BOB,))
    assert struck(progress)[0] == replace(progress, text=mail, finished=(mail,), unfinished=(other,))
    approval = Approval(delegation="d", agent="a", id="q", question=ALICE, reason=BOB, by="carol@example.org")
    assert struck(approval)[0] == replace(approval, question=mail, reason=other)


def test_a_context_filter_is_struck() -> None:
    request = a_request(context=ContextFilter(keywords=(ALICE,), workspace_files=(f"{BOB}.txt",)))
    clean, originals = struck(request)
    assert clean.context == ContextFilter(
        keywords=(token("MAIL", ALICE),), workspace_files=(f"{token('MAIL', BOB)}.txt",)
    )
    assert restore(clean, originals) == request


def test_what_a_source_is_called_is_struck_and_whose_it_is_is_not() -> None:
    """X12: owner scopes are user ids; the name of a document is what an agent says."""
    source = Source(owner_scope="u@example.org", source_id=f"mail from {ALICE}")
    clean = struck(a_response(sources=(source,)))[0]
    request = struck(a_request(handoff=Handoff(references=(source,))))[0]
    expected = Source(owner_scope="u@example.org", source_id=f"mail from {token('MAIL', ALICE)}")
    assert (clean.sources, request.handoff.references) == ((expected,), (expected,))


def test_who_asks_whom_under_which_id_is_not_struck() -> None:
    """X12, the named exclusion: users, agents, sessions and ids are identifiers."""
    request = a_request(id=ALICE, target=ALICE, session=ALICE, correlation=ALICE, run=ALICE)
    assert struck(request)[0] is request


def test_what_is_neither_json_nor_an_envelope_is_not_let_through() -> None:
    for value in (object(), b"bytes", {1, 2}, a_card()):
        with pytest.raises(KeyError):
            struck([value])


# ── the guard ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def judged(request: Request, detector: Detector | None = detect) -> Allow | Rewrite:
    sealing = None if detector is None else found_by(detector)
    return redaction(request, Facts(target=None, sealing=sealing))


def test_without_redaction_everything_passes_as_it_is() -> None:
    assert judged(a_request(objective=ALICE), None) is ALLOW


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "harmless", "input": None},
        {"objective": "", "input": "harmless"},
        {"input": {"a": "harmless"}},
        {"input": 12, "hints": ("harmless",), "reason": "harmless"},
        {"handoff": Handoff(facts=("harmless",)), "context": ContextFilter(last_messages=1)},
    ],
)
def test_what_is_harmless_is_allowed_as_it_is(changes: dict[str, Any]) -> None:
    assert judged(a_request(**changes)) is ALLOW


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": ALICE},
        {"input": ALICE},
        {"input": [ALICE]},
        {"input": {ALICE: 1}},
        {"input": NUMBER},
        {"hints": (ALICE,)},
        {"reason": ALICE},
        {"handoff": Handoff(facts=(ALICE,))},
        {"context": ContextFilter(keywords=(ALICE,))},
    ],
)
def test_what_is_not_is_rewritten_with_what_was_taken_out(changes: dict[str, Any]) -> None:
    request = a_request(**changes)
    verdict = judged(request)
    assert isinstance(verdict, Rewrite)
    assert not any(secret in encode(verdict.request).decode() for secret in (ALICE, CARD))
    assert restore(verdict.request, verdict.struck) == request


def test_a_detector_may_also_give_its_findings_one_by_one() -> None:
    def one_by_one(text: str) -> Iterable[Finding]:
        yield from detect(text)

    assert judged(a_request(objective="harmless"), one_by_one) is ALLOW
    assert isinstance(judged(a_request(objective=ALICE), one_by_one), Rewrite)


@pytest.mark.parametrize(
    "changes",
    [
        {"result": ALICE},
        {"result": [ALICE]},
        {"result": {ALICE: 1}},
        {"result": NUMBER},
        {"summary": ALICE},
        {"artifacts": (Artifact(type="json", value=ALICE),)},
        {"new_facts": (ALICE,)},
        {"warnings": (ALICE,)},
        {"finished": (ALICE,)},
        {"unfinished": (ALICE,)},
        {"metadata": {"x": ALICE}},
        {"sources": (Source(owner_scope="u", source_id=ALICE),)},
        {"fault": fault(Code.DELEGATION_FAILED, ALICE)},
        {"findings": (ToolFinding(tool="find", result=ALICE),)},
        {"handover": (Handover(to="billing", reason=ALICE),)},
    ],
)
def test_a_response_that_says_something_secret_is_not_plain(changes: dict[str, Any]) -> None:
    response = a_response(**changes)
    assert not is_plain(response, detect)
    assert struck(response)[0] != response


@given(responses)
def test_a_plain_response_is_one_in_which_nothing_is_struck(response: Response) -> None:
    assert not is_plain(response, detect) or struck(response)[0] is response
    assert is_plain(a_response(result=None), detect)
    assert is_plain(a_response(), detect)


# ── restoring ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MAIL = token("MAIL", ALICE)
HELD: dict[str, str | int] = {MAIL: ALICE}


@pytest.mark.parametrize(
    "text",
    [
        token("MAIL", BOB),
        token("MAIL", ALICE, OTHER_KEY),
        MAIL.lower(),
        MAIL.upper(),
        MAIL.replace("MAIL", "LIAM"),
        MAIL[:-1],
        MAIL[1:],
        f"{MAIL[:9]} {MAIL[9:]}",
        MAIL.replace(":", ": "),
        "[MAIL:]",
        "[MAIL:bcdfghjklmnp]",
        "[[[[",
        "[" * 10_000,
    ],
)
def test_forged_foreign_and_broken_tokens_stay_as_they_are(text: str) -> None:
    """X12: only the very token that stands for a value brings it back."""
    assert restore(text, HELD) is text
    assert restore({"x": [text, {text: text}]}, HELD) == {"x": [text, {text: text}]}


def test_tokens_beside_others_come_back_each_for_itself() -> None:
    foreign = token("MAIL", BOB)
    assert restore(f"[{MAIL}]{foreign}{MAIL}[", HELD) == f"[{ALICE}]{foreign}{ALICE}["


def test_what_comes_back_is_not_looked_at_again() -> None:
    """Else a value could be chosen so that it brings back another."""
    held: dict[str, str | int] = {token("X", MAIL): MAIL, MAIL: ALICE}
    assert restore(token("X", MAIL), held) == MAIL
    assert restore(f"it is {token('X', MAIL)}", held) == f"it is {MAIL}"


def test_an_envelope_comes_back_with_all_that_it_says() -> None:
    response = a_response(result={"to": MAIL}, summary=MAIL, artifacts=(Artifact(type="json", value=MAIL, label=MAIL),))
    assert restore(response, HELD) == a_response(
        result={"to": ALICE}, summary=ALICE, artifacts=(Artifact(type="json", value=ALICE, label=ALICE),)
    )


def test_raw_values_are_told_apart_by_kind() -> None:
    held: dict[str, str | int] = {MAIL: ALICE, token("MAILBOX", "7"): "7", token("CARD", NUMBER): NUMBER}
    assert of_kinds(held, {"MAIL"}) == {MAIL: ALICE}
    assert of_kinds(held, {"MAIL", "CARD"}) == {MAIL: ALICE, token("CARD", NUMBER): NUMBER}
    assert of_kinds(held, ()) == {}
    assert of_kinds(held, {"M"}) == {}


# ── what a callee may see ─────────────────────────────────────────────────────────────────────────────────────────────

KNOWN: dict[str, str | int] = {MAIL: ALICE, token("CARD", NUMBER): NUMBER}
CARD_TOKEN = token("CARD", NUMBER)


def revealed(given: Any, **abilities: Any) -> Any:
    """Return the input that tag gets for `DO`, if its card or the capability has those abilities."""
    sees = abilities.pop("card_sees", frozenset())
    card = a_card(sees=sees, capabilities=(Capability(code="DO", **abilities),))
    return reveal(a_request(capability="DO", input=given), KNOWN, card).input


def test_a_callee_sees_the_kinds_that_its_card_names() -> None:
    """X12: which agent may see which kind is said by its team alone."""
    request = a_request(objective=f"{MAIL} {CARD_TOKEN}", input=[MAIL, CARD_TOKEN], hints=(MAIL,))
    card = a_card(sees=frozenset({"MAIL"}))
    assert reveal(request, KNOWN, card) == a_request(
        objective=f"{ALICE} {CARD_TOKEN}", input=[ALICE, CARD_TOKEN], hints=(ALICE,)
    )
    assert reveal(request, KNOWN, a_card()) is request
    assert reveal(request, KNOWN, a_card(sees=frozenset({"OTHER"}))) is request


def test_a_capability_sees_the_kinds_that_it_names_and_those_of_the_card() -> None:
    assert revealed([MAIL, CARD_TOKEN], sees=frozenset({"CARD"})) == [MAIL, NUMBER]
    assert revealed([MAIL, CARD_TOKEN], sees=frozenset({"CARD"}), card_sees=frozenset({"MAIL"})) == [ALICE, NUMBER]


def test_another_capability_of_the_same_agent_sees_nothing_of_it() -> None:
    capabilities = (Capability(code="DO", sees=frozenset({"MAIL"})), Capability(code="OTHER"))
    card = a_card(capabilities=capabilities)
    for code in ("OTHER", "MISSING", None):
        request = a_request(capability=code, input=MAIL)
        assert reveal(request, KNOWN, card) is request


@pytest.mark.parametrize(
    ("field", "given", "seen"),
    [
        ("to", {"to": MAIL, "cc": MAIL}, {"to": ALICE, "cc": MAIL}),
        ("to", {"to": [MAIL, {"x": MAIL}]}, {"to": [ALICE, {"x": ALICE}]}),
        ("to.mail", {"to": {"mail": MAIL, "x": MAIL}}, {"to": {"mail": ALICE, "x": MAIL}}),
        ("to.mail", {"to": [{"mail": MAIL}, {"x": MAIL}, MAIL]}, {"to": [{"mail": ALICE}, {"x": MAIL}, MAIL]}),
        ("to.mail", {"to": MAIL}, {"to": MAIL}),
        ("to", [{"to": MAIL}, MAIL], [{"to": ALICE}, MAIL]),
        ("to", {"x": MAIL}, {"x": MAIL}),
        ("to", MAIL, MAIL),
        ("to", None, None),
        ("to", 7, 7),
        ("to", {"to": CARD_TOKEN}, {"to": NUMBER}),
    ],
)
def test_a_capability_sees_the_fields_that_it_names(field: str, given: Any, seen: Any) -> None:
    """X12: a list stands for each of its items; what is not there is not missed; all the rest stays."""
    before = encode(given)
    assert revealed(given, sees_fields=frozenset({field})) == seen
    assert encode(given) == before


def test_several_fields_are_seen_each_for_itself() -> None:
    given = {"a": MAIL, "b": {"c": MAIL}, "d": MAIL}
    assert revealed(given, sees_fields=frozenset({"a", "b.c"})) == {"a": ALICE, "b": {"c": ALICE}, "d": MAIL}


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def deep(levels: int) -> Any:
    value: Any = ALICE
    for _ in range(levels):
        value = [value]
    return value


def test_names_that_become_one_at_every_level_are_no_trouble() -> None:
    """Each level is struck once: twice would be two to the power of sixty at the bottom."""
    value: Any = ALICE
    for _ in range(60):
        value = {token("MAIL", ALICE): 1, ALICE: value}
    clean, originals = struck(value)
    assert ALICE not in str(clean)
    assert ALICE in str(restore(clean, originals))


def test_as_deep_as_an_envelope_may_be_is_no_trouble() -> None:
    clean, originals = struck(deep(64))
    assert restore(clean, originals) == deep(64)


@pytest.mark.unwatched
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: "[" * 200_000, id="brackets"),
        pytest.param(lambda: "[A" * 100_000, id="half tokens"),
        pytest.param(lambda: "[MAIL:bcdfghjklmn" * 12_000, id="tokens that never end"),
        pytest.param(lambda: MAIL * 10_000, id="tokens"),
        pytest.param(lambda: token("MAIL", BOB) * 10_000, id="foreign tokens"),
        pytest.param(lambda: f"{ALICE} " * 10_000, id="secrets"),
        pytest.param(lambda: {f"k{n}": ALICE for n in range(4_000)}, id="keys"),
        pytest.param(lambda: [NUMBER] * 4_000, id="numbers"),
    ],
)
def test_two_hundred_kilobytes_of_anything_are_struck_and_restored_at_once(make: Callable[[], Any]) -> None:
    """What grows with the square of a text does not end before the time-out of a test."""
    value = make()
    clean, originals = struck(value)
    assert restore(clean, originals) == value
    restore(clean, HELD | {f"[MAIL:{n:012}]": "x" for n in range(2_000)})
    assert msgspec.json.encode(clean)


def test_a_response_that_a_detector_fails_on_is_not_plain() -> None:
    """C6: whoever strikes it says that it fails; until then it is not taken for harmless."""

    def fails(_: str) -> list[Finding]:
        raise RuntimeError

    assert not is_plain(a_response(), fails)


@pytest.mark.parametrize(
    ("text", "let_go"),
    [("over open ses", "over "), ("say to open", "say to "), ("say hallo there friend", "say hallo there ")],
)
def test_of_a_secret_that_is_found_only_whole_not_even_its_beginning_is_let_go(text: str, let_go: str) -> None:
    class Signed:
        signed = True

        def __call__(self, _: str) -> list[Finding]:
            return []

    assert settled("", text, Sealing(bytes(32), Signed()), {}, named=["open sesame"]) == (let_go, len(let_go))


def test_what_may_be_the_beginning_of_a_token_is_not_let_go() -> None:
    text = "x [" + "a " * 45 + "zz"

    class Late:
        signed = True

        def __call__(self, _: str) -> list[Finding]:
            return [Finding(20, len(text), "EMAIL")]

    assert settled("", text, Sealing(bytes(32), Late()), {}) == ("x ", 2)


def test_conditions_on_arguments_are_redacted_as_the_arguments_are_and_names_of_tools_are_not() -> None:
    limits = {"mail": ({"to": (ALICE, "bob")}, {"cc": f"* {BOB}", "size": ValueBounds(not_in=(ALICE,), at_most=9)})}
    request = a_request(remit=a_remit(tools=limits), objective="Write to her")
    verdict = redaction(request, Facts(target=None, sealing=SEALING))
    assert isinstance(verdict, Rewrite)
    tools = verdict.request.remit.tools
    alice, bob = token("MAIL", ALICE), token("MAIL", BOB)
    assert tools == {
        "mail": ({"to": (alice, "bob")}, {"cc": f"* {bob}", "size": ValueBounds(not_in=(alice,), at_most=9)})
    }
    assert restore(verdict.request, verdict.struck) == request
    named = replace(request, remit=a_remit(tools=frozenset({ALICE})), hints=("quickly",))
    assert redaction(named, Facts(target=None, sealing=SEALING)) == ALLOW
