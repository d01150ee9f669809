"""What envelopes say of themselves."""

import msgspec
import pytest
from hypothesis import given

from remit.protocol.envelope import Assignment, AssignmentOptions, BoundedAssignment, Request, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from samples import a_request, a_response
from strategies import usages


def test_every_part_of_an_assignment_is_an_option_of_those_who_ask() -> None:
    assert AssignmentOptions.__optional_keys__ | {"objective"} == set(BoundedAssignment.__struct_fields__)


def test_a_submission_has_the_fields_of_a_request() -> None:
    """A `Struct` has one base, so these are written twice; what only a hub of the same team says is not sent."""
    own = {"version", "id", "origin", "target", "remit", "approved", *Assignment.__struct_fields__}
    request, submission = ({each.name: each for each in msgspec.structs.fields(kind)} for kind in (Request, Submission))
    assert {name: submission.get(name) for name in request if name not in own} == {
        name: each for name, each in request.items() if name not in own
    }


def test_usage_adds_up_and_an_estimate_stays_one() -> None:
    """X2: token_usage has prompt, completion and total."""
    total = Usage(prompt=10, completion=5) + Usage(prompt=1, completion=2, overrun=3, estimated=True)
    assert total == Usage(prompt=11, completion=7, overrun=3, estimated=True)
    assert total.total == 18


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert (one + two) + three == three + (two + one)


def test_a_root_stands_where_its_run_does_whatever_id_its_sender_chose() -> None:
    assert a_request(id="r-1", run="run-1").path == "run-1"
    assert a_request(id="run-1.2", run="run-1", parent="run-1").path == "run-1.2"


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.PARTIAL])
def test_a_response_with_something_to_use_unwraps_to_its_result(status: Status) -> None:
    response = a_response(status=status, result={"npv": 24156.72})
    assert (response.ok, response.unwrap()) == (True, {"npv": 24156.72})


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMEOUT, Status.REFUSED, Status.CANCELLED])
def test_a_response_without_a_result_unwraps_to_its_fault(status: Status) -> None:
    why = fault(Code.TIMEOUT, "tag took more than 5000 ms")
    response = a_response(status=status, result=None, fault=why)
    with pytest.raises(RemitError) as raised:
        response.unwrap()
    assert (response.ok, raised.value.fault) == (False, why)


def test_a_failure_that_gives_no_reason_is_still_a_fault() -> None:
    with pytest.raises(RemitError) as raised:
        a_response(status=Status.FAILED).unwrap()
    assert raised.value.fault == fault(Code.DELEGATION_FAILED, "tag gave no reason")
