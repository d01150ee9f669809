"""The table of errors is whole, and what is made from it can be read."""

import re

import pytest

from doc_pages import page_path
from remit.protocol.errors import TABLE, Blame, Code, Fault, Problem, RemitError, fault

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
