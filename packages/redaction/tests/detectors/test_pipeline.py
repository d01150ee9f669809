"""All detectors together: what is found, what is left alone, and the laws that every text keeps."""

import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.redaction import TOKEN, token_for
from remit.policy.verdict import Detector, Finding
from remit_redaction.pipeline import KINDS, detector_pipeline

detect = detector_pipeline()

# Put together here, so that nobody's scanner takes them for keys that leaked.
KEYS = {
    "OpenAI": "sk-" + "proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2",
    "Anthropic": "sk-" + "ant-api03-" + "a1B2c3D4e5F6g7H8i9J0",
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS, letters alone": "AKIA" + "IOSFODNNQEXAMPLE",
    "GitHub": "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "GitHub, fine-grained": "github" + "_pat_" + "11ABCDEFG0a1B2c3D4e5F6_g7H8i9J0",
    "GitLab": "gl" + "pat-" + "a1B2c3D4e5F6g7H8i9J0",
    "Slack": "xox" + "b-" + "123456789012-abcdefABCDEF",
    "Stripe": "sk" + "_live_" + "a1B2c3D4e5F6g7H8",
    "Google": "AI" + "za" + "SyA1234567890abcdefghijklmnopqrstuvw",
    "Twilio": "AC" + "0123456789abcdef" * 2,
    "SendGrid": "SG" + ".a1B2c3D4e5F6g7H8i9J0.a1B2c3D4e5F6g7H8i9J0",
    "npm": "npm" + "_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "PyPI": "pypi" + "-" + "AgEIcHlwaS5vcmcCJGExYjJjM2Q0ZTVmNmc3aDhpOWowazFsMg",
    "Hugging Face": "hf" + "_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w",
}
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA7bq0\n" * 3 + "-----END RSA PRIVATE KEY-----"


def detected(text: str, detector: Detector = detect) -> list[tuple[str, str]]:
    return [(finding.kind, text[finding.start : finding.end]) for finding in detector(text)]


# ── what is found ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail ada.king+x@mail.example.co.uk now", [("EMAIL", "ada.king+x@mail.example.co.uk")]),
        ("'o'brien@example.org'", [("EMAIL", "o'brien@example.org")]),
        ('"ada king"@example.org', [("EMAIL", '"ada king"@example.org')]),
        ("jürgen@müller.de", [("EMAIL", "jürgen@müller.de")]),
        ("用户@例子.中国", [("EMAIL", "用户@例子.中国")]),
        ("请联系ada@example.org谢谢", [("EMAIL", "ada@example.org")]),
        ("ada@xn--mller-kva.de", [("EMAIL", "ada@xn--mller-kva.de")]),
        ("ada＠example．org", [("EMAIL", "ada＠example．org")]),
        ("ada@exa\u200bmple.org", [("EMAIL", "ada@exa\u200bmple.org")]),
        ("card 4111 1111\n1111 1111.", [("CREDIT_CARD", "4111 1111\n1111 1111")]),
        ("cardNumber: 378282246310005", [("CREDIT_CARD", "378282246310005")]),
        ("4111-1111-1111-1111 12/27 123", [("CREDIT_CARD", "4111-1111-1111-1111")]),
        ("x4111111111111111y", [("CREDIT_CARD", "4111111111111111")]),
        ("٤١١١ ١١١١ ١١١١ ١١١١", [("CREDIT_CARD", "٤١١١ ١١١١ ١١١١ ١١١١")]),
        ("DE89 3704 0044 0532 0130 00 AND MORE", [("IBAN", "DE89 3704 0044 0532 0130 00")]),
        ("iban: gb82west12345698765432", [("IBAN", "gb82west12345698765432")]),
        ("Here's my SSN: 460-89-9847", [("SSN", "460-89-9847")]),
        ("ssn: 460899847", [("SSN", "460899847")]),
        ("social_security_number: 460899847", [("SSN", "460899847")]),
        ("employeeSsn: 460899847", [("SSN", "460899847")]),
        ("912-78-1234", [("ITIN", "912-78-1234")]),
        ("my SIN is 046454286", [("SIN", "046454286")]),
        ("130-692-544", [("SIN", "130-692-544")]),
        ("NHS number: 943 476 5919", [("NHS_NUMBER", "943 476 5919")]),
        ("National Insurance number QQ 12 34 56 C", []),
        ("National Insurance number AB 12 34 56 C", [("NINO", "AB 12 34 56 C")]),
        ("passport no. X12345678 expires", [("PASSPORT", "X12345678")]),
        ("my driver's license number is 2270-66-1551", [("DRIVER_LICENSE", "2270-66-1551")]),
        ("from 198.51.100.7:8080", [("IP", "198.51.100.7")]),
        ("from 2001:db8::8a2e:370:7334.", [("IP", "2001:db8::8a2e:370:7334")]),
        ("eth0 00:1B:44:11:3A:B7", [("MAC", "00:1B:44:11:3A:B7")]),
        ("pay 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", [("BTC_ADDRESS", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa")]),
        ("postgres://ada:s3cr3t@db.example.org/x", [("URL_CREDENTIALS", "ada:s3cr3t")]),
        ("Authorization: Basic YWRhOnMzY3IzdA==", [("BEARER_TOKEN", "YWRhOnMzY3IzdA==")]),
        ("curl -H 'authorization: bearer abc.def-ghi_jkl123'", [("BEARER_TOKEN", "abc.def-ghi_jkl123")]),
        ("password: hunter2", [("PASSWORD", "hunter2")]),
        ("password: swordfish", [("PASSWORD", "swordfish")]),
        ("my password is Tr0ub4dor&3.", [("PASSWORD", "Tr0ub4dor&3")]),
        ('{"db_password": "correct-horse"}', [("PASSWORD", "correct-horse")]),
        ('api_key = "q7f8s9d6f7s6"', [("API_KEY", "q7f8s9d6f7s6")]),
        ("https://example.org/?token=abc123def456ghi7&y=1", [("API_KEY", "abc123def456ghi7")]),
        ("client_secret=Zk3v9Q1x8Lw2", [("API_KEY", "Zk3v9Q1x8Lw2")]),
        (f"see\n{PEM}\nend", [("PRIVATE_KEY", PEM)]),
        ('{"note": "Phone:\\\\n0680 390 92 93"}', [("PHONE", "0680 390 92 93")]),
    ],
)
def test_values_are_found_whole_and_named_by_their_kind(text: str, expected: list[tuple[str, str]]) -> None:
    """X12: what a delegate must not see is found first."""
    assert detected(text) == expected


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_keys_of_known_vendors_are_found_wherever_they_stand(key: str) -> None:
    assert detected(f"use {key}, please") == [("API_KEY", key)]


def test_a_private_key_that_is_cut_off_is_still_found() -> None:
    cut = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2
    assert detected(cut) == [("PRIVATE_KEY", cut)]


@pytest.mark.parametrize(
    "number",
    [
        "+1 (415) 555-2671",
        "+41 (0)44 668 18 00",
        "+447700 900123",
        "0041 44 668 18 00",
        "001-415-555-2671",
        "(415) 555-2671",
        "415-555-2671",
        "415.555.2671 x123",
        "1-800-555-0199",
        "07700 900123",
        "020 7946 0958",
        "030 901820",
        "0171 1234567",
        "01 23 45 67 89",
        "06.12.34.56.78",
        "612 34 56 78",
        "06 12345678",
        "0412 345 678",
        "98765 43210",
        "(11) 91234-5678",
        "090-1234-5678",
        "079 123 45 67",
        "0660 5294399",
        "070-123 45 67",
    ],
)
def test_telephone_numbers_are_found_as_their_regions_write_them(number: str) -> None:
    assert detected(f"It is {number}, I think") == [("PHONE", number)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("phone: 555-0100", "555-0100"),
        ("mobilePhone: 4155552671", "4155552671"),
        ("home_tel: 84 23 30", "84 23 30"),
        ("call me at 52-98-89-23", "52-98-89-23"),
        ("512 345 678 mobile", "512 345 678"),
        ("teléfono 912345678", "912345678"),
    ],
)
def test_words_around_a_number_make_it_a_telephones(text: str, number: str) -> None:
    assert detected(text) == [("PHONE", number)]


# ── what is left alone ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Categorize transactions",
        "3 categories for u-12",
        "Add up my receipts for 2026-03",
        "between 2026-03-01 and 31.12.2026",
        "2026-03-01T10:20:30.123456Z",
        "at 1700000000 and 1700000000123",
        "order 1234567890, invoice 0123-456789",
        "INV-4155552671 for u-415555",
        "$1,234,567.89 or 12 345 678 EUR",
        "3.14159265358979 and 48.27894045266326",
        "2.187 691 2541 e6",
        "550e8400-e29b-41d4-a716-446655440000",
        "d41d8cd98f00b204e9800998ecf8427e",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "version 1.2.3.4 and v10.0.0.1",
        "listen on 127.0.0.1 and 0.0.0.0",
        "ISBN 978-3-16-148410-0, EAN 4006381333931",
        "4111 1111 1111 1112",
        "DE89 3704 0044 0532 0130 01",
        "000-12-3456 and 666-12-3456",
        "logo@2x.png, react@18.2.0, git@github.com:org/repo.git",
        "http://localhost:8080/@scope/pkg",
        "max_tokens: 4096, token: 1500, token_type: bearer",
        "password is incorrect, password: required, passwords expire",
        "password = os.environ['PASSWORD']; api_key: ${API_KEY}",
        "private_key: rsa.RSAPrivateKey, secret_name: prod-db-1",
        "std::string a::b 12:30:45",
        "bearer of good news",
    ],
)
def test_what_only_looks_like_a_value_is_left_alone(text: str) -> None:
    assert detected(text) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_a_token_is_never_found(kind: str) -> None:
    text = f"password: {token_for(b'k', kind, 'x')}, call {token_for(b'k', kind, 'y')}@example.org"
    assert detected(text) == []


def test_a_forged_token_does_not_carry_a_number_past_the_detectors() -> None:
    assert detected("[A4111111111111111:bcdfghjklmnp]") == [("CREDIT_CARD", "4111111111111111")]


# ── a team's own ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_kinds_asked_for_are_found() -> None:
    text = "ada@example.org 198.51.100.7"
    assert detected(text, detector_pipeline(kinds=["IP"])) == [("IP", "198.51.100.7")]
    assert detected(text, detector_pipeline(kinds=[])) == []


def test_a_teams_patterns_are_found_in_texts_that_seem_harmless() -> None:
    own = detector_pipeline(kinds=[], patterns={"CODE_NAME": "(?i)project (?P<value>[a-z]+)", "BADGE": r"B\d{3}"})
    assert detected("Project Nightfall and B１２３", own) == [("CODE_NAME", "Nightfall"), ("BADGE", "B１２３")]


def test_what_overlaps_is_found_once_under_the_longest() -> None:
    own = detector_pipeline(patterns={"HOST": r"example\.org is down"})
    assert detected("ada@example.org is down", own) == [("HOST", "ada@example.org is down")]


def test_a_detector_of_the_users_own_is_asked_about_every_text_and_cut_to_it() -> None:
    def everything(text: str) -> Iterable[Finding]:
        return [Finding(-3, len(text) + 3, "ALL")]

    token = token_for(b"k", "EMAIL", "ada@example.org")
    assert detected(f"a {token} b", detector_pipeline(extra=[everything])) == [("ALL", "a "), ("ALL", " b")]


def test_a_detector_that_fails_does_not_let_the_text_pass() -> None:
    def broken(text: str) -> Iterable[Finding]:
        raise LookupError("no model")

    with pytest.raises(LookupError, match="no model"):
        detector_pipeline(extra=[broken])("Categorize transactions")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"CODE": "(a"}, r"the pattern for CODE is not one of RE2's: missing \)"),
        ({"CODE": r"(?=a)a"}, "the pattern for CODE is not one of RE2's"),
        ({"CODE": "a*"}, "the pattern for CODE matches the empty string"),
        ({"code name": "a"}, "'code name' is not written in capitals"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_at_once(patterns: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detector_pipeline(patterns=patterns)


def test_kinds_and_regions_that_do_not_exist_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no such kind: EMIAL"):
        detector_pipeline(kinds=["EMIAL"])
    with pytest.raises(ValueError, match="no telephone numbers are known for the region 'UK'"):
        detector_pipeline(regions=["UK"])


def test_regions_decide_which_local_numbers_are_telephones() -> None:
    number = "It is 98765 43210, I think"
    assert detected(number, detector_pipeline(regions=["IN"])) == [("PHONE", "98765 43210")]
    assert detected(number, detector_pipeline(regions=["GB"])) == []


def test_importing_the_pipeline_and_reading_harmless_text_loads_no_pattern() -> None:
    script = (
        "import sys; from remit_redaction.pipeline import detector_pipeline\n"
        "detector_pipeline()('Categorize transactions')\n"
        "print({'re2', 'phonenumbers', 'stdnum', 'remit_redaction.numbers'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

texts = st.text() | st.text(alphabet="0123456789 -./+()@:=[]_abcEMAIL\u200b٣４é例\n", max_size=120)
values = st.sampled_from(
    ["ada@example.org", "4111 1111 1111 1111", "+41 44 668 18 00", "DE89370400440532013000", "460-89-9847"]
)
sentences = st.lists(texts | values, max_size=6).map(" ".join)


@given(sentences)
def test_findings_are_in_order_do_not_overlap_and_lie_in_the_text(text: str) -> None:
    findings = [Finding(0, 0, ""), *detect(text), Finding(len(text), len(text), "")]
    assert all(one.end <= other.start for one, other in pairwise(findings))
    assert all(finding.start < finding.end and finding.kind in KINDS for finding in findings[1:-1])


@given(sentences)
def test_nothing_is_found_in_the_tokens_that_took_the_place_of_what_was_found(text: str) -> None:
    """X12: redacting twice is redacting once."""
    struck = text
    for finding in reversed([*detect(text)]):
        token = token_for(b"k", finding.kind, text[finding.start : finding.end])
        struck = struck[: finding.start] + token + struck[finding.end :]
    tokens = [each.span() for each in TOKEN.finditer(struck)]
    again = [(finding.start, finding.end) for finding in detect(struck)]
    assert not [one for one in again for start, end in tokens if one[0] < end and start < one[1]]


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_no_text_is_too_strange_for_the_detectors(text: str) -> None:
    list(detector_pipeline(patterns={"CODE": "x[0-9]+"})(text))


zeros = st.sampled_from("0٠۰०০０𝟎𝟘")
gaps = st.sampled_from(["", "", " ", "-", "/", "\u00a0", "\n", "\u2009", "\u200b", "\u00ad", " - ", "‐", "\u2060"])


def disguised(value: str, zero: str, between: list[str]) -> str:
    written = [chr(ord(zero) + int(char)) if char.isdigit() else char for char in value]
    return "".join(char + gap for char, gap in zip_longest(written, between[: len(value) - 1], fillvalue=""))


@given(st.sampled_from(["4111111111111111", "5555555555554444", "378282246310005"]), zeros, st.lists(gaps, max_size=15))
def test_a_card_is_found_in_all_digits_and_however_it_is_taken_apart(card: str, zero: str, between: list[str]) -> None:
    value = disguised(card, zero, between)
    assert detected(f"Pay with {value} now") == [("CREDIT_CARD", value)]


@given(st.sampled_from(["DE89370400440532013000", "GB82WEST12345698765432"]), zeros, st.lists(gaps, max_size=21))
def test_an_iban_is_found_in_all_digits_and_however_it_is_taken_apart(iban: str, zero: str, between: list[str]) -> None:
    value = disguised(iban, zero, between)
    assert ("IBAN", value) in detected(f"Pay to {value}!")


@given(st.sampled_from(["+41446681800", "+14155552671", "+447700900123"]), zeros, st.lists(gaps, max_size=12))
def test_an_international_number_is_found_in_all_digits(phone: str, zero: str, between: list[str]) -> None:
    value = disguised(phone, zero, ["", *(gap for gap in between if "\n" not in gap)])
    assert detected(f"It is {value} now") == [("PHONE", value)]


@given(
    st.sampled_from(["ada@example.org", "x.y+z@mail.example.co.uk"]),
    st.lists(st.sampled_from("\u200b\u00ad\u2060\ufeff\u200d"), max_size=14),
)
def test_an_address_is_found_with_what_cannot_be_seen_inside(email: str, between: list[str]) -> None:
    value = "".join(char + gap for char, gap in zip_longest(email, between, fillvalue=""))
    assert detected(f"to {value} now") == [("EMAIL", value)]
