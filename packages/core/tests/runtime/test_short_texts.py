"""Short texts, as most calls and answers are: their straight path decides and makes the same as the general one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remit import Answer, Call
from remit.policy.breaker import Breaker, BreakerSettings, Phase
from remit.policy.budget import Window
from remit.policy.guards import GUARDS, judge, passes_again
from remit.policy.limits import Limits
from remit.policy.repeats import call_key_of
from remit.policy.verdict import Facts, Rewrite
from remit.policy.weight import is_short_text
from remit.ports.agents import RegisteredAgent
from remit.protocol.card import AgentCard, Rate
from remit.protocol.envelope import Request
from remit.protocol.lifecycle import DelegationState, IllegalMoveError, Status
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.dispatch import (
    CallAttempt,
    attempt_at,
    draft,
    draft_again,
    facts_of_call,
    is_like,
    passed_call,
    tokens_again,
)
from remit.runtime.frames import Frame, PassedCall, Run
from remit.runtime.ledger import Ledger
from samples import a_card, a_remit, a_request


def seldom(bad: Any, *good: Any) -> st.SearchStrategy[Any]:
    """One of *good* nine times in ten, so that many calls pass although each of their parts may be wrong."""
    return st.integers(0, 9).flatmap(lambda number: st.sampled_from(good) if number else st.just(bad))


TEXTS = seldom("x" * 4_096, "x", "Categorize this", "mail ann@example.org")
LIMITS = st.builds(
    Limits,
    delegation_tokens=st.sampled_from([None, 0, 100, 8_000]),
    delegation_time_ms=seldom(10, 30_000),
    authority=seldom("caller", "own"),
    max_depth=seldom(1, 5),
    max_fan_out=seldom(1, 3),
    max_delegations=seldom(1, 3_000),
    max_agent_delegations=seldom(1, 1_000),
    max_record_bytes=seldom(1, 1_000_000),
)
CALLEES = st.builds(
    a_card,
    tokens=st.sampled_from([None, 0, 50, 2_000]),
    time_ms=seldom(5, None, 60_000),
    authority=seldom("caller", None, "own"),
    rate=seldom(Rate(calls=1, seconds=1), None),
)
CALLERS = st.builds(
    a_card,
    name=st.just("prime"),
    may_call=seldom(frozenset[str](), frozenset({"tag"})),
    max_sub_agent_depth=seldom(1, None),
)
HELD = st.builds(
    a_remit,
    time_ms=st.just(100_000),
    depth=seldom(5, 0, 4),
    tokens=seldom(0, 300, 1_000),
    may_delegate=seldom(False, True),
    targets=seldom(frozenset({"other"}), None, frozenset({"tag"})),
    chain=seldom(("tag@hub",), ()),
)
CALLS = st.builds(Call, target=st.just("tag"), objective=TEXTS, max_tokens=st.sampled_from([None, 0, 100, 250]))


async def nothing(_: object) -> Answer:
    return Answer()


def a_caller(card: AgentCard, request: Request) -> Frame:
    return Frame(request, RegisteredAgent(card, nothing, "prime@hub"), Run(request, 1, None), None, 0.0)


CALLER = a_card(name="prime", may_call=frozenset({"tag"}))
CALLEE = RegisteredAgent(a_card(), nothing, "tag@hub")


@settings(max_examples=100)
@given(
    CALLS,
    CALLS,
    CALLEES,
    CALLERS,
    HELD,
    LIMITS,
    st.sampled_from([-5, 0, 400, 100_000]),
    st.sampled_from([-5, 0, 400, 100_000]),
    st.integers(0, 400),
)
def test_a_short_text_like_the_last_one_is_drafted_as_any_call(
    first: Call,
    second: Call,
    card: AgentCard,
    caller: AgentCard,
    held: Any,
    limits: Limits,
    left_ms: int,
    left_later_ms: int,
    reserved: int,
) -> None:
    parent = a_caller(caller, a_request(target="prime", remit=held, session="s", correlation="c"))
    request = draft(parent, first, card, "run-1.1", left_ms, 7, limits, caller, is_remote=False)
    entry = RegisteredAgent(card, nothing, "tag@hub")
    last = passed_call(request, parent, first, entry, caller, limits, GUARDS)
    parent.reserved = reserved
    assert is_short_text(second)
    if last is None or not is_like(last, second, card, caller, limits):
        return
    tokens = tokens_again(last, parent, limits)
    if tokens is not None:
        expected = draft(parent, second, card, "run-1.2", left_later_ms, 8, limits, caller, is_remote=False)
        assert draft_again(last, second, "run-1.2", left_later_ms, 8, tokens) == expected


def test_a_call_whose_tokens_were_cut_is_not_repeated() -> None:
    call, limits = Call(target="tag", objective="one", max_tokens=2_000), Limits()
    parent = a_caller(CALLER, a_request(target="prime"))
    request = draft(parent, call, CALLEE.card, "run-1.1", 60_000, 7, limits, is_remote=False)
    assert request.remit.tokens == 1_000
    assert passed_call(request, parent, call, CALLEE, CALLER, limits, GUARDS) is None


@pytest.mark.parametrize("changed", ["card", "caller", "limits", "call"])
def test_another_card_other_limits_or_other_tokens_make_another_call(changed: str) -> None:
    call, limits = Call(target="tag", objective="one", max_tokens=100), Limits()
    last = PassedCall(a_request(), 100, 30_000, CALLEE.card, CALLER, limits, GUARDS, is_share=False, draws=0)
    given = {"call": call, "card": CALLEE.card, "caller": CALLER, "limits": limits}
    assert is_like(last, **given)  # pyright: ignore[reportArgumentType]
    other = {"call": replace(call, max_tokens=99), "card": a_card(), "caller": replace(CALLER), "limits": Limits()}
    assert not is_like(last, **(given | {changed: other[changed]}))  # pyright: ignore[reportArgumentType]


class Scene:
    """A caller whose first short text passed all guards."""

    def __init__(self) -> None:
        self.parts = SimpleNamespace(
            limits=Limits(),
            guards=GUARDS,
            ledger=Ledger(BreakerSettings()),
            store=SimpleNamespace(sizes=dict[str, int]()),
            registry=SimpleNamespace(agents={"tag": CALLEE}, hub="local"),
        )
        self.parent = a_caller(CALLER, a_request(target="prime", remit=a_remit(chain=(), time_ms=100_000)))
        attempt, request = self.drafted("one", 60_000, None)
        assert isinstance(judge(request, self.facts(attempt, request), GUARDS), Rewrite)
        self.last = passed_call(request, self.parent, attempt.call, CALLEE, CALLER, self.parts.limits, GUARDS)

    def drafted(self, text: str, left_ms: int, at_once: int | None) -> tuple[CallAttempt, Request]:
        call = Call(target="tag", objective=text, max_tokens=100)
        attempt = attempt_at(self.parent, call, self.parts.registry.agents, at_once=at_once)
        return attempt, draft(
            self.parent, call, CALLEE.card, attempt.path, left_ms, 8, self.parts.limits, is_remote=False
        )

    def facts(self, attempt: CallAttempt, request: Request) -> Facts:
        return facts_of_call(cast("RuntimeContext", self.parts), attempt, request, CALLER, 0.0, repeated=False)

    def passes(self, text: str = "two", left_ms: int = 60_000, at_once: int | None = None, **changes: Any) -> bool:
        """Return whether one more text passes the one look; if so, it passes all guards."""
        attempt, request = self.drafted(text, left_ms, at_once)
        attempt = replace(attempt, **changes)
        assert self.last is not None
        assert draft_again(self.last, attempt.call, attempt.path, left_ms, 8, 100) == request
        facts = self.facts(attempt, request)
        passes = passes_again(request, facts)
        assert not passes or isinstance(judge(request, facts, GUARDS), Rewrite)
        return passes


def test_an_ordinary_short_text_passes_again() -> None:
    assert Scene().passes()


def overrun(scene: Scene) -> bool:
    scene.parent.run.overrun = True
    return scene.passes()


def many_in_flight(scene: Scene) -> bool:
    scene.parent.children = {Frame(a_request(), CALLEE, scene.parent.run, scene.parent, 0.0) for _ in range(3)}
    return scene.passes()


def many_delegations(scene: Scene) -> bool:
    scene.parent.run.tally.delegations = 3_000
    return scene.passes()


def a_full_record(scene: Scene) -> bool:
    scene.parts.store.sizes["run-1"] = scene.parts.limits.max_record_bytes
    return scene.passes()


def an_open_breaker(scene: Scene) -> bool:
    scene.parts.ledger.breakers["tag"] = Breaker(phase=Phase.OPEN, opened_at=0.0, openings=1)
    return scene.passes()


def a_busy_callee(scene: Scene) -> bool:
    callee = RegisteredAgent(a_card(rate=Rate(calls=1, seconds=1)), nothing, "tag@hub")
    scene.parts.ledger.windows["tag"] = Window(0.0, 1)
    return scene.passes(entry=callee)


CHANGES: dict[str, Callable[[Scene], bool]] = {
    "too little time": lambda scene: scene.passes(left_ms=19),
    "a text longer than its tokens": lambda scene: scene.passes("x" * 26),
    "many at once": lambda scene: scene.passes(at_once=4),
    "many of one agent": lambda scene: scene.passes(asked_by_agent=1_001),
    "an overrun": overrun,
    "many in flight": many_in_flight,
    "many delegations": many_delegations,
    "a full record": a_full_record,
    "an open breaker": an_open_breaker,
    "a busy callee": a_busy_callee,
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_alone_leads_to_the_general_path(change: str) -> None:
    assert not CHANGES[change](Scene())


def test_the_key_of_a_short_text_is_that_of_its_request() -> None:
    assert call_key_of(a_request(objective="  Two  Words ")) == ("tag", "", "two words")


def test_a_delegation_moves_only_as_the_table_of_its_states_allows() -> None:
    frame = a_caller(CALLER, a_request())
    frame.advance(DelegationState.RUNNING)
    frame.advance(Status.SUCCESS)
    with pytest.raises(IllegalMoveError, match="cannot move from success to running"):
        frame.advance(DelegationState.RUNNING)
    assert frame.state is Status.SUCCESS
