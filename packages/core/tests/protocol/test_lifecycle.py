"""A delegation's life moves by the table or not at all."""

from itertools import product

import pytest

from remit.protocol.lifecycle import MOVES, DelegationState, IllegalMoveError, Status, advance

EVERY: tuple[DelegationState | Status, ...] = (*DelegationState, *Status)

# Said once more, and differently from the table: the life as a person would tell it.
WAYS_ON: dict[DelegationState, set[DelegationState | Status]] = {
    DelegationState.REQUESTED: {DelegationState.ASKING, DelegationState.QUEUED, Status.REFUSED},
    DelegationState.ASKING: {DelegationState.REQUESTED, Status.REFUSED},
    DelegationState.QUEUED: {DelegationState.RUNNING, Status.REFUSED},
    DelegationState.RUNNING: {Status.SUCCESS, Status.PARTIAL, Status.REFUSED},
}
STOPPED = {Status.FAILED, Status.TIMEOUT, Status.CANCELLED}


def allowed(state: DelegationState | Status, to: DelegationState | Status) -> bool:
    return isinstance(state, DelegationState) and (to in STOPPED or to in WAYS_ON[state])


@pytest.mark.parametrize(("state", "to"), [pair for pair in product(EVERY, EVERY) if allowed(*pair)])
def test_a_move_in_the_table_is_made(state: DelegationState | Status, to: DelegationState | Status) -> None:
    assert advance(state, to) is to


@pytest.mark.parametrize(("state", "to"), [pair for pair in product(EVERY, EVERY) if not allowed(*pair)])
def test_a_move_that_is_not_in_the_table_is_not_made(
    state: DelegationState | Status, to: DelegationState | Status
) -> None:
    with pytest.raises(IllegalMoveError, match=f"cannot move from {state} to {to}"):
        advance(state, to)


def test_the_table_knows_every_state_and_leads_nowhere_else() -> None:
    assert set(MOVES) == set(EVERY)
    assert set().union(*MOVES.values()) <= set(EVERY)


@pytest.mark.parametrize("status", Status)
def test_what_has_ended_stays_ended(status: Status) -> None:
    assert MOVES[status] == frozenset()


@pytest.mark.parametrize("status", Status)
def test_every_end_can_be_reached_from_the_start(status: Status) -> None:
    reached: list[DelegationState | Status] = [DelegationState.REQUESTED]
    for state in reached:
        reached.extend(MOVES[state].difference(reached))
    assert status in reached
