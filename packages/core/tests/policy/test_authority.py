"""Whose tools and targets an agent has: never more than its caller's, where the team says so."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.guards import tools
from remit.policy.limits import Limits
from remit.policy.reception import Powers, authority_of, powers_of, received, within
from remit.policy.verdict import ALLOW, Facts, Refuse
from remit.protocol.card import AgentCard, Authority
from remit.protocol.envelope import VERSION, Request
from remit.protocol.errors import Code
from remit.protocol.remit import Remit

NAMES = ["a", "b", "c"]
ROOT = Remit(user="u", depth=0, max_depth=5, time_ms=1_000, tokens=1_000)
CALLER, OWN = Limits(authority="caller"), Limits()

sets = st.frozensets(st.sampled_from(NAMES))
cards = st.builds(
    AgentCard,
    name=st.just("x"),
    tools=sets,
    may_call=st.frozensets(st.sampled_from([*NAMES, "*"])),
    allow_sub_agent_calls=st.sampled_from([None, True, False]),
    authority=st.sampled_from([None, "own", "caller"]),
)
remits = st.builds(
    Remit,
    user=st.just("u"),
    depth=st.just(0),
    max_depth=st.just(5),
    time_ms=st.just(1_000),
    tokens=st.just(1_000),
    chain=st.sampled_from([(), ("y@z",)]),
    tools=st.none() | sets,
    targets=st.none() | sets,
)


def request(remit: Remit = ROOT) -> Request:
    return Request(version=VERSION, id="1", origin="asks", target="x", remit=remit, run="1")


def frozen(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("own", "of_hub", "holds"),
    [(None, "own", "own"), (None, "caller", "caller"), ("own", "caller", "own"), ("caller", "own", "caller")],
)
def test_what_an_agent_says_counts_more_than_what_its_hub_says(own: Any, of_hub: Authority, holds: Authority) -> None:
    assert authority_of(AgentCard(name="x", authority=own), Limits(authority=of_hub)) == holds


@pytest.mark.parametrize(
    ("card", "remit", "powers"),
    [
        (AgentCard(name="x"), ROOT, Powers(frozen(), frozen())),
        (AgentCard(name="x", tools=frozen("t"), may_call=frozen("a")), ROOT, Powers(frozen("t"), frozen("a"))),
        (AgentCard(name="x", may_call=frozen("*")), ROOT, Powers(frozen(), None)),
        (AgentCard(name="x", may_call=frozen("*"), allow_sub_agent_calls=False), ROOT, Powers(frozen(), frozen())),
        (
            AgentCard(name="x", tools=frozen("t", "s"), may_call=frozen("a", "b")),
            replace(ROOT, tools=frozen("t"), targets=frozen("b", "c")),
            Powers(frozen("t"), frozen("b")),
        ),
        # A user is bound by the remit alone; of an agent elsewhere it is all that is known.
        (None, ROOT, Powers(None, None)),
        (None, replace(ROOT, tools=frozen("t")), Powers(frozen("t"), None)),
        (None, replace(ROOT, chain=("y@z",)), Powers(frozen(), frozen())),
        (None, replace(ROOT, chain=("y@z",), targets=frozen("a")), Powers(frozen(), frozen("a"))),
    ],
)
def test_an_agent_has_what_its_card_and_its_remit_both_name(
    card: AgentCard | None, remit: Remit, powers: Powers
) -> None:
    assert powers_of(card, remit) == powers


@given(cards, remits, remits)
def test_a_remit_that_is_cut_lets_nothing_through_that_its_caller_could_not_do(
    caller: AgentCard, held: Remit, wanted: Remit
) -> None:
    cut = within(wanted, powers_of(caller, held))
    assert cut.within(wanted)
    for name in NAMES:
        if cut.tools is None or name in cut.tools:
            assert name in caller.tools
            assert held.tools is None or name in held.tools
        if cut.targets is None or name in cut.targets:
            assert caller.may_reach(name)
            assert held.targets is None or name in held.targets


@given(cards, remits)
def test_a_request_from_elsewhere_is_cut_only_where_the_caller_counts(card: AgentCard, remit: Remit) -> None:
    was, cut = request(remit), received(request(remit), card, OWN)
    if card.authority == "caller" and remit.chain:
        assert cut.remit == replace(remit, tools=remit.tools or frozen(), targets=remit.targets or frozen())
    else:
        assert cut == was


def test_to_cut_what_is_within_already_changes_nothing() -> None:
    bound = replace(ROOT, chain=("y@z",), tools=frozen("t"), targets=frozen())
    wanted = request(bound)
    assert received(wanted, AgentCard(name="x", authority="caller"), OWN) is wanted


@pytest.mark.parametrize(
    ("caller", "limits", "is_refused"),
    [
        (AgentCard(name="asks"), CALLER, True),
        (AgentCard(name="asks", tools=frozen("t")), CALLER, False),
        (AgentCard(name="asks"), OWN, False),
        (AgentCard(name="asks", passes_on=True), CALLER, False),
        (None, CALLER, False),
    ],
)
def test_tools_that_the_caller_does_not_have_cannot_be_asked_for(
    caller: AgentCard | None, limits: Limits, is_refused: bool
) -> None:
    callee = AgentCard(name="x", tools=frozen("t"))
    facts = Facts(target=callee, caller=caller, limits=limits, asked_tools=frozen("t"))
    verdict = tools(request(), facts)
    if not is_refused:
        assert verdict is ALLOW
        return
    assert isinstance(verdict, Refuse)
    assert verdict.fault.code is Code.TOOL_NOT_ALLOWED
    assert "asks does not have it, and x works with the authority of its caller" in verdict.fault.message
