"""What can be told of a run from its records."""

import pytest
from msgspec.structs import replace

from remit.protocol.codec import VERSIONS, VersionStep, decode, encode
from remit.protocol.envelope import Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import (
    BODIES,
    Approval,
    Body,
    ChainBreak,
    Delta,
    Kind,
    Notice,
    Progress,
    Record,
    Refusal,
    Removal,
    SharedStep,
    ToolUse,
    agent_of,
    outcome_in,
    outline,
    read_body,
    read_request,
    read_response,
    request_in,
    response_in,
)
from samples import a_request, a_response

PROGRESS = Progress(delegation="r-1", agent="tag", text="halfway", finished=("rent",), unfinished=("food",))
TOOL = ToolUse(delegation="r-1", agent="tag", tool="read", input={"path": "a.txt"}, duration_ms=3, begun=True)
NOTICE = Notice(delegation="r-1", agent="tag", text="spent 5 tokens too many", code=Code.TOKEN_BUDGET_EXCEEDED)
REFUSED = a_response(status=Status.REFUSED, result=None, fault=fault(Code.LOOP_DETECTED, "again"))
REFUSAL = Refusal(request=a_request(), response=REFUSED)

APPROVAL = Approval(
    delegation="r-1", agent="pay", id="r-1-ab", question="Pay?", agreed=True, by="eve", edited=("input",)
)

SHARED = SharedStep(
    side="asks", profile="reviewer", device="d-2", event="Drafted", turn=2, mode="semi_auto", rules=("links", "money")
)

EXAMPLES: dict[Kind, Body] = {
    Kind.STARTED: a_request(),
    Kind.DELEGATION: a_request(parent="run-1"),
    Kind.PROGRESS: PROGRESS,
    Kind.TOOL: TOOL,
    Kind.NOTICE: NOTICE,
    Kind.RESULT: a_response(),
    Kind.REFUSED: REFUSAL,
    Kind.APPROVAL: APPROVAL,
    Kind.SHARED: SHARED,
    Kind.BREAK: ChainBreak(finding="key changed", text="a new key", old_key="aa", new_key="bb"),
    Kind.REMOVED: Removal(
        why="pruned", rule="messages 90d", first=1, last=9, before="00", after="aa", gone=(2, 4), at_ms=5, key="bb"
    ),
    Kind.DELTA: Delta(delegation="run-1", agent="tag", text="It "),
}


def recorded(*bodies: Body) -> list[Record]:
    return [
        Record(seq=seq, kind=Kind.NOTICE, at_ms=1_000 + seq, run="run-1", session="s-1", body=body)
        for seq, body in enumerate(bodies)
    ]


@pytest.mark.parametrize("kind", Kind)
def test_a_record_of_every_kind_is_read_back_as_it_was_written(kind: Kind) -> None:
    body = EXAMPLES[kind]
    assert decode(encode(body), BODIES[kind]) == body


@pytest.mark.parametrize("kind", Kind)
def test_a_stored_row_is_read_back_as_it_was_written(kind: Kind) -> None:
    body = EXAMPLES[kind]
    assert read_body(kind, encode(body)) == body


LATER = VERSIONS.then(
    VersionStep(
        version="1.1",
        upgrade=lambda value: {"target" if key == "callee" else key: each for key, each in value.items()},
        downgrade=lambda value: value,
    )
)


@pytest.mark.parametrize("kind", Kind)
def test_a_row_that_an_older_version_stored_is_read_as_the_current_one(kind: Kind) -> None:
    """X14: rows are never rewritten, so readers upgrade."""
    old = encode(EXAMPLES[kind]).replace(b'"target":', b'"callee":')
    current = encode(EXAMPLES[kind]).replace(b'"version":"1.0"', b'"version":"1.1"')
    assert read_body(kind, old, LATER) == read_body(kind, current)


def test_an_outline_tells_who_asked_whom_and_how_it_ended_and_nothing_that_was_said() -> None:
    request, response = a_request(capability="SORT"), a_response(summary="said", usage=Usage(prompt=3))
    assert outline(request) == replace(request, objective="", input=None, handoff=None, hints=())
    assert outline(response) == a_response(result=None, summary="", usage=Usage(prompt=3))
    assert [outline(body) for kind, body in EXAMPLES.items() if kind not in ENVELOPES] == [None] * 9


ENVELOPES = (Kind.STARTED, Kind.DELEGATION, Kind.RESULT)


def test_what_started_and_what_ended_something_is_read_as_what_it_is() -> None:
    assert read_request(encode(a_request())) == a_request()
    assert read_response(encode(a_response())) == a_response()


def test_an_id_is_its_senders_own() -> None:
    """Decision 6: two hubs may choose the same without knowing of each other."""
    assert (a_request().sender, a_request(via="north").sender) == ("prime", "prime@north")


def test_a_record_is_about_the_agent_that_is_called_or_speaks() -> None:
    about = {kind: agent_of(body) for kind, body in EXAMPLES.items()}
    others = {Kind.APPROVAL: "pay", Kind.SHARED: SHARED.profile, Kind.BREAK: "", Kind.REMOVED: ""}
    assert about == dict.fromkeys(Kind, "tag") | others


def test_a_record_of_a_refusal_holds_request_and_response() -> None:
    assert (request_in(REFUSAL), response_in(REFUSAL)) == (REFUSAL.request, REFUSED)
    assert (request_in(a_request()), response_in(a_request())) == (a_request(), None)
    assert (request_in(a_response()), response_in(a_response())) == (None, a_response())
    assert (request_in(NOTICE), response_in(NOTICE)) == (None, None)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (a_response(id="chosen-by-its-sender"), a_response(id="chosen-by-its-sender")),
        (a_response(id="run-1.1"), None),
        (REFUSAL, REFUSED),
        (Refusal(request=a_request(parent="run-1"), response=REFUSED), None),
        (NOTICE, None),
    ],
)
def test_the_outcome_of_a_run_is_the_response_to_its_root(body: Body, outcome: object) -> None:
    assert outcome_in("run-1", body) == outcome
