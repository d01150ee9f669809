"""The A2A dialect: whatever passes through it, and through protobuf on its way, comes back as it was."""

import base64
import json
import re
from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dialect_laws import ended_responses, outcome, sent_requests, wild_claims
from remit.protocol.codec import convert, decode, encode
from remit.protocol.envelope import Artifact, Handoff, Note, Request, Response, Usage, View
from remit.protocol.errors import TABLE, Code, Fault, RemitError, fault
from remit.protocol.files import MAX_FILE_BYTES, File
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Delta, Kind, Progress, Record, Refusal
from remit.protocol.submission import Submission
from remit_server.dialects.a2a.card import canonical, choose, is_signed_by, read_card, signed
from remit_server.dialects.a2a.errors import ERRORS, EXTENSION, Declined, Error, error_body
from remit_server.dialects.a2a.parts import AcceptedContent, whole
from remit_server.dialects.a2a.requests import send, submission
from remit_server.dialects.a2a.responses import Stream, TaskPresentation, declines, ended_task, state_of, under_way
from remit_server.dialects.a2a.translator import TONGUE, A2aTaskExchange, A2aTranslator
from remit_server.dialects.a2a.types import (
    ENDED,
    A2aMessage,
    A2aPart,
    AskedMessage,
    Binding,
    SendMessage,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    is_spoken,
    milliseconds,
    timestamp,
)
from remit_server.dialects.claims import flat
from samples import a_remit, a_request, a_response
from strategies import json_values, texts

TELLING = TaskPresentation(task="t-1", context="c-1", extended=True)


def through_protobuf(sent: SendMessage) -> AskedMessage:
    """Return a message as a server gets it that keeps it as protobuf does."""
    parsed = ParseDict(json.loads(encode(sent)), pb.SendMessageRequest())
    return convert(MessageToDict(parsed), SendMessage).message


def received(message: AskedMessage, request: Request) -> Submission:
    return submission(message, request.target, extended=True, traceparent=request.traceparent)


def meant(request: Request, session: str | None) -> Submission:
    traceparent = None if request.traceparent is None else request.traceparent[:55]
    return replace(flat(request), session=session, traceparent=traceparent)


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sent_requests)
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    message = send(request, extended=True, context=request.session or "").message
    assert received(message, request) == meant(request, request.session)


@given(sent_requests)
def test_a_request_survives_protobuf(request: Request) -> None:
    """Integers would become fractions: those of the remit are texts, and whole numbers are integers again."""
    message = through_protobuf(send(request, extended=True))
    parsed = received(message, request)
    assert replace(parsed, input=None) == replace(meant(request, None), input=None)
    assert whole(parsed.input) == whole(request.input)
    assert message.metadata is not None
    remit = message.metadata[EXTENSION]
    assert (remit["tokens"], remit["timeMs"]) == (str(request.remit.tokens), str(request.remit.time_ms))


@given(st.lists(st.fixed_dictionaries({}, optional={"text": texts, "data": json_values, "mediaType": texts})))
def test_whatever_a_client_sends_is_understood_or_declined(parts: list[Any]) -> None:
    raw = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
    with suppress(Declined, RemitError):
        assert submission(convert(raw, AskedMessage), "tag", extended=False).target == "tag"


@given(
    wild_claims, st.fixed_dictionaries({}, optional={"tokens": st.integers(0, 10).map(str), "tools": st.just(["t"])})
)
def test_claims_allow_nothing_that_the_words_do_not(claims: Any, words: dict[str, Any]) -> None:
    metadata = {EXTENSION: words | {"rest": json.dumps(claims)}}
    message = AskedMessage(message_id="m", role="ROLE_USER", parts=(A2aPart(text="x"),), metadata=metadata)
    parsed = outcome(lambda: submission(message, "tag", extended=True))
    if isinstance(parsed, Fault):
        assert parsed.code is Code.MALFORMED_ENVELOPE
    else:
        assert (parsed.id, parsed.objective, parsed.target) == ("m", "x", "tag")
        assert "tokens" not in words or parsed.max_tokens == int(words["tokens"])
        assert "tools" not in words or (parsed.tools is not None and set(parsed.tools) <= {"t"})


def test_what_stands_under_the_extensions_name_counts_only_if_it_is_used() -> None:
    metadata = {EXTENSION: {"user": "root"}}
    message = AskedMessage(message_id="m", role="ROLE_USER", parts=(A2aPart(text="x"),), metadata=metadata)
    assert submission(message, "tag", extended=False).user is None
    assert submission(message, "tag", extended=True).user == "root"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"depth": "-1"}, "depth"),
        ({"depth": "1e3"}, "depth"),
        ({"tokens": 0.5}, "tokens"),
        ({"tokens": -1}, "tokens"),
        ({"timeMs": 2**60}, "timeMs"),
        ({"timeMs": "9" * 16}, "timeMs"),
        ({"inputPart": "x"}, "inputPart"),
        ({"rest": "{"}, "rest"),
        ({"rest": "[]"}, "rest"),
        ({"priority": "now"}, "priority"),
    ],
)
def test_a_wrong_word_of_the_extension_is_refused_by_name(words: dict[str, Any], field: str) -> None:
    message = AskedMessage(message_id="m", role="ROLE_USER", parts=(A2aPart(text="x"),), metadata={EXTENSION: words})
    refused = outcome(lambda: submission(message, "tag", extended=True))
    assert isinstance(refused, Fault)
    (problem,) = refused.problems
    assert problem.path == f"$.message.metadata['{EXTENSION}'].{field}"


def test_a_file_that_is_too_large_is_declined_by_name() -> None:
    def sent(size: int) -> Submission:
        raw = base64.b64encode(bytes(size)).decode()
        message = AskedMessage(message_id="m", role="ROLE_USER", parts=(A2aPart(text="x"), A2aPart(raw=raw)))
        return submission(message, "tag", extended=False)

    assert sent(MAX_FILE_BYTES).files == (File(name="file-1", data=bytes(MAX_FILE_BYTES)),)
    with pytest.raises(Declined) as caught:
        sent(MAX_FILE_BYTES + 1)
    assert list(caught.value.fields) == ["message.parts[1].raw"]


def test_a_text_that_is_too_long_for_an_objective_is_the_input() -> None:
    long = "x" * 100_001
    parsed = submission(convert(_plain([{"text": long}]), AskedMessage), "tag", extended=False)
    assert (parsed.objective, parsed.input) == ("", long)
    with pytest.raises(Declined) as why:
        submission(convert(_plain([{"text": long}, {"data": 1}]), AskedMessage), "tag", extended=False)
    assert why.value.error is Error.INVALID_PARAMS


def _plain(parts: list[Any]) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": parts}


def test_a_peer_that_knows_no_extension_is_told_what_it_may_see_as_a_text() -> None:
    view = View(summary="So far.", known=(Note("fact", "likes tea"),), workspace="A folder.")
    request = a_request(view=view, handoff=Handoff(decisions=("keep it short",)), input={"n": 1})
    message = send(request, extended=False).message
    context, objective, data = message.parts
    assert (objective.text, data.data, message.metadata) == (request.objective, {"n": 1}, None)
    for text in ("So far.", "likes tea", "A folder.", "keep it short"):
        assert text in (context.text or "")


# ── what is answered ──────────────────────────────────────────────────────────────────────────────────────────────────


def response_from(task: Any, request: Request) -> Response:
    hearing = A2aTaskExchange(request)
    hearing.take(StreamResponse(task=decode(encode(task), Task)))
    return hearing.response()


def normal(response: Response) -> Response:
    """Return a response in which numbers without a fraction are integers."""
    return replace(
        response,
        result=whole(response.result),
        artifacts=tuple(replace(each, value=whole(each.value)) for each in response.artifacts),
        metadata=whole(response.metadata),
    )


@given(ended_responses)
def test_a_response_comes_back_as_it_was(response: Response) -> None:
    request = a_request(id=response.id, target=response.target)
    if response.usage == Usage(estimated=True):
        return  # it says that nothing is known of what it used, and that is estimated
    assert normal(response_from(ended_task(TELLING, response, 0), request)) == normal(response)


def test_what_stands_beside_a_result_that_is_none_is_not_taken_for_it() -> None:
    beside = (Artifact(type="table", value=[]), Artifact(type="json", value={"n": 1}))
    why = fault(Code.DELEGATION_FAILED, "half of it failed")
    response = a_response(status=Status.FAILED, result=None, artifacts=beside, fault=why)
    request = a_request(id=response.id, target=response.target)
    assert response_from(ended_task(TELLING, response, 0), request) == response


@given(ended_responses)
def test_a_response_survives_protobuf(response: Response) -> None:
    request = a_request(id=response.id, target=response.target)
    if response.usage == Usage(estimated=True):
        return
    through = MessageToDict(ParseDict(json.loads(encode(ended_task(TELLING, response, 0))), pb.Task()))
    assert normal(response_from(convert(through, Task), request)) == normal(response)


@given(ended_responses)
def test_whoever_knows_no_extension_is_told_how_it_ended_all_the_same(response: Response) -> None:
    task = ended_task(replace(TELLING, extended=False), response, 0)
    assert EXTENSION not in encode(task).decode()
    assert task.status.state == state_of(response)
    assert response.ok or task.status.message is not None
    ParseDict(json.loads(encode(task)), pb.Task())


@given(json_values | st.fixed_dictionaries({"task": st.fixed_dictionaries({"id": texts, "status": json_values})}))
def test_whatever_a_server_says_is_a_response_or_a_fault_of_the_server(value: Any) -> None:
    for is_task in (True, False):
        talk = A2aTaskExchange(a_request(), extended=True)

        def answer(talk: A2aTaskExchange = talk, is_task: bool = is_task) -> Response:
            talk.hear(encode(value), is_task=is_task)
            return talk.response()

        response = outcome(answer)
        assert not isinstance(response, Fault) or response.code is Code.RESULT_VALIDATION_FAILED


def test_every_status_is_a_state() -> None:
    assert {status: state_of(a_response(status=status)) for status in Status} == {
        Status.SUCCESS: TaskState.COMPLETED,
        Status.PARTIAL: TaskState.COMPLETED,
        Status.FAILED: TaskState.FAILED,
        Status.TIMEOUT: TaskState.FAILED,
        Status.REFUSED: TaskState.REJECTED,
        Status.CANCELLED: TaskState.CANCELED,
    }
    assert state_of(a_response(requires_followup=True)) is TaskState.INPUT_REQUIRED
    assert {each for each in TaskState if each in ENDED} == {
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.CANCELED,
        TaskState.REJECTED,
    }


def test_states_and_their_order_are_those_of_the_sdk() -> None:
    assert [each.value for each in TaskState] == list(pb.TaskState.keys())


def test_a_refusal_is_an_error_only_where_no_task_can_come_of_it() -> None:
    declined = {code for code in Code if declines(a_response(status=Status.REFUSED, fault=fault(code, "x")))}
    assert Code.RATE_LIMITED in declined
    assert Code.USER_MISMATCH in declined
    assert not declined & {Code.MAX_DEPTH_EXCEEDED, Code.LOOP_DETECTED, Code.APPROVAL_DECLINED, Code.PERMISSION_DENIED}
    assert declines(a_response(status=Status.FAILED, fault=fault(Code.DELEGATION_FAILED, "x"))) is None


def test_a_client_gets_what_it_takes() -> None:
    text, data = a_response(result="a text"), a_response(result={"n": 1})
    only_text, only_data = AcceptedContent(["text/plain"]), AcceptedContent(["application/json; charset=utf-8"])

    def part(response: Response, taste: AcceptedContent) -> A2aPart:
        return ended_task(replace(TELLING, taste=taste), response, 0).artifacts[0].parts[0]

    assert part(data, only_text).text == '{"n":1}'
    assert part(text, only_data).data == "a text"
    assert response_from(ended_task(replace(TELLING, taste=only_text), data, 0), a_request()).result == {"n": 1}
    with pytest.raises(Declined) as why:
        AcceptedContent(["image/png"])
    assert why.value.error is Error.CONTENT_TYPE_NOT_SUPPORTED


def test_a_runs_records_are_events_in_their_order() -> None:
    request, response = a_request(id="mine", run="r", parent=None), a_response(id="mine", result="ok")
    bodies = [
        (Kind.STARTED, request),
        (Kind.PROGRESS, Progress(delegation="r", agent="tag", text="half")),
        (Kind.DELTA, Delta(delegation="r.1", agent="other", text="not for you")),
        (Kind.DELTA, Delta(delegation="r", agent="tag", text="o")),
        (Kind.DELTA, Delta(delegation="r", agent="tag", text="k")),
        (Kind.APPROVAL, Approval(delegation="r.1", agent="a", id="q", question="May it?")),
        (Kind.APPROVAL, Approval(delegation="r.1", agent="a", id="q", question="May it?", agreed=True)),
        (Kind.RESULT, replace(response, id="r.1")),
        (Kind.RESULT, response),
    ]
    records = [
        Record(seq=n, kind=kind, at_ms=n, run="r", session="s", body=body) for n, (kind, body) in enumerate(bodies)
    ]
    events = Stream(replace(TELLING, extended=False), "r").of(records)
    states = [
        (each.status_update.status.state, each.status_update.status.message and each.status_update.status.message.parts)
        if each.status_update is not None
        else each.artifact_update and (each.artifact_update.append, each.artifact_update.artifact.parts[0].text)
        for each in events
    ]
    assert states == [
        (TaskState.WORKING, (A2aPart(text="half"),)),
        (False, "o"),
        (True, "k"),
        (TaskState.AUTH_REQUIRED, (A2aPart(text="May it?"),)),
        (TaskState.WORKING, None),
        (False, "ok"),
        (TaskState.COMPLETED, None),
    ]
    refused = a_response(status=Status.REFUSED, fault=fault(Code.PERMISSION_DENIED, "no"), result=None)
    record = Record(
        seq=1, kind=Kind.REFUSED, at_ms=1, run="r", session="s", body=Refusal(request=request, response=refused)
    )
    (event,) = Stream(TELLING, "r").of([record])
    assert event.status_update is not None
    assert event.status_update.status.state == TaskState.REJECTED


def test_an_event_of_another_task_is_refused() -> None:
    hearing = A2aTaskExchange(a_request())
    hearing.take(StreamResponse(task=under_way(TELLING, TaskState.WORKING, 0)))
    for raw in (
        b'{"statusUpdate": {"taskId": "t-2", "status": {"state": "TASK_STATE_COMPLETED"}}}',
        b'{"artifactUpdate": {"taskId": "t-2", "artifact": {"artifactId": "a"}}}',
        b'{"task": {"id": "t-2"}}',
        b"{}",
    ):
        with pytest.raises(RemitError) as error:
            hearing.take(decode(raw, StreamResponse))
        assert error.value.fault.code is Code.RESULT_VALIDATION_FAILED


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_errors_have_the_codes_and_statuses_of_the_sdk() -> None:
    """5.4: error code mappings."""
    for kind, rpc in JSON_RPC_ERROR_CODE_MAP.items():
        if kind in A2A_ERROR_MAPPING:
            status, grpc, reason = A2A_ERROR_MAPPING[kind]
            ours = ERRORS[Error(reason)]
            # The table of the specification has 415 here, and the SDK 400.
            status = 415 if ours is ERRORS[Error.CONTENT_TYPE_NOT_SUPPORTED] else status
            assert (ours.rpc, ours.status, ours.grpc) == (rpc, status, grpc)
    assert ERRORS[Error.PARSE_ERROR].rpc == -32700
    assert len({row.rpc for row in ERRORS.values()}) == len(ERRORS)


@pytest.mark.parametrize("code", list(Code))
def test_a_fault_that_one_hub_tells_another_hears(code: Code) -> None:
    """5.1: both bindings say the same."""
    why = fault(code, "because", retry_after_ms=1_500)
    body = error_body(RemitError(why))
    rpc = encode({"code": body.rpc, "message": body.message, "data": body.details})
    rest = encode({"code": body.status, "status": body.grpc, "message": body.message, "details": body.details})
    for raw in (rpc, rest):
        understood = TONGUE.fault(body.status, raw, "tag")
        assert (understood.code, understood.message, understood.retry_after_ms) == (code, why.outward().message, 1_500)
    assert body.status in (TABLE[code].status, 400, 415, 500)


@pytest.mark.parametrize("error", list(Error))
def test_an_error_of_a2a_names_its_reason_in_its_domain(error: Error) -> None:
    """9.5 and 11.6: an ErrorInfo with @type, reason and domain."""
    body = error_body(Declined(error, "because", about={"taskId": "t"}, fields={"id": "is wrong"}))
    info, violations, for_users = body.details
    assert for_users["message"].startswith("This could not be done: ")
    assert info == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.value,
        "domain": "a2a-protocol.org",
        "metadata": {"taskId": "t"},
    }
    assert violations["fieldViolations"] == [{"field": "id", "description": "is wrong"}]
    why = TONGUE.fault(body.status, encode({"code": body.rpc, "message": "x", "data": body.details}), "tag")
    assert (why.code, why.foreign) == (ERRORS[error].code, error.value)


@pytest.mark.parametrize("raw", [b"", b"7", b"{}", b'{"code": "x"}', b'{"data": [7, {"@type": 5}]}', b"[" * 5_000])
def test_an_error_that_makes_no_sense_is_a_failure(raw: bytes) -> None:
    assert TONGUE.fault(500, raw, "tag").code is Code.DELEGATION_FAILED


# ── cards, versions, times ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_signature_holds_for_the_card_that_was_signed_and_no_other() -> None:
    from remit_server.dialects.a2a.card import Signer
    from remit_server.transports.credentials.keys import HubKey, is_signed

    pair = HubKey.create(0).signing(0)
    card = signed({"name": "a", "skills": [{"id": "é"}]}, Signer(pair.public, pair.sign), "https://x/keys")
    keys = {pair.public: pair.public}
    assert is_signed_by(canonical(card), keys, is_signed)
    assert is_signed_by(json.dumps(card, indent=2).encode(), keys, is_signed), "how it is written makes no difference"
    assert not is_signed_by(canonical(card | {"name": "b"}), keys, is_signed)
    assert not is_signed_by(canonical(card), {}, is_signed)
    assert not is_signed_by(canonical({"name": "a"}), keys, is_signed)
    for broken in ({"protected": "?", "signature": "x"}, {"protected": "e30", "signature": ""}, {}):
        assert not is_signed_by(canonical(card | {"signatures": [broken]}), keys, is_signed)
    none = json.loads(urlsafe_b64decode(card["signatures"][0]["protected"] + "=="))
    assert none["alg"] == "EdDSA"


def test_a_card_is_read_as_far_as_it_is_needed() -> None:
    interface = {"url": "https://x/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0.2"}
    raw = {"name": "x", "future": 1, "supportedInterfaces": [interface]}
    card = read_card(encode(raw), "https://x")
    assert (choose(card, "https://x").url, card.extended) == ("https://x/", False)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_an_agent_is_called_in_the_binding_that_is_wanted_and_streams_only_if_it_may(binding: Binding) -> None:
    offers = [
        {"url": f"https://x/{each}", "protocolBinding": each, "protocolVersion": "1.0"}
        for each in ("GRPC", "HTTP+JSON", "JSONRPC")
    ]
    card = encode({"name": "x", "supportedInterfaces": offers, "capabilities": {"streaming": True}})
    chosen = A2aTranslator(binding=binding, streaming=False).offer(card, "https://x", ())
    assert (chosen.url, chosen.binding, chosen.streams) == (f"https://x/{binding}", binding, False)
    assert TONGUE.offer(card, "https://x", ()).binding == "HTTP+JSON"
    others = [each for each in offers if each["protocolBinding"] != binding]
    with pytest.raises(RemitError, match=re.escape(f"it offers no {binding} in version 1.0")):
        A2aTranslator(binding=binding).offer(encode({"name": "x", "supportedInterfaces": others}), "https://x", ())


@pytest.mark.parametrize(
    ("version", "spoken"),
    [("1.0", True), (" 1.0 ", True), ("1.0.9", True), ("", False), ("0.3", False), ("1", False), ("1.1", False)],
)
def test_only_the_first_two_numbers_of_a_version_count(version: str, spoken: bool) -> None:
    assert is_spoken(version) is spoken


@given(st.integers(0, 4_102_444_800_000))
def test_a_time_comes_back_as_it_was(ms: int) -> None:
    written = timestamp(ms)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", written)
    assert milliseconds(written) == ms
    assert milliseconds(written.removesuffix("Z")) == ms, "some forget the Z"


def test_what_is_no_time_is_none() -> None:
    assert milliseconds("yesterday") is None


def test_numbers_are_whole_where_they_can_be() -> None:
    value = {"a": [1.0, 2.5, -3.0, 1e300, True, None], "b": {"c": 4.0}}
    assert json.dumps(whole(value)) == '{"a": [1, 2.5, -3, 1e+300, true, null], "b": {"c": 4}}'


def test_history_holds_what_was_asked() -> None:
    from remit_server.dialects.a2a.requests import message_of

    message = message_of(a_request(objective="Sort", input={"n": 1}, remit=a_remit()), task="t", context="c")
    assert message == A2aMessage(
        message_id="r-1",
        context_id="c",
        task_id="t",
        role="ROLE_USER",
        parts=(A2aPart(text="Sort"), A2aPart(data={"n": 1}, media_type="application/json")),
    )
    assert TaskStatus().state is TaskState.UNSPECIFIED
    assert Artifact(type="url", value="https://x").value == "https://x"
