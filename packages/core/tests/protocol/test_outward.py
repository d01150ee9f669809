"""What others than a hub's own programs are told of faults in its agents' code."""

import pytest
from msgspec.structs import replace

from remit import Code, Fault, Origin, Record, Refusal, RemitError, Response, SourceLine, Status, ToolUse, fault
from remit.protocol.envelope import MODEL
from remit.protocol.errors import INWARD
from remit.protocol.records import Kind, Progress, outward
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
        (Kind.RESULT, a_response(metadata={MODEL: {"name": "m"}, "page": 3}), a_response(metadata={"page": 3})),
    ):
        assert outward(record(kind, body)) == record(kind, told)


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
    told = full.outward()
    assert (told.code, told.retry_after_ms, told.recoverable) == (Code.STORE_UNAVAILABLE, 5, True)
    assert told.message == "the store cannot record now, so nothing may start and no answer may leave"
    assert told.suggestion == "Send the same request id again later."


def test_the_fields_that_are_never_sent_are_fields_of_a_fault() -> None:
    assert set(INWARD) <= set(Fault.__struct_fields__)
    assert all(not getattr(replace(WHY, detail="x").outward(), name) for name in INWARD)


def test_what_holds_no_fault_is_told_as_it_is() -> None:
    progress = Progress(delegation="r", agent="tag", text="half")
    record = Record(seq=1, kind=Kind.PROGRESS, at_ms=1, run="r", session="s", body=progress)
    assert outward(record) is record
