"""The table of errors is whole, and what is made from it can be read."""

import re

import pytest
from msgspec.structs import replace

from doc_pages import page_path
from remit import Code, Fault, Origin, Record, Refusal, RemitError, Response, SourceLine, Status, ToolUse, fault
from remit.protocol.codec import convert
from remit.protocol.envelope import MODEL, Request, ToolFinding
from remit.protocol.errors import INWARD, TABLE, Blame, Problem, duration, in_sentences
from remit.protocol.records import Kind, Progress, outward
from remit.protocol.submission import Submission
from samples import a_request, a_response

ERRORS_PAGE = page_path("errors")

# DESIGN.md: 1 run failed, 2 usage, 3 configuration, 4 policy, 5 limit, 6 time-out, 7 unreachable, 130 interrupted.
EXIT_CODES = {1, 2, 3, 4, 5, 6, 7, 130}
STATUSES = {400, 401, 403, 404, 409, 413, 415, 422, 429, 499, 500, 502, 503, 504}


def test_every_code_has_its_row_and_every_row_its_code() -> None:
    assert list(TABLE) == list(Code)


@pytest.mark.parametrize("code", Code)
def test_a_code_is_spelled_as_it_is_named(code: Code) -> None:
    assert code == code.name


def test_the_codes_that_others_rely_on_are_there() -> None:
    """C6: the codes of the source document, and those that the later floors build on."""
    promised = """
        MAX_DEPTH_EXCEEDED CHAIN_TOO_LONG LOOP_DETECTED CYCLE_DETECTED FAN_OUT_EXCEEDED TIMEOUT TOKEN_BUDGET_EXCEEDED
        PERMISSION_DENIED TOOL_NOT_ALLOWED USER_MISMATCH AGENT_NOT_FOUND CAPABILITY_NOT_FOUND INPUT_VALIDATION_FAILED
        DATA_MISSING_REQUIRED_INPUT
        RESULT_VALIDATION_FAILED VERSION_UNSUPPORTED NESTED_CALLS_FORBIDDEN RATE_LIMITED DELEGATION_UNAVAILABLE
        DELEGATION_FAILED CANCELLED APPROVAL_DECLINED DUPLICATE_REQUEST OVERLOADED OUTCOME_UNKNOWN PATH_NOT_ALLOWED
        UNAUTHENTICATED CREDENTIAL_INVALID CREDENTIAL_EXPIRED
    """
    assert set(promised.split()) - set(Code) == set()


@pytest.mark.parametrize("code", Code)
def test_a_row_stays_within_the_documented_exit_codes_and_statuses(code: Code) -> None:
    row = TABLE[code]
    assert (row.exit_code in EXIT_CODES, row.status in STATUSES, row.blame in Blame) == (True, True, True)


@pytest.mark.parametrize("code", Code)
def test_every_code_says_what_it_means_and_what_to_do_in_whole_sentences(code: Code) -> None:
    """C6: an error suggests what to do."""
    sentence = re.compile(r"[A-Z].+\.")
    assert sentence.fullmatch(TABLE[code].meaning)
    assert sentence.fullmatch(TABLE[code].suggestion)


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_heading_in_the_documentation(code: Code) -> None:
    headings = re.findall(r"^#+ +`?(\w+)`?", ERRORS_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert code in headings


@pytest.mark.parametrize("code", Code)
def test_a_fault_takes_its_advice_from_the_table(code: Code) -> None:
    """C6: an error says whether it is recoverable."""
    row = TABLE[code]
    assert fault(code, "it went wrong") == Fault(
        code=code,
        message="it went wrong",
        recoverable=row.recoverable,
        suggestion=row.suggestion.replace("for the time given", "a while").replace("the fields that are named", "it"),
    )


def test_a_fault_can_carry_better_advice_than_the_table_has() -> None:
    problems = (Problem("$.input.title", "required field is missing"),)
    assert fault(
        Code.DELEGATION_FAILED,
        "the document could not be made",
        problems=problems,
        retry_after_ms=5,
        foreign="TITLE_IS_MISSING",
        suggestion="Name a title.",
    ) == Fault(
        code=Code.DELEGATION_FAILED,
        message="the document could not be made",
        recoverable=True,
        suggestion="Name a title.",
        problems=problems,
        retry_after_ms=5,
        foreign="TITLE_IS_MISSING",
    )


def test_a_raised_fault_reads_as_code_message_wrong_fields_and_advice() -> None:
    error = RemitError(
        Fault(
            code=Code.MALFORMED_ENVELOPE,
            message="2 fields are wrong: $.a, $.b",
            suggestion="Correct them.",
            problems=(Problem("$.a", "unknown field"), Problem("$.b", "required field is missing")),
        )
    )
    assert str(error) == (
        "MALFORMED_ENVELOPE: 2 fields are wrong: $.a, $.b\n"
        "  $.a: unknown field\n"
        "  $.b: required field is missing\n"
        "  → Correct them."
    )


def test_a_raised_fault_without_advice_is_one_line() -> None:
    assert str(RemitError(Fault(code=Code.CANCELLED, message="stopped"))) == "CANCELLED: stopped"


# ── advice ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "wait_ms", "suggestion"),
    [
        (Code.RATE_LIMITED, 1_500, "Wait 2 s and try again."),
        (Code.RATE_LIMITED, None, "Wait a while and try again."),
        (Code.OVERLOADED, 200, "Wait 200 ms and try again, or ask another agent."),
        (Code.DELEGATION_UNAVAILABLE, 240_000, "Try again in 4 minutes or use an alternative."),
        (Code.DELEGATION_UNAVAILABLE, None, "Try again later or use an alternative."),
    ],
)
def test_advice_to_wait_gives_the_time_where_it_is_known(code: Code, wait_ms: int | None, suggestion: str) -> None:
    assert fault(code, "no", retry_after_ms=wait_ms).suggestion == suggestion


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (1_001, "2 s"), (119_000, "119 s"), (119_001, "2 minutes")],
)
def test_a_time_to_wait_is_never_told_shorter_than_it_is(milliseconds: int, words: str) -> None:
    assert duration(milliseconds) == words


@pytest.mark.parametrize(
    ("parts", "sentences"),
    [
        (("it failed", "Try again."), "it failed. Try again."),
        (("it failed.", "Install: pip install x"), "it failed. Install: pip install x."),
        (("did you mean `a`?", ""), "did you mean `a`?"),
        (("", ""), ""),
    ],
)
def test_sentences_do_not_run_together(parts: tuple[str, ...], sentences: str) -> None:
    assert in_sentences(*parts) == sentences


def test_every_advice_of_the_table_is_a_sentence() -> None:
    for code, row in TABLE.items():
        assert row.suggestion.endswith("."), code
        assert row.suggestion[0].isupper(), code


def test_material_in_the_objective_leads_to_the_input() -> None:
    """900 KB of text do not become shorter by correcting the field."""
    sent = {"target": "reader", "user": "u", "objective": "word " * 180_000}
    with pytest.raises(RemitError) as caught:
        convert(sent, Submission)
    assert "`--input @FILE`" in caught.value.fault.suggestion
    with pytest.raises(RemitError) as caught:
        convert({**sent, "objective": 7}, Submission)
    assert caught.value.fault.suggestion == "Correct the fields that are named and send it again."


def test_what_is_no_envelope_at_all_names_no_fields() -> None:
    with pytest.raises(RemitError) as caught:
        convert([], Request)
    assert caught.value.fault.suggestion == "Correct it and send it again."


# ── what others are told ──────────────────────────────────────────────────────────────────────────────────────────────


RAISED = Origin(agent="clerk", error="ValueError: no", frames=(SourceLine("a.py", 3, "f", "raise"),))
WHY = replace(fault(Code.DELEGATION_FAILED, "clerk raised ValueError: no"), origin=RAISED)
TOLD = fault(Code.DELEGATION_FAILED, "clerk failed; the reason is on record at its hub")


@pytest.mark.parametrize(
    ("why", "outward"),
    [
        (WHY, TOLD),
        (
            replace(WHY, origin=replace(RAISED, tool="look")),
            replace(TOLD, message="tool look of clerk failed; the reason is on record at its hub"),
        ),
        (replace(WHY, message="closed", origin=replace(RAISED, error="")), replace(TOLD, message="closed")),
        (TOLD, TOLD),
    ],
)
def test_a_fault_is_told_without_its_place_and_without_an_exceptions_text(why: Fault, outward: Fault) -> None:
    assert why.outward() == outward
    failed = a_response(status=Status.FAILED, result=None, fault=why)
    assert failed.outward() == replace(failed, fault=outward)
    looked_up = replace(failed, findings=(ToolFinding(tool="look", result="7C"),))
    assert looked_up.outward() == failed.outward()


def test_a_place_is_that_of_the_innermost_frame() -> None:
    assert (RAISED.file, RAISED.line, str(RAISED.frames[0])) == ("a.py", 3, "a.py:3, in f: raise")
    assert str(SourceLine("a.py", 3, "f")) == "a.py:3, in f"
    assert (Origin(agent="clerk").file, Origin(agent="clerk").line) == ("", 0)


def record(kind: Kind, body: Response | Refusal | ToolUse) -> Record:
    return Record(seq=1, kind=kind, at_ms=0, run="r", session="s", body=body)


def test_records_are_told_alike() -> None:
    failed = a_response(status=Status.FAILED, result=None, fault=WHY)
    use = ToolUse(delegation="r", agent="clerk", tool="look", fault=WHY)
    for kind, body, outward_body in (
        (Kind.RESULT, failed, replace(failed, fault=TOLD)),
        (
            Kind.REFUSED,
            Refusal(request=a_request(), response=failed),
            Refusal(request=a_request(), response=replace(failed, fault=TOLD)),
        ),
        (Kind.TOOL, use, replace(use, fault=TOLD)),
        (Kind.RESULT, a_response(), a_response()),
        (Kind.RESULT, a_response(metadata={MODEL: {"name": "m"}, "page": 3}), a_response(metadata={"page": 3})),
    ):
        assert outward(record(kind, body)) == record(kind, outward_body)


def test_what_only_the_operator_is_told_stays_here() -> None:
    far = fault(Code.DELEGATION_UNAVAILABLE, "far cannot be reached", detail="http://10.0.0.5:8080: Connection refused")
    assert far.outward() == fault(Code.DELEGATION_UNAVAILABLE, "far cannot be reached")
    assert replace(WHY, detail="at home").outward() == TOLD
    assert str(RemitError(far)).splitlines()[:2] == [
        "DELEGATION_UNAVAILABLE: far cannot be reached",
        "  http://10.0.0.5:8080: Connection refused",
    ]


def test_of_a_store_that_fails_others_are_told_neither_its_path_nor_the_systems_words() -> None:
    full = fault(Code.STORE_UNAVAILABLE, "/var/lib/hub.db: the disk is full (FullError)", retry_after_ms=5)
    outward = full.outward()
    assert (outward.code, outward.retry_after_ms, outward.recoverable) == (Code.STORE_UNAVAILABLE, 5, True)
    assert outward.message == "the store cannot record now, so nothing may start and no answer may leave"
    assert outward.suggestion == "Send the same request id again later."


def test_the_fields_that_are_never_sent_are_fields_of_a_fault() -> None:
    assert set(INWARD) <= set(Fault.__struct_fields__)
    assert all(not getattr(replace(WHY, detail="x").outward(), name) for name in INWARD)


def test_what_holds_no_fault_is_told_as_it_is() -> None:
    progress = Progress(delegation="r", agent="tag", text="half")
    record = Record(seq=1, kind=Kind.PROGRESS, at_ms=1, run="r", session="s", body=progress)
    assert outward(record) is record
