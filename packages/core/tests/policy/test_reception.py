"""What a hub makes of a request that comes from elsewhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.reception import (
    Permission,
    Sender,
    here,
    is_marked_for_another,
    is_new,
    named_by_peer,
    of_agent,
    of_callee,
    of_user,
    peer_name,
    peer_of,
    receive,
    remarks,
    there,
    trace_of,
    with_session_of_peer,
)
from remit.protocol.envelope import USER, ContextFilter, Handover, Message, Request, View
from remit.protocol.errors import Code, Fault
from remit.protocol.remit import LONGEST_NAME, Grant, Priority, Remit, tools_within
from remit.protocol.submission import Submission
from samples import a_remit, a_request, a_response
from strategies import name_sets, names, optional, remits

HUB = Sender(name="north", is_hub=True)
CLIENT = Sender(name="web")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def received(sent: Submission, sender: Sender = CLIENT, **options: Any) -> Request | Fault:
    given: dict[str, Any] = {"exposed": frozenset({"tag"}), "run": "run-1", "created_ms": 7, "limits": Limits()}
    return receive(sent, sender, **{**given, **options})


def taken(sent: Submission, sender: Sender = CLIENT, **options: Any) -> Request:
    request = received(sent, sender, **options)
    assert isinstance(request, Request), request
    return request


def refused(sent: Submission, sender: Sender = CLIENT, **options: Any) -> Fault:
    why = received(sent, sender, **options)
    assert isinstance(why, Fault), why
    return why


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_that_says_little_gets_the_defaults_of_the_hub() -> None:
    assert taken(Submission(target="tag", user="u-1", objective="Sort")) == Request(
        version="1.0",
        id="run-1",
        origin=USER,
        target="tag",
        remit=Remit(user="u-1", depth=0, max_depth=5, time_ms=300_000, tokens=1_000_000),
        objective="Sort",
        run="run-1",
        session="run-1",
        correlation="run-1",
        created_ms=7,
        via="web",
    )


def test_a_client_can_bound_what_is_done_for_it_and_cannot_widen_it() -> None:
    bounded = taken(
        Submission(
            target="tag",
            user="u-1",
            max_tokens=100,
            max_cost=70,
            deadline_ms=1_000,
            max_depth=1,
            tools=frozenset({"read"}),
            targets=frozenset({"byte"}),
            may_delegate=False,
            priority=Priority.LOW,
        )
    ).remit
    assert bounded == Remit(
        user="u-1",
        depth=0,
        max_depth=1,
        time_ms=1_000,
        tokens=100,
        context_tokens=100,
        tools=frozenset({"read"}),
        targets=frozenset({"byte"}),
        may_delegate=False,
        priority=Priority.LOW,
        cost=70,
    )
    wide = Submission(target="tag", user="u-1", max_tokens=10**9, deadline_ms=10**9, max_depth=99)
    assert taken(wide).remit == taken(Submission(target="tag", user="u-1")).remit


def test_a_request_that_names_no_user_is_refused_unless_its_sender_has_only_one() -> None:
    why = refused(Submission(target="tag"))
    assert (why.code, [each.path for each in why.problems]) == (Code.MALFORMED_ENVELOPE, ["$.user"])
    assert taken(Submission(target="tag"), Sender(name="web", users=frozenset({"u-1"}))).remit.user == "u-1"
    assert refused(Submission(target="tag"), Sender(name="web", users=frozenset({"u-1", "u-2"}))).problems


def test_a_sender_asks_only_for_its_own_users() -> None:
    """X10: user isolation."""
    sender = Sender(name="web", users=frozenset({"u-1"}))
    assert refused(Submission(target="tag", user="u-2"), sender).code is Code.USER_MISMATCH
    two = Submission(target="tag", user="u-1", remit=a_remit(user="u-2"))
    assert refused(two).code is Code.USER_MISMATCH


def test_an_agent_that_is_hidden_looks_like_one_that_does_not_exist() -> None:
    hidden = refused(Submission(target="tag", user="u-1"), exposed=frozenset({"byte"}))
    not_mine = refused(Submission(target="tag", user="u-1"), Sender(name="web", targets=frozenset({"byte"})))
    assert hidden == not_mine
    assert hidden.code is Code.AGENT_NOT_FOUND


def test_a_client_cannot_speak_for_an_agent() -> None:
    why = refused(Submission(target="tag", user="u-1", origin="prime"))
    assert [each.path for each in why.problems] == ["$.origin"]


# ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def from_hub(**changes: Any) -> Submission:
    held = a_remit(user="u-1", depth=1, chain=("prime@north",))
    given: dict[str, Any] = {"target": "tag", "id": "r.1", "origin": "prime", "remit": held, "run": "r", "session": "s"}
    return Submission(**(given | changes))


def test_what_a_hub_sends_keeps_its_place_in_the_tree() -> None:
    request = taken(from_hub(traceparent=TRACE, view=View(summary="so far")), HUB)
    assert (request.id, request.origin, request.via) == ("r.1", "prime@north", "north")
    assert (request.remit.depth, request.remit.chain) == (1, ("prime@north",))
    assert request.session == "s@north", "sessions of two hubs never meet"
    assert (request.run, request.parent, request.correlation) == ("run-1", None, "r")
    assert (request.traceparent, request.view) == (TRACE, View(summary="so far"))


def test_a_hub_that_leaves_itself_out_of_the_chain_stands_in_it_all_the_same() -> None:
    forged = from_hub(remit=a_remit(user="u-1", depth=0, chain=()))
    remit = taken(forged, HUB).remit
    assert (remit.chain, remit.depth) == (("prime@north",), 1)


def test_a_hub_that_asks_in_a_persons_name_adds_nobody_to_the_chain() -> None:
    request = taken(from_hub(origin=USER, remit=a_remit(user="u-1", depth=0, chain=())), HUB)
    assert (request.remit.chain, request.origin) == ((), "user@north")


def test_depth_is_at_least_the_length_of_the_chain() -> None:
    """A forged depth: the chain counts."""
    forged = from_hub(remit=a_remit(user="u-1", depth=0, chain=("a@x", "b@y", "prime@north")))
    assert taken(forged, HUB).remit.depth == 3


def test_what_comes_back_to_a_run_in_flight_stands_below_it_whatever_it_claims() -> None:
    """Decision 9: it inherits the chain and depth of the run, which may be deeper than its chain is long."""
    chain = ("boss@south", "prime@north")
    above = a_remit(user="u-1", depth=3, chain=chain)
    forged = taken(from_hub(remit=a_remit(user="u-1", depth=0, chain=())), HUB, above=above).remit
    assert (forged.chain, forged.depth) == (chain, 4)
    as_a_person = from_hub(origin=USER, remit=a_remit(user="u-1", depth=0, chain=()))
    assert taken(as_a_person, HUB, above=above).remit.depth == 4
    honest = from_hub(remit=a_remit(user="u-1", depth=5, chain=(*chain, "byte@north")), origin="byte")
    got = taken(honest, HUB, above=above).remit
    assert (got.chain, got.depth) == ((*chain, "byte@north"), 5)
    other = from_hub(remit=a_remit(user="u-1", depth=1, chain=("byte@north",)), origin="byte")
    assert taken(other, HUB, above=above).remit.chain == (*chain, "byte@north")


def test_what_a_sender_shows_has_no_numbers_here() -> None:
    """X10: those of its own record are those of other people's here."""
    message = Message(role="user", text="Hello", name="user", tokens=3, at_ms=5, seq=17, delegation="r.1")
    view = View(messages=(message,), summary="so far", seen=(3, 4), tokens=9)
    shown = taken(Submission(target="tag", user="u-1", view=view, context=ContextFilter(last_messages=3)))
    assert shown.view == replace(view, messages=(replace(message, seq=0, delegation=""),), seen=())
    assert shown.context is None


@pytest.mark.parametrize("trace", [None, "", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", TRACE + "-more"])
def test_a_trace_that_is_none_is_left_out(trace: str | None) -> None:
    assert trace_of(trace) is None
    assert taken(from_hub(traceparent=trace), HUB).traceparent is None


def test_a_trace_is_known_by_its_first_part() -> None:
    assert trace_of(TRACE) == "0af7651916cd43dd8448eb211c80319c"


# ── credentials ───────────────────────────────────────────────────────────────────────────────────────────────────────


GRANT = Grant(user="u-1", depth=2, chain=("boss@south", "prime@north"), tokens=500, time_ms=900, max_depth=3)


def test_a_credential_of_another_user_is_no_credential() -> None:
    assert refused(from_hub(), HUB, grant=replace(GRANT, user="u-2")).code is Code.USER_MISMATCH


def test_a_credential_bounds_what_the_envelope_claims() -> None:
    remit = taken(from_hub(), HUB, grant=GRANT).remit
    assert (remit.depth, remit.chain) == (2, ("boss@south", "prime@north"))
    assert (remit.tokens, remit.context_tokens, remit.time_ms, remit.max_depth) == (500, 500, 900, 3)
    narrow = replace(GRANT, tools=frozenset({"read"}), targets=frozenset[str](), may_delegate=False)
    remit = taken(from_hub(), HUB, grant=narrow).remit
    assert (remit.tools, remit.targets, remit.may_delegate) == (frozenset({"read"}), frozenset(), False)


@given(
    remits,
    st.builds(
        Grant,
        user=st.just("u"),
        depth=st.integers(0, 9),
        chain=st.lists(names, max_size=3).map(tuple),
        tokens=st.integers(0, 10**6),
        time_ms=st.integers(0, 10**6),
        max_depth=st.integers(0, 9),
        targets=optional(name_sets),
        tools=optional(name_sets),
        may_delegate=st.booleans(),
    ),
    remits,
)
def test_nothing_that_is_received_is_wider_than_envelope_credential_and_limits(
    remit: Remit, grant: Grant, above: Remit
) -> None:
    sent, limits = replace(remit, user="u"), Limits(root_cost=1_000)
    request = taken(from_hub(remit=sent), HUB, grant=grant, above=above, limits=limits)
    got = request.remit
    for bound in (sent, grant):
        assert got.depth >= bound.depth
        assert got.max_depth <= bound.max_depth
        assert got.tokens <= bound.tokens
        assert got.time_ms <= bound.time_ms
        assert bound.tools is None or (got.tools is not None and tools_within(got.tools, bound.tools))
        assert bound.targets is None or (got.targets is not None and got.targets <= bound.targets)
        assert bound.may_delegate or not got.may_delegate
        assert set(bound.chain) <= set(got.chain)
    assert set(above.chain) <= set(got.chain)
    assert got.depth > above.depth
    assert got.tokens <= limits.root_tokens
    assert got.cost == min(1_000, 1_000 if sent.cost is None else sent.cost)
    assert got.time_ms <= limits.root_time_ms
    assert got.max_depth <= limits.max_depth
    assert got.depth >= len(got.chain)
    assert got.context_tokens <= got.tokens


def test_a_sender_that_has_no_remit_can_say_how_deep_it_is_and_who_stands_above() -> None:
    """C3, X3: a dialect says it field by field; what it says only narrows."""
    sent = Submission(target="tag", user="u-1", origin="c", depth=1, chain=("a", "b"), context_tokens=500)
    remit = taken(sent, HUB).remit
    assert (remit.depth, remit.chain, remit.context_tokens) == (3, ("a", "b", "c@north"), 500)
    assert taken(replace(sent, depth=4, context_tokens=10**6), HUB).remit.depth == 4
    assert taken(replace(sent, context_tokens=10**6), HUB).remit.context_tokens == Limits().context_tokens
    held = a_remit(chain=("x",), depth=7)
    remit = taken(replace(sent, remit=held), HUB).remit
    assert (remit.depth, remit.chain) == (7, ("a", "b", "x", "c@north"))


def test_sessions_are_kept_apart_for_each_hub_and_not_for_clients() -> None:
    assert (peer_name(HUB), peer_name(CLIENT)) == ("north", None)


def test_a_name_that_two_users_choose_has_an_id_for_each() -> None:
    anna, bob = of_user("support", "anna"), of_user("support", "bob")
    assert anna != bob
    assert of_user(anna, "anna") == anna
    assert of_user("s@north", "anna") == here(of_user("s", "anna"), "north"), "peers' sessions keep their ending"
    assert is_marked_for_another(anna, "bob")
    assert not is_marked_for_another(anna, "anna")
    assert not is_marked_for_another("support", "bob")


def test_a_high_priority_is_lowered_and_remarked_on_unless_its_sender_has_the_permission() -> None:
    sent = Submission(target="tag", user="u-1", priority=Priority.HIGH)
    lowered = taken(sent)
    assert lowered.remit.priority is Priority.NORMAL
    (remark,) = remarks(sent, lowered)
    assert "`priority`" in remark
    allowed = taken(sent, Sender(name="web", permissions=frozenset({Permission.PRIORITY})))
    assert (allowed.remit.priority, remarks(sent, allowed)) == (Priority.HIGH, ())


# ── names of sessions ─────────────────────────────────────────────────────────────────────────────────────────────────


NAMES = st.text("ab@", min_size=1, max_size=5)


def from_north(**changes: Any) -> Request:
    return a_request(**{"id": "r-1", "origin": "prime@north", "via": "north", "run": "run-1"} | changes)


@given(session=NAMES, peer=NAMES)
def test_what_a_peer_is_told_names_the_same_session_when_it_sends_it_back(session: str, peer: str) -> None:
    """X16."""
    inside = here(session, peer)
    assert here(there(inside, peer), peer) == inside == here(inside, peer)


@given(one=NAMES, other=NAMES)
def test_no_peer_can_name_a_session_of_another(one: str, other: str) -> None:
    """X10."""
    if one != other and not one.endswith(f"@{other}") and not other.endswith(f"@{one}"):
        assert here("s", one) != here("s", other)


def test_only_a_hub_has_names_of_its_own() -> None:
    assert peer_of(from_north()) == "north"
    assert peer_of(from_north(origin=USER)) is None
    assert peer_of(from_north(via=None)) is None


def test_a_hub_is_told_its_own_names_and_a_client_has_none() -> None:
    assert peer_name(Sender(name="north", is_hub=True)) == "north"
    assert peer_name(Sender(name="web")) is None


def test_a_session_named_after_its_request_is_new() -> None:
    assert is_new(from_north(session="r-1@north"))
    assert not is_new(from_north(session="r-0@north"))
    assert not is_new(from_north(session="r-1@north", via=None))


def test_what_a_peer_names_is_looked_up_unless_it_is_new() -> None:
    assert named_by_peer(from_north(session="run-0@north")) == "run-0"
    for session in (None, "run-1", "r-1@north", "run-0"):
        assert named_by_peer(from_north(session=session)) is None
    assert named_by_peer(from_north(session="run-0@north", via=None)) is None


def test_a_peer_is_told_its_own_names_and_others_what_there_is() -> None:
    response = replace(a_response(), session="s@north")
    assert with_session_of_peer(response, "north").session == "s"
    assert with_session_of_peer(response, "south") is response
    assert with_session_of_peer(response, None) is response
    assert with_session_of_peer(replace(response, session=None), "north").session is None


def test_a_part_of_a_shared_session_is_named_once_however_often_it_is_asked_for() -> None:
    own = of_agent("sess-789", "ANL")
    assert own == "sess-789/ANL" == of_agent(own, "ANL")
    assert of_agent("sess-789", "DOC") != own


@given(
    session=names,
    name=names,
    peer=st.sampled_from(["", "@north"]),
    long=st.booleans(),
)
def test_a_conversation_that_an_agent_names_is_within_its_own_one_however_often_it_is_named(
    session: str, name: str, peer: str, *, long: bool
) -> None:
    own = f"{session.replace('@', '-') * (200 if long else 1)}"[:190] + peer
    one = of_callee(own, name)
    assert of_callee(own, one) == one
    assert of_callee(f"x{own}", name) != one
    assert len(of_user(one, "u-1")) <= LONGEST_NAME
    assert of_callee(own, of_user(one, "u-1")) == of_user(one, "u-1")


def test_a_conversation_within_another_can_be_read() -> None:
    assert of_callee("s-1", "papers") == "s-1/papers" == of_callee("s-1", "s-1/papers")
    assert of_callee("s-1@north", "papers") == "s-1/papers@north"
    assert of_callee("s" * 190, "papers").endswith("/papers")
    assert len(of_callee("s" * 190, "p" * 190)) == 65


@pytest.mark.parametrize(("to", "line"), [(None, None), ("tag", ()), ("billing", (Handover(to="billing"),))])
def test_a_sender_says_who_is_to_answer(to: str | None, line: tuple[Handover, ...] | None) -> None:
    sent = Submission(target="tag", user="u-1", handover=to)
    assert taken(sent, exposed=frozenset({"tag", "billing"})).handover == line


def test_a_sender_hands_over_only_to_agents_that_it_may_ask() -> None:
    why = refused(Submission(target="tag", user="u-1", handover="billing"))
    assert (why.code, "`billing`" in why.message) == (Code.AGENT_NOT_FOUND, True)


# ── remarks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


CUT = "At most 4,000 tokens of context are passed on here, not 6,000"
NO_CONVERSATION = "The filter chose nothing, because the request names no conversation."


def warnings_about(limits: Limits | None = None, **fields: Any) -> list[str]:
    given: dict[str, Any] = {"target": "coder", "user": "u-1", **fields}
    sent = Submission(**given)
    request = receive(
        sent,
        Sender(name="web", is_hub=True),
        exposed=frozenset({"coder"}),
        run="r-1",
        created_ms=0,
        limits=limits or Limits(),
    )
    assert isinstance(request, Request)
    return [each.partition(" (")[0] for each in remarks(sent, request)]


def test_more_context_than_is_allowed_is_told() -> None:
    assert [each.startswith(CUT) for each in warnings_about(context_tokens=6_000)] == [True]
    assert warnings_about(context_tokens=4_000) == []
    assert warnings_about(Limits(context_tokens=8_000), context_tokens=6_000) == []
    assert warnings_about(Limits(context_tokens=2_000), context_tokens=4_000) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"last_messages": 3},
        {"roles": frozenset({"user"})},
        {"keywords": ("tea",)},
        {"max_age_seconds": 60},
        {"include_summary": True},
    ],
)
def test_a_filter_without_a_conversation_is_told(wanted: dict[str, Any]) -> None:
    context = ContextFilter(**wanted)
    assert [each.startswith(NO_CONVERSATION) for each in warnings_about(context=context)] == [True]
    assert warnings_about(context=context, session="s-1") == []
    assert warnings_about(context=context, view=View()) == []
    assert warnings_about(context=context, user=None, remit=a_remit()) == []


@pytest.mark.parametrize("wanted", [{}, {"last_messages": 0}, {"include_workspace": True}, {"known": "none"}])
def test_a_filter_that_needs_no_conversation_is_not_told(wanted: dict[str, Any]) -> None:
    assert warnings_about(context=ContextFilter(**wanted)) == []
