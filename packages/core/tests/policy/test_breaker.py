"""An agent that keeps failing is left alone for a while, and then tried with one call."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from remit.policy.breaker import (
    MOST_CAUSES,
    USUAL_HALF_LIFE_S,
    Breaker,
    BreakerSettings,
    Phase,
    admitted,
    after,
    counts_against,
    is_failure,
    is_from_below,
    is_late,
    key_of,
    usual_now_s,
    usual_time_s,
    wait_ms,
)
from remit.policy.guards import breaker
from remit.policy.verdict import ALLOW, Facts
from remit.protocol.card import Capability
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Blame, Code, RemitError, fault
from remit.protocol.lifecycle import Status
from samples import a_card, a_request, a_response, code_of

DEFAULTS = BreakerSettings()
SUCCESS, FAILURE, NOTHING = False, True, None


def after_all(outcomes: Sequence[bool | None], now: float = 0, known: Breaker | None = None) -> Breaker:
    known = known or Breaker()
    for outcome in outcomes:
        known = after(known, outcome, now, DEFAULTS)
    return known


def probed(known: Breaker, outcome: bool | None, now: float) -> Breaker:
    """Return the breaker after the one call that it lets through at *now*."""
    assert wait_ms(known, now, DEFAULTS) == 0
    return after(admitted(known, now), outcome, now, DEFAULTS)


# ── what counts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_counts_for_the_callee() -> None:
    assert [is_failure(a_response(status=status)) for status in (Status.SUCCESS, Status.PARTIAL)] == [SUCCESS, SUCCESS]


@pytest.mark.parametrize("code", Code)
def test_only_the_peers_own_faults_count_against_it(code: Code) -> None:
    """K11: failure rate per agent; the errors of its callers and of the hub say nothing of it."""
    response = a_response(status=Status.FAILED, fault=fault(code, "it went wrong"))
    assert is_failure(response) is (FAILURE if TABLE[code].blame is Blame.PEER else NOTHING)


# ── when it opens ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_five_failures_in_a_row_open_it() -> None:
    """C8: a circuit breaker for each target; K11: stop routing at the threshold."""
    assert after_all([FAILURE] * 4).phase is Phase.CLOSED
    assert after_all([FAILURE] * 5, now=7) == Breaker(phase=Phase.OPEN, opened_at=7, openings=1)


def test_a_success_in_between_starts_the_row_anew() -> None:
    assert after_all([*[FAILURE] * 4, SUCCESS, *[FAILURE] * 4]).phase is Phase.CLOSED


def test_what_says_nothing_of_the_callee_neither_breaks_the_row_nor_adds_to_it() -> None:
    four = after_all([FAILURE] * 4)
    assert after_all([NOTHING] * 50, known=four) == four


HALF = [SUCCESS, FAILURE] * 10


def test_half_of_twenty_calls_within_a_minute_open_it() -> None:
    """K11: failure rate per agent."""
    assert after_all(HALF[:-1]).phase is Phase.CLOSED
    assert after_all(HALF).phase is Phase.OPEN


def test_less_than_half_does_not_open_it() -> None:
    assert after_all([SUCCESS, *HALF]).phase is Phase.CLOSED


def test_failures_of_more_than_a_minute_ago_do_not_count() -> None:
    assert after_all([SUCCESS, FAILURE], now=60, known=after_all(HALF[:-2])) == Breaker(
        in_a_row=1, window_start=60, calls=2, failures=1
    )


@pytest.mark.parametrize("openings", [0, 1])
def test_a_success_never_opens_it(openings: int) -> None:
    known = after_all([FAILURE, SUCCESS] * 9 + [FAILURE], known=Breaker(openings=openings, opened_at=-40))
    assert after(known, SUCCESS, 0, DEFAULTS).phase is Phase.CLOSED


# ── how long it stays open ────────────────────────────────────────────────────────────────────────────────────────────


def test_it_stays_open_thirty_seconds_longer_each_time_up_to_five_minutes() -> None:
    """K11: probe for recovery, less and less often."""
    now, pauses = 0.0, list[int]()
    known = after_all([FAILURE] * 5)
    for _ in range(12):
        pauses.append(wait_ms(known, now, DEFAULTS))
        now += pauses[-1] / 1_000
        known = probed(known, FAILURE, now)
    assert pauses == [30_000, 60_000, 90_000, 120_000, 150_000, 180_000, 210_000, 240_000, 270_000, *[300_000] * 3]


def test_the_wait_that_is_told_shrinks_with_time() -> None:
    known = after_all([FAILURE] * 5)
    assert [wait_ms(known, now, DEFAULTS) for now in (0, 10, 29.5, 30, 500)] == [30_000, 20_000, 500, 0, 0]


def test_one_call_is_let_through_as_the_probe_and_no_other_until_it_ends() -> None:
    """K11: periodically test if the agent recovered."""
    probing = admitted(after_all([FAILURE] * 5), 30)
    assert probing.phase is Phase.PROBING
    assert wait_ms(probing, 30, DEFAULTS) == 30_000


def test_a_probe_that_takes_longer_than_a_pause_keeps_nobody_else_from_probing() -> None:
    """K11: whoever was let through may have asked for something that never ends."""
    probing = admitted(after_all([FAILURE] * 5), 30)
    assert [wait_ms(probing, now, DEFAULTS) for now in (59, 60, 90)] == [1_000, 0, 0]
    again = admitted(probing, 60)
    assert wait_ms(again, 60, DEFAULTS) == 30_000
    assert after(again, False, 61, DEFAULTS).phase is Phase.CLOSED


def test_a_probe_that_succeeds_closes_it() -> None:
    """K11: recovery."""
    closed = probed(after_all([FAILURE] * 5), SUCCESS, now=30)
    assert closed == Breaker(opened_at=0, openings=1)
    assert (wait_ms(closed, 30, DEFAULTS), admitted(closed, 30)) == (0, closed)


def test_a_probe_that_says_nothing_lets_the_next_call_probe() -> None:
    opened = after_all([FAILURE] * 5)
    assert probed(opened, NOTHING, now=31) == opened


def test_late_results_do_not_change_how_long_it_stays_open() -> None:
    opened = after_all([FAILURE] * 5)
    late = after_all([FAILURE, SUCCESS, NOTHING, *[FAILURE] * 20], now=10, known=opened)
    assert (late.phase, wait_ms(late, 10, DEFAULTS)) == (Phase.OPEN, 20_000)


def test_an_agent_that_was_well_for_long_starts_at_thirty_seconds_again() -> None:
    known = after_all([FAILURE] * 5)
    known = probed(known, FAILURE, now=30)
    known = probed(known, SUCCESS, now=90)
    soon, later = 389, 390
    assert wait_ms(after_all([FAILURE] * 5, now=soon, known=known), soon, DEFAULTS) == 90_000
    assert wait_ms(after_all([FAILURE] * 5, now=later, known=known), later, DEFAULTS) == 30_000


# ── the law ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Model:
    """The breaker as a person would keep it: lists of what happened, counted each time."""

    def __init__(self) -> None:
        self.is_open = False
        self.opened_at: list[int] = []
        self.in_a_row: list[bool] = []
        self.window: list[tuple[int, bool]] = []

    def wait_s(self, now: int) -> int:
        if not self.is_open:
            return 0
        return max(0, self.opened_at[-1] + min(30 * len(self.opened_at), 300) - now)

    def ended(self, failed: bool | None, now: int) -> None:
        if failed is None:
            return
        if self.is_open:
            self.is_open, self.in_a_row, self.window = failed, [], []
            if failed:
                self.opened_at.append(now)
            return
        if self.opened_at and now >= self.opened_at[-1] + 360:
            self.opened_at = []
        if self.window and now >= self.window[0][0] + 60:
            self.window = []
        self.window.append((now, failed))
        self.in_a_row = [*self.in_a_row, failed] if failed else []
        failures = sum(failed for _, failed in self.window)
        if failed and (len(self.in_a_row) >= 5 or (len(self.window) >= 20 and failures >= len(self.window) / 2)):
            self.is_open = True
            self.opened_at.append(now)


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.known = Breaker()
        self.model = Model()

    @rule(seconds=st.sampled_from([1, 10, 29, 30, 59, 60, 300, 360]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: self.model.wait_s(self.now) > 0)
    @rule()
    def the_pause_passes(self) -> None:
        self.now += self.model.wait_s(self.now)

    @precondition(lambda self: self.model.wait_s(self.now) == 0)
    @rule(outcomes=st.lists(st.sampled_from([SUCCESS, FAILURE, FAILURE, NOTHING]), min_size=1, max_size=25))
    def calls_are_made(self, outcomes: list[bool | None]) -> None:
        for outcome in outcomes:
            if self.model.wait_s(self.now):
                break
            self.known = admitted(self.known, self.now)
            # The first call after an opening is the probe, and keeps all others out.
            assert (wait_ms(self.known, self.now, DEFAULTS) > 0) == self.model.is_open
            self.known = after(self.known, outcome, self.now, DEFAULTS)
            self.model.ended(outcome, self.now)

    @invariant()
    def calls_are_refused_as_long_as_the_model_says(self) -> None:
        assert wait_ms(self.known, self.now, DEFAULTS) == 1_000 * self.model.wait_s(self.now)


@pytest.mark.unwatched
def test_the_breaker_opens_waits_and_probes_as_its_model_does() -> None:
    """C8, K11: stop routing at the threshold, degrade gracefully, probe for recovery."""
    run_state_machine_as_test(BreakerMachine, settings=settings(stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]


# ── the guard ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_that_is_left_alone_is_temporarily_unavailable() -> None:
    """C8: DELEGATION_UNAVAILABLE, recoverable, with what to do; K11: a graceful degradation response."""
    assert breaker(a_request(), Facts(target=a_card())) == ALLOW
    assert code_of(breaker(a_request(), Facts(target=a_card(), breaker_wait_ms=500))) is Code.DELEGATION_UNAVAILABLE


# ── whom a fault counts against ───────────────────────────────────────────────────────────────────────────────────────


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
