"""The protocol of the librarians: the document's own examples, journeys, attacks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import dialect_laws as laws
from dialect_laws import CONTEXT, QUERY, Plain, a_message, body_of, refusal
from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive
from remit.protocol.envelope import Call, Handoff, Request, Response, Source, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit_server.dialects.exchange import ForeignMessage
from remit_server.dialects.librarian import DIALECT as LIBRARIAN
from remit_server.dialects.librarian import below_span
from samples import a_remit, a_request, a_response
from strategies import calls


def query(**changes: Any) -> Plain:
    return QUERY | {"context": CONTEXT | changes}


def to_expert(body: Any, **headers: str) -> ForeignMessage:
    return a_message(body, target="expert-librarian", **headers)


# ── the document's examples ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_with_its_context_is_understood() -> None:
    """C2, C3: version, request id, timestamp; original query, chain, depth, time, span."""
    assert LIBRARIAN.submission(to_expert(QUERY)) == Submission(
        target="expert-librarian",
        id="req-1",
        origin="c",
        chain=("a", "b"),
        depth=3,
        deadline_ms=29_500,
        objective="Which papers mention it?",
        parent="span-7",
        handoff=Handoff(original_request="What is known of it?"),
        created_ms=1_760_000_000_500,
        traceparent=below_span("span-7", None),
    )


def test_what_a_context_may_say_besides_is_understood() -> None:
    """C3: reason, refined_by, available delegates, and the time-out of the whole."""
    context = {
        "delegationReason": "Complex domain query",
        "refinedBy": "librarian-a",
        "availableDelegates": ["archive", "expert-librarian"],
        "timeout": 1_000,
    }
    submission = LIBRARIAN.submission(to_expert(query(**context)))
    assert (submission.reason, submission.refined_by) == ("Complex domain query", "librarian-a")
    assert submission.targets == {"archive", "expert-librarian"}
    assert submission.may_delegate
    assert submission.deadline_ms == 500, "it began half a second before it was sent"


def test_nobody_is_left_to_delegate_to_if_the_context_names_none() -> None:
    submission = LIBRARIAN.submission(to_expert(query(availableDelegates=[])))
    assert (submission.may_delegate, submission.targets) == (False, None)


def test_the_first_query_comes_from_a_user() -> None:
    """C3: it is its own original, and nobody stands in the chain."""
    first = query(originalQuery=QUERY["query"], delegationChain=[], delegationDepth=0, parentSpanId="")
    submission = LIBRARIAN.submission(to_expert(first))
    assert (submission.origin, submission.chain, submission.depth) == ("user", (), 0)
    assert submission.handoff is None
    assert submission.parent is None


def test_a_loop_of_the_document_is_detected() -> None:
    """C6: the document's unit test, in which b is asked while it stands in the chain."""
    problems = refusal(lambda: LIBRARIAN.submission(a_message(QUERY, target="b")))
    assert problems[""] == "LOOP_DETECTED"


def test_the_depth_of_the_document_is_counted_as_ours() -> None:
    """C6: a context has the depth of who is asked; five are allowed, and a chain cannot claim less than it is long."""
    sender = Sender(name="constellation", is_hub=True, users=frozenset({"u-1"}))
    for depth, chain, counted in ((5, ["a"], 5), (6, ["a"], 6), (0, ["a", "b", "c"], 3)):
        submission = LIBRARIAN.submission(to_expert(query(delegationDepth=depth, delegationChain=chain)))
        request = receive(
            submission, sender, exposed=frozenset({"expert-librarian"}), run="r", created_ms=1, limits=Limits()
        )
        assert isinstance(request, Request)
        assert request.remit.user == "u-1"
        assert request.remit.depth == counted
        assert request.remit.max_depth == 5
        assert request.remit.chain == (*chain[:-1], f"{chain[-1]}@constellation")


def test_an_answer_that_came_through_others_names_the_path() -> None:
    """C4: the document's integration test: A delegates to B, B to C."""
    response = a_response(
        result="Three papers.",
        confidence=0.9,
        path=("a", "b", "c"),
        sources=(Source(owner_scope="public", source_id="doi:1"),),
        metadata={"aggregated": True, "responseCount": 2, "strategy": "merge-all"},
    )
    reply = LIBRARIAN.reply(response, to_expert(QUERY))
    assert body_of(reply) == {
        "answer": "Three papers.",
        "sources": [{"owner_scope": "public", "source_id": "doi:1"}],
        "confidence": 0.9,
        "metadata": {
            "aggregated": True,
            "responseCount": 2,
            "strategy": "merge-all",
            "delegationPath": ["a", "b", "c"],
        },
    }
    # What it cost is the only thing that a librarian cannot say.
    assert LIBRARIAN.response(reply, a_request()) == replace(response, usage=Usage(estimated=True))


def test_an_unavailable_librarian_is_an_error_that_says_what_to_do() -> None:
    """C6, C8: the document's answer while a breaker is open."""
    error = {
        "code": "DELEGATION_UNAVAILABLE",
        "message": "tag is temporarily unavailable",
        "recoverable": True,
        "suggestion": "Try again later or use alternative",
    }
    response = LIBRARIAN.response(ForeignMessage(body=json.dumps({"error": error}).encode()), a_request())
    assert response.status is Status.FAILED
    assert response.fault == fault(
        Code.DELEGATION_UNAVAILABLE,
        "tag is temporarily unavailable",
        suggestion="Try again later or use alternative",
    )
    assert body_of(LIBRARIAN.reply(response, to_expert(QUERY))) == {"error": error}


@pytest.mark.parametrize(
    ("code", "status", "http"),
    [
        (Code.MAX_DEPTH_EXCEEDED, Status.REFUSED, 422),
        (Code.LOOP_DETECTED, Status.REFUSED, 409),
        (Code.TIMEOUT, Status.TIMEOUT, 504),
        (Code.DELEGATION_FAILED, Status.FAILED, 502),
        (Code.CANCELLED, Status.CANCELLED, 499),
    ],
)
def test_a_code_of_the_document_is_ours(code: Code, status: Status, http: int) -> None:
    """C6: codes are the same on both sides, with whether it is recoverable and what to do."""
    response = a_response(status=status, result=None, fault=fault(code, "so it is"))
    reply = LIBRARIAN.reply(response, to_expert(QUERY))
    assert reply.status == http
    assert body_of(reply)["error"].keys() == {"code", "message", "recoverable", "suggestion"}
    assert LIBRARIAN.response(reply, a_request()) == replace(response, usage=Usage(estimated=True))


def test_a_code_that_nobody_knows_is_kept() -> None:
    error = {"code": "INDEX_CORRUPT", "message": "shelf 3 is gone"}
    response = LIBRARIAN.response(ForeignMessage(body=json.dumps({"error": error}).encode()), a_request())
    assert response.fault == fault(Code.DELEGATION_FAILED, "shelf 3 is gone", foreign="INDEX_CORRUPT")


# ── answers that are delegations ──────────────────────────────────────────────────────────────────────────────────────

EXPERT = {"to": "expert-librarian", "query": "refined query", "context": {"reason": "Complex domain query"}}


def test_an_answer_can_name_who_should_answer_instead() -> None:
    """C4: the document's delegation decision, one and several."""
    expert = Call(target="expert-librarian", objective="refined query", reason="Complex domain query")
    one = ForeignMessage(body=json.dumps({"delegate": EXPERT}).encode())
    assert LIBRARIAN.calls(one, a_request()) == (expert,)
    several = ForeignMessage(body=json.dumps({"delegate": [EXPERT, {"to": "archive"}]}).encode())
    archive = Call(target="archive", objective="Categorize")
    assert LIBRARIAN.calls(several, a_request()) == (expert, archive)


def test_an_answer_that_names_nobody_has_no_calls() -> None:
    """C4: neither has what is no answer at all."""
    assert LIBRARIAN.calls(ForeignMessage(body=b'{"answer": "42"}'), a_request()) == ()
    assert LIBRARIAN.calls(ForeignMessage(body=b"busy", status=503), a_request()) == ()


def test_a_delegation_that_nobody_carries_out_is_no_answer() -> None:
    """C4: whoever reads the response alone learns that there is none."""
    response = LIBRARIAN.response(ForeignMessage(body=json.dumps({"delegate": EXPERT}).encode()), a_request())
    assert response.fault == fault(Code.DELEGATION_FAILED, "tag referred to other agents that were not asked")


def test_our_calls_are_delegations_of_theirs() -> None:
    """C4: one is said alone, several as a list."""
    expert = Call(target="expert-librarian", objective="refined query", reason="Complex domain query")
    assert body_of(LIBRARIAN.delegating([expert])) == {"delegate": EXPERT}
    several = LIBRARIAN.delegating([expert, Call(target="archive")])
    assert body_of(several) == {"delegate": [EXPERT, {"to": "archive", "context": {}}]}


# One that says nothing asks the same again, and one without a target cannot be said.
sayable_calls = calls.map(lambda call: replace(call, target=call.target or "t", objective=call.objective or "o"))


@given(st.lists(sayable_calls, min_size=1, max_size=2))
def test_calls_come_back_as_they_were(wanted: list[Call]) -> None:
    assert list(LIBRARIAN.calls(LIBRARIAN.delegating(wanted), a_request())) == wanted


def test_a_call_by_capability_cannot_be_said() -> None:
    problems = refusal(lambda: LIBRARIAN.delegating([Call(target="a"), Call(capability="SEARCH")]))
    assert problems.keys() == {"", "$.calls[1].target"}


@pytest.mark.parametrize(
    "delegate",
    [
        {"query": "whom?"},
        {"to": "a\u0000b"},
        {"to": "a", "context": {"remit": {"version": "1.0", "target": "admin"}}},
        {"to": "a", "context": {"remit": {"version": "1.0", "objective": "something else"}}},
        [3],
        "a",
    ],
)
def test_a_delegation_that_is_none_is_refused(delegate: Any) -> None:
    given_back = ForeignMessage(body=json.dumps({"delegate": delegate}).encode())

    def read() -> object:
        return LIBRARIAN.calls(given_back, a_request()) or LIBRARIAN.response(given_back, a_request())

    assert refusal(read)[""] == "RESULT_VALIDATION_FAILED"


def test_delegations_are_read_as_far_as_they_can_be() -> None:
    given_back = ForeignMessage(body=json.dumps({"delegate": [{"to": "a", "why": "?"}, 3]}).encode())
    assert [call.target for call in LIBRARIAN.calls(given_back, a_request())] == ["a"]


# ── our requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_of_ours_is_one_of_theirs() -> None:
    request = a_request(
        remit=a_remit(targets=frozenset({"archive"})),
        parent="run-1.2",
        reason="Complex domain query",
        refined_by="librarian-a",
        created_ms=1_760_000_000_000,
    )
    sent = LIBRARIAN.request(request)
    assert sent.target == "tag"
    body = body_of(sent)
    claims = body["context"].pop("remit")
    assert body == {
        "query": "Categorize",
        "context": {
            "originalQuery": "Categorize",
            "delegationChain": ["prime@hub"],
            "delegationDepth": 1,
            "remainingTimeout": 10_000,
            "startTime": 1_760_000_000_000,
            "parentSpanId": "run-1.2",
            "delegationReason": "Complex domain query",
            "refinedBy": "librarian-a",
            "availableDelegates": ["archive"],
        },
        "version": "1.0",
        "requestId": "r-1",
        "timestamp": 1_760_000_000_000,
    }
    assert claims == {
        "version": "1.0",
        "chain": ["prime@hub"],
        "context_tokens": 4000,
        "max_depth": 5,
        "traceparent": None,
        "max_tokens": 1000,
        "origin": "prime",
        "run": "run-1",
        "user": "u-1",
    }


def test_a_query_holds_the_goal_and_what_it_is_about() -> None:
    assert body_of(LIBRARIAN.request(a_request(input={"pages": [1, 2]})))["query"] == 'Categorize\n\n{"pages":[1,2]}'


def test_a_query_that_is_too_long_for_an_objective_is_data() -> None:
    long = "x" * 100_001
    submission = LIBRARIAN.submission(to_expert(QUERY | {"query": long}))
    assert (submission.objective, submission.input) == ("", long)
    laws.a_request_comes_back_as_it_was(LIBRARIAN, a_request(input=long, objective=""))


# ── refused by field ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", sorted(CONTEXT))
def test_a_missing_field_of_the_context_is_refused_by_name(name: str) -> None:
    """C3: every field that the interface requires."""
    context = {each: value for each, value in CONTEXT.items() if each != name}
    assert refusal(lambda: LIBRARIAN.submission(to_expert(QUERY | {"context": context}))) == {
        "": "MALFORMED_ENVELOPE",
        f"$.context.{name}": "required field is missing",
    }


@pytest.mark.parametrize("name", sorted(QUERY))
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    """C2: every field that the interface requires."""
    body = {each: value for each, value in QUERY.items() if each != name}
    assert refusal(lambda: LIBRARIAN.submission(to_expert(body))) == {
        "": "MALFORMED_ENVELOPE",
        f"$.{name}": "required field is missing",
    }


def test_unknown_fields_and_wrong_types_are_refused_by_name_all_at_once() -> None:
    body = query(
        delegationDepth=-1,
        remainingTimeout=9e99,
        delegationChain=["a", "b\x07"],
        parentSpanId="a\nb",
        refinedBy="",
    ) | {"requestId": 7, "retries": 3}
    assert refusal(lambda: LIBRARIAN.submission(to_expert(body))) == {
        "": "MALFORMED_ENVELOPE",
        "$.retries": "unknown field; known fields: context, query, requestId, timestamp, version",
        "$.context.delegationChain[1]": "control characters are not allowed in a name",
        "$.context.delegationDepth": "Expected `int` >= 0",
        "$.context.remainingTimeout": "Expected `int` <= 9007199254740991",
        "$.context.parentSpanId": "control characters are not allowed in a name",
        "$.context.refinedBy": "Expected `str` of length >= 1",
        "$.requestId": "Expected `str`, got `int`",
    }


def test_another_version_is_refused_before_its_fields_are_judged() -> None:
    """C2: what a later version says need not be understood to say which one is spoken."""
    problems = refusal(lambda: LIBRARIAN.submission(to_expert({"version": "2.0", "question": "?"})))
    assert problems == {"": "VERSION_UNSUPPORTED"}
    assert refusal(lambda: LIBRARIAN.submission(to_expert(QUERY | {"version": 1})))["$.version"]


@pytest.mark.parametrize("target", ["", "a\nb", "x" * 201])
def test_the_address_names_who_is_asked(target: str) -> None:
    """C2: the request itself does not say it."""
    assert refusal(lambda: LIBRARIAN.submission(a_message(QUERY, target=target))).keys() == {"", "$.target"}


def test_a_chain_longer_than_any_is_refused() -> None:
    problems = refusal(lambda: LIBRARIAN.submission(to_expert(query(delegationChain=["a"] * 101))))
    assert problems.keys() == {"", "$.context.delegationChain"}


# ── what the document has no words for ────────────────────────────────────────────────────────────────────────────────


def test_a_user_can_be_named_among_the_claims() -> None:
    """The document knows no user; a hub wants one."""
    submission = LIBRARIAN.submission(to_expert(query(remit={"version": "1.0", "user": "u-1"})))
    assert submission.user == "u-1"


def test_claims_without_a_version_are_refused() -> None:
    problems = refusal(lambda: LIBRARIAN.submission(to_expert(query(remit={"user": "u-1"}))))
    assert problems == {"": "MALFORMED_ENVELOPE", "$.context.remit.version": "required field is missing"}


def test_a_claim_does_not_shorten_the_chain() -> None:
    shorter: list[Plain] = [{"chain": []}, {"origin": "user"}, {"depth": 0}, {"deadline_ms": 10**9}]
    for claims in shorter:
        asks = to_expert(query(remit={"version": "1.0"} | claims))
        problems = refusal(lambda asks=asks: LIBRARIAN.submission(asks))
        assert "contradicts" in problems["$.context.remit"]


def test_who_does_not_know_of_claims_is_told_none() -> None:
    response = a_response(warnings=("old data",))
    assert body_of(LIBRARIAN.reply(response, to_expert(QUERY))) == {"answer": "3 categories"}
    knows = to_expert(query(remit={"version": "1.0"}))
    assert body_of(LIBRARIAN.reply(response, knows))["metadata"]["remit"]["warnings"] == ["old data"]


# ── journeys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chain", [("a", "a"), ("a@hub", "a"), ("a", "user"), ("user",), ("a", "b", "b")])
def test_a_chain_that_ends_with_the_same_name_twice_comes_back_as_it_was(chain: tuple[str, ...]) -> None:
    asks = to_expert(query(delegationChain=list(chain), remit={"version": "1.0", "priority": "HIGH"}))
    meant = LIBRARIAN.submission(asks)
    assert (meant.origin, meant.chain) == (chain[-1], chain)
    assert meant.priority == "HIGH"


@given(laws.ended_responses)
def test_a_response_in_the_documents_words_alone_keeps_what_they_can_say(response: Response) -> None:
    """C4, C6: for a client that knows nothing but the document."""
    response = replace(response, id="r-1", target="tag")
    received = LIBRARIAN.response(LIBRARIAN.reply(response, to_expert(QUERY)), a_request())
    assert (received.ok, received.confidence, received.sources) == (response.ok, response.confidence, response.sources)
    assert received.path == response.path
    if response.fault is not None and received.fault is not None:
        for name in ("code", "recoverable", "suggestion"):
            assert getattr(received.fault, name) == getattr(response.fault, name)


# ── answers of a server ───────────────────────────────────────────────────────────────────────────────────────────────


def test_sources_and_a_path_of_another_form_are_kept_as_they_are() -> None:
    """The document leaves open what a source looks like."""
    body = {"answer": "42", "sources": ["The Guide, p. 42"], "metadata": {"delegationPath": "a to b"}}
    response = LIBRARIAN.response(ForeignMessage(body=json.dumps(body).encode()), a_request())
    assert (response.sources, response.path) == ((), ())
    assert response.metadata == {"delegationPath": "a to b", "sources": ["The Guide, p. 42"]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"confidence": 1.5}, "$.confidence"),
        ({"error": {"code": "TIMEOUT"}}, "$.error.message"),
        ({"error": {"code": "A\nB", "message": ""}}, "$.error.code"),
        ({"anwser": "42"}, "$.anwser"),
        ({"metadata": {"remit": {"version": "1.0", "status": "failed"}}}, "$"),
    ],
)
def test_an_answer_that_is_none_is_the_fault_of_who_gave_it(body: Plain, path: str) -> None:
    problems = refusal(lambda: LIBRARIAN.response(ForeignMessage(body=json.dumps(body).encode()), a_request()))
    assert problems[""] == "RESULT_VALIDATION_FAILED"
    assert path in problems
