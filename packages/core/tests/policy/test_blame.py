"""Which agent a fault counts against."""

import pytest

from remit.policy.breaker import (
    MOST_CAUSES,
    USUAL_HALF_LIFE_S,
    Breaker,
    BreakerSettings,
    Phase,
    admitted,
    after,
    counts_against,
    is_from_below,
    is_late,
    key_of,
    usual_now_s,
    usual_time_s,
)
from remit.protocol.card import Capability
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from samples import a_card, a_response

BROKEN = fault(Code.DELEGATION_FAILED, "tracking raised ValueError")
BELOW = {key_of(BROKEN)}
SETTINGS = BreakerSettings()


def failed_with(code: Code) -> Response:
    return a_response(status=Status.FAILED, fault=fault(code, "it went wrong"))


def caused(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


# ── what is passed on ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error",
    [
        RemitError(BROKEN),
        caused(ValueError("no parcel"), RemitError(BROKEN)),
        caused(ValueError("no parcel"), caused(KeyError("x"), RemitError(BROKEN))),
        ExceptionGroup("two", [RemitError(BROKEN), caused(ValueError(), RemitError(BROKEN))]),
    ],
)
def test_what_came_from_below_is_known_by_its_code_and_words(error: BaseException) -> None:
    assert is_from_below(error, BELOW)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("own"),
        RemitError(fault(Code.DELEGATION_FAILED, "in words of its own")),
        ExceptionGroup("two", [RemitError(BROKEN), ValueError("own")]),
    ],
)
def test_what_began_here_did_not_come_from_below(error: BaseException) -> None:
    assert not is_from_below(error, BELOW)


def test_an_exception_raised_while_a_fault_is_handled_came_from_below() -> None:
    def wrap(*, hide: bool) -> Exception:
        try:
            try:
                raise RemitError(BROKEN)
            except RemitError:
                if hide:
                    raise LookupError("no parcel") from None
                raise LookupError("no parcel")  # noqa: B904 - as careless code does it
        except LookupError as error:
            return error

    assert is_from_below(wrap(hide=False), BELOW)
    assert not is_from_below(wrap(hide=True), BELOW)


def test_a_chain_of_causes_without_end_is_given_up() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert not is_from_below(first, BELOW)
    assert MOST_CAUSES > 10


def test_what_is_passed_on_says_nothing_of_the_agent_that_passes_it_on() -> None:
    response = failed_with(Code.DELEGATION_FAILED)
    assert counts_against(response, passed_on=True, had_s=30, usual_s=1) is None
    assert counts_against(response, passed_on=False, had_s=30, usual_s=1) is True
    assert counts_against(failed_with(Code.PERMISSION_DENIED), passed_on=False, had_s=30, usual_s=1) is None
    assert counts_against(a_response(), passed_on=True, had_s=0, usual_s=1) is False


# ── time-outs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("had_s", "counts"), [(0.05, None), (1.79, None), (1.8, True), (30, True)])
def test_a_time_out_counts_only_if_the_callee_had_its_usual_time(had_s: float, counts: bool | None) -> None:
    assert counts_against(failed_with(Code.TIMEOUT), passed_on=False, had_s=had_s, usual_s=2) is counts


def test_a_time_out_that_does_not_count_still_says_how_long_the_callee_takes_at_least() -> None:
    cut = a_response(status=Status.TIMEOUT, fault=fault(Code.TIMEOUT, "too late"))
    assert is_late(cut, None)
    assert not is_late(cut, True)
    assert not is_late(failed_with(Code.DELEGATION_FAILED), None)


def test_any_other_fault_counts_however_little_time_there_was() -> None:
    response = failed_with(Code.RESULT_VALIDATION_FAILED)
    assert counts_against(response, passed_on=False, had_s=0.05, usual_s=2) is True


def test_the_usual_time_is_that_of_its_successes_else_that_of_its_card_else_the_default() -> None:
    slow, quick = Capability(code="SLOW", time_ms=60_000), Capability(code="QUICK")
    card = a_card(capabilities=(slow, quick), time_ms=5_000)
    assert usual_time_s(0.2, card, "SLOW", 30_000) == 0.2
    assert usual_time_s(None, card, "SLOW", 30_000) == 60
    assert usual_time_s(None, card, "QUICK", 30_000) == 5
    assert usual_time_s(None, card, None, 30_000) == 5
    assert usual_time_s(None, a_card(), "NONE", 30_000) == 30


def test_the_time_of_successes_rises_at_once_falls_with_time_and_outlives_an_opening() -> None:
    known = Breaker()
    assert usual_now_s(known, 0) is None
    for seconds in (1.0, 4.0, *[0.001] * 1_000):
        known = after(known, False, 0, SETTINGS, seconds)
    assert known.usual_s == 4
    for _ in range(5):
        known = after(known, True, 0, SETTINGS, 60.0)
    assert (known.phase, known.usual_s) == (Phase.OPEN, 4)
    later = 2 * USUAL_HALF_LIFE_S
    assert usual_now_s(known, later) == 1
    assert usual_now_s(after(admitted(known, 30), True, 30, SETTINGS, 60.0), later) == 1
    assert after(admitted(known, later), False, later, SETTINGS, 0.5).usual_s == 1
    assert after(admitted(known, later), False, later, SETTINGS, 2.0).usual_s == 2
    assert after(known, False, 500, SETTINGS).usual_s == 4
