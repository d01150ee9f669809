"""What others than a hub's own programs are told of faults in its agents' code."""

import pytest
from msgspec.structs import replace

from remit import Code, Fault, Origin, Record, Refusal, Response, SourceLine, Status, ToolUse, fault
from remit.protocol.records import Kind, outward
from samples import a_request, a_response

RAISED = Origin(agent="clerk", error="ValueError: no", frames=(SourceLine("a.py", 3, "f", "raise"),))
WHY = replace(fault(Code.DELEGATION_FAILED, "clerk raised ValueError: no"), origin=RAISED)
TOLD = fault(Code.DELEGATION_FAILED, "clerk failed; the reason is on record at its hub")


@pytest.mark.parametrize(
    ("why", "told"),
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
def test_a_fault_is_told_without_its_place_and_without_an_exceptions_text(why: Fault, told: Fault) -> None:
    assert why.outward() == told
    failed = a_response(status=Status.FAILED, result=None, fault=why)
    assert failed.outward() == replace(failed, fault=told)


def test_a_place_is_that_of_the_innermost_frame() -> None:
    assert (RAISED.file, RAISED.line, str(RAISED.frames[0])) == ("a.py", 3, "a.py:3, in f: raise")
    assert str(SourceLine("a.py", 3, "f")) == "a.py:3, in f"
    assert (Origin(agent="clerk").file, Origin(agent="clerk").line) == ("", 0)


def record(kind: Kind, body: Response | Refusal | ToolUse) -> Record:
    return Record(seq=1, kind=kind, at_ms=0, run="r", session="s", body=body)


def test_records_are_told_alike() -> None:
    failed = a_response(status=Status.FAILED, result=None, fault=WHY)
    use = ToolUse(delegation="r", agent="clerk", tool="look", fault=WHY)
    for kind, body, told in (
        (Kind.RESULT, failed, replace(failed, fault=TOLD)),
        (
            Kind.REFUSED,
            Refusal(request=a_request(), response=failed),
            Refusal(request=a_request(), response=replace(failed, fault=TOLD)),
        ),
        (Kind.TOOL, use, replace(use, fault=TOLD)),
        (Kind.RESULT, a_response(), a_response()),
    ):
        assert outward(record(kind, body)) == record(kind, told)
