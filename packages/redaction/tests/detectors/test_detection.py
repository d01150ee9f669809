"""How much of what is labelled is found, and how little of what is harmless: the goals, held on sets made here."""

import sysconfig
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import labelled_texts as labelled
from doc_pages import DOCS
from labelled_texts import Case
from remit.policy.redaction import strike
from remit.policy.restoring import restore
from remit.policy.verdict import Detector, Sealing
from remit_redaction import vendors
from remit_redaction.national import number_kinds
from remit_redaction.pipeline import KINDS, OPTIONAL, detector_pipeline

detect = detector_pipeline()
HERE = Path(__file__).resolve().parent


def detected(text: str, detector: Detector = detect) -> list[tuple[str, str]]:
    return [(finding.kind, text[finding.start : finding.end]) for finding in detector(text)]


def covered(case: Case) -> bool:
    start = case.text.index(case.value)
    return any(one.start <= start and start + len(case.value) <= one.end for one in detect(case.text))


# ── what must be found ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("family", "goal"),
    [
        ("keys of vendors", 0.98),
        ("named values", 0.97),
        ("prose", 0.95),
        ("national numbers", 0.98),
        ("telephone numbers", 0.98),
        ("papers", 0.98),
        ("hidden values", 1),
    ],
)
def test_of_each_family_as_much_is_found_as_is_promised(family: str, goal: float) -> None:
    """X12: what a delegate must not see is found first."""
    every = labelled.cases(family)
    lost = [case for case in every if not covered(case)]
    assert 1 - len(lost) / len(every) >= goal, Counter(case.family for case in lost)


def test_no_vendor_and_no_country_is_missed_altogether() -> None:
    families: dict[str, list[bool]] = {}
    for case in labelled.all_cases():
        families.setdefault(case.family, []).append(covered(case))
    assert {family for family, hits in families.items() if sum(hits) < len(hits) / 2} == set()


def test_the_table_of_vendors_is_long_and_every_row_names_its_source() -> None:
    rows = vendors.vendors()
    assert len(rows) >= 150
    assert all(row.vendor and row.prefixes and row.source for row in rows)
    assert len({row.vendor for row in rows}) == len(rows)
    assert {text for row in rows for text in row.prefixes.split()} == {text.decode() for text in vendors.forms()}


def test_every_number_that_stdnum_checks_has_a_module() -> None:
    from remit_redaction import national

    for place in range(len(number_kinds())):
        assert callable(national._check(place))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my driver’s license is D1234567", [("DRIVER_LICENSE", "D1234567")]),
        ("use ada and the password hunter2", [("PASSWORD", "hunter2")]),
        ("machine h.example login ada password swordfish", [("PASSWORD", "swordfish")]),
        ("define('DB_PASSWORD', 'swordfish');", [("PASSWORD", "swordfish")]),
        ('{"auths": {"r.example": {"auth": "YWRhOnN3b3JkZmlzaA=="}}}', [("PASSWORD", "YWRhOnN3b3JkZmlzaA==")]),
        ("Cookie: theme=dark; sid=s3cr3tv4lue; lang=en", [("SESSION_COOKIE", "s3cr3tv4lue")]),
        ("Set-Cookie: JSESSIONID=0A1B2C3D4E5F; Path=/", [("SESSION_COOKIE", "0A1B2C3D4E5F")]),
        ("PESEL-em 44051401359", [("NATIONAL_ID", "44051401359")]),
        ("44051401359 (PESEL)", [("NATIONAL_ID", "44051401359")]),
        ("userPesel: 44051401359", [("NATIONAL_ID", "44051401359")]),
        ("NIP 526-10-40-828", [("TAX_ID", "526-10-40-828")]),
        ("cuenta CLABE 032180000118359719", [("BANK_ACCOUNT", "032180000118359719")]),
        ("numer konta 61109010140000071219812874", [("BANK_ACCOUNT", "61109010140000071219812874")]),
        ("sort code 12-34-56", [("BANK_CODE", "12-34-56")]),
        ("NRIC S1234567D", [("NATIONAL_ID", "S1234567D")]),
        ("HKID A123456(3)", [("NATIONAL_ID", "A123456(3)")]),
        ("身份證 A123456789", [("NATIONAL_ID", "A123456789")]),
        ("СНИЛС 112-233-445 95", [("NATIONAL_ID", "112-233-445 95")]),
        ("dowód osobisty ABS123456", [("PASSPORT", "ABS123456")]),
        ("4111,1111,1111,1111", [("CREDIT_CARD", "4111,1111,1111,1111")]),
        ("ada&commat;example&period;org", [("EMAIL", "ada&commat;example&period;org")]),
        (r'{"to": "ada\u0040example.org"}', [("EMAIL", r"ada\u0040example.org")]),
        ("?email=ada%40example.org&x=1", [("EMAIL", "ada%40example.org")]),
        ("pаssword: hunter2", [("PASSWORD", "hunter2")]),  # the first a is Cyrillic
        ("p\u00adass\u200bword: hunter2", [("PASSWORD", "hunter2")]),
        ("cache_api_key = 'b7e23ec29af22b0b'", [("API_KEY", "b7e23ec29af22b0b")]),
        ("primary_key: ghp_" + "a1B2c3D4e5F6" * 3, [("API_KEY", "ghp_" + "a1B2c3D4e5F6" * 3)]),
        ("ping 8.8.4.5", [("IP", "8.8.4.5")]),
        ("1.2.3.4:8080", [("IP", "1.2.3.4")]),
        ("MAC 12-34-56-78-90-12", [("MAC", "12-34-56-78-90-12")]),
    ],
)
def test_each_is_found_whole_and_named_by_its_kind(text: str, expected: list[tuple[str, str]]) -> None:
    assert detected(text) == expected


# ── what must be left alone ───────────────────────────────────────────────────────────────────────────────────────────


def test_invoices_versions_and_hashes_are_left_alone() -> None:
    assert [(text, detected(text)) for text in labelled.harmless() if detected(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "44051401358",
        "44051401359 EUR",
        "order 44051401359",
        "390.533.447-06",
        "54362315L",
        "2341 2341 2345",
        "the pan is 12 cm wide and cost 1234567",
        "sk-learn-contrib-package-2",
        "hf_hub_download_with_resume_and_progress",
        "xai_include_collections_search_output: bool",
        "api_key: Ed25519PrivateKey | None",
        "password = getpass.getpass('Password: ')",
        "password: SecretStr",
        "cache_key = 'user_profile_v2_settings'",
        "cache_key = 'orders-2026-11-17'",
        '{"primaryKey": "b7e23ec29af22b0b"}',
        "Idempotency-Key: f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "key = os.environ['X1']; token = tokens[12]",
        "00:00:00:00:00:00 and ff:ff:ff:ff:ff:ff",
        "Cookie: theme=dark; lang=en-GB2024",
        "100%25 sure &amp; done, 50%",
    ],
)
def test_what_has_the_shape_alone_is_left_alone(text: str) -> None:
    assert detected(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PESEL: 44051401358", [("NATIONAL_ID", "44051401358")]),
        ("meu CPF é 390.533.447-06", [("NATIONAL_ID", "390.533.447-06")]),
        ("NIP podatnika: 123-456-78-99", [("TAX_ID", "123-456-78-99")]),
        ("aadhaar 2341 2341 2345", [("NATIONAL_ID", "2341 2341 2345")]),
    ],
)
def test_a_number_that_is_named_without_doubt_is_found_with_a_wrong_check_digit(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert detected(text) == expected


def code_and_prose() -> Iterator[Path]:
    """Return source code of the standard library without its tests, and the pages of this project."""
    library = Path(sysconfig.get_path("stdlib"))
    yield from islice(sorted(library.glob("*.py")), 80)
    for folder in ("email", "http", "logging", "urllib"):
        yield from sorted((library / folder).rglob("*.py"))
    yield from sorted(DOCS.rglob("*.md"))


def test_code_and_prose_have_fewer_than_one_false_alarm_in_100_kb() -> None:
    # Addresses of authors and of examples are what they seem to be.
    true = {"EMAIL", "IP", "URL_CREDENTIALS"}
    size = 0
    alarms: list[tuple[str, str, str]] = []
    for path in code_and_prose():
        text = path.read_text(encoding="utf-8", errors="replace")
        size += len(text.encode())
        alarms += [(path.name, kind, value) for kind, value in detected(text) if kind not in true]
    assert size > 1_000_000
    assert len(alarms) / (size / 102_400) < 1, alarms


# ── what is hidden stays what it is ───────────────────────────────────────────────────────────────────────────────────


def test_a_token_stands_for_what_was_written_and_restores_to_it() -> None:
    sealing = Sealing(key=b"k" * 32, detect=detect)
    for case in labelled.all_cases():
        struck: dict[str, str | int] = {}
        clean = strike(case.text, sealing, struck)
        assert restore(clean, struck) == case.text
        if covered(case):
            assert case.value not in clean


def test_nothing_is_found_in_an_escaped_text_that_its_plain_form_has_not() -> None:
    assert detected("see%20page%2012%20of%2034") == []
    assert detected(r"\x00\x01\x02 and A1") == []


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_domains_are_found_only_if_they_are_asked_for() -> None:
    text = "see docs.example.org and main.py"
    assert detected(text) == []
    assert detected(text, detector_pipeline(kinds=["DOMAIN"])) == [("DOMAIN", "docs.example.org")]
    assert {"DOMAIN"} == OPTIONAL
    assert KINDS.keys() >= OPTIONAL


def test_findings_are_of_known_kinds() -> None:
    kinds = {kind for case in labelled.all_cases() for kind, _ in detected(case.text)}
    assert kinds <= KINDS.keys() - OPTIONAL
    assert kinds >= {"NATIONAL_ID", "TAX_ID", "BANK_CODE", "SESSION_COOKIE", "API_KEY", "PASSWORD"}


# ── the quick scan ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("amounts", ["", "Coffee 4.20, train 59.00, paper 12.40: ", "In 2024 there were 12 of "])
def test_passing_texts_with_amounts_loses_no_finding(amounts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [amounts + case.text for case in labelled.all_cases()]
    quick = [detect(text) for text in texts]

    def never(*_: object) -> bool:
        return False

    monkeypatch.setattr("remit_redaction.pipeline._are_amounts", never)
    assert quick == [detect(text) for text in texts]


def test_amounts_with_words_between_them_need_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Iterator[object]:
        raise AssertionError("a harmless text was examined")

    monkeypatch.setattr("remit_redaction.pipeline._Look.__call__", fail)
    assert detect("Coffee 4.20, train 59.00, paper 12.40") == ()
    with pytest.raises(AssertionError):
        detect("Coffee 4.20 59.00 12.40")
