"""A hub takes over a changed configuration: what is asked from then on is judged by it, and no run is dropped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import (
    ALLOW,
    Ask,
    BreakerSettings,
    Brief,
    Call,
    Code,
    Facts,
    Hub,
    Limits,
    Refuse,
    RemitError,
    Request,
    Response,
    Verdict,
    fault,
)
from samples import code_of
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]


def no_b(request: Request, facts: Facts) -> Verdict:
    return Refuse(fault(Code.PERMISSION_DENIED, "not b")) if request.target == "b" else ALLOW


def ask_for_b(request: Request, facts: Facts) -> Verdict:
    return Ask("Pay?") if request.target == "b" else ALLOW


class Team:
    """`a` asks `b` before and after the change, which is made while it is at work."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.at_work, self.changed = asyncio.Event(), asyncio.Event()
        self.calls: list[Call] = [Call(target="b", objective="second", max_tokens=100)]
        hub.agent("b", tokens=100)(self._b)
        hub.agent("a", may_call=["b"], max_sub_agent_depth=3)(self._a)
        hub.agent("c")(self._b)

    async def _b(self, brief: Brief) -> str:
        return f"{brief.remit.tokens}"

    async def _a(self, brief: Brief) -> list[object]:
        before = await brief.delegate("b", objective="first")
        self.at_work.set()
        await self.changed.wait()
        after = await brief.fan_out(self.calls)
        return [code_of(each) or each.result for each in (before, *after)]

    async def ask(self, agent: str, **options: Any) -> Response:
        return await self.hub.ask(agent, "x", user="u-1", **options)

    async def through(self, **change: Any) -> list[object]:
        """Change the hub in the middle of a run of `a`, and return what `a` was answered before and after."""
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            asking = group.create_task(self.ask("a"))
            await self.at_work.wait()
            self.hub.reconfigure(**change)
            self.changed.set()
            response = await asking
        assert response.ok, response.fault
        return response.result


@pytest.fixture
def team(hub: Hub) -> Team:
    return Team(hub)


async def test_new_limits_hold_for_what_is_asked_from_now_on(team: Team) -> None:
    team.calls = [Call(target="b", objective=name) for name in ("second", "third")]
    async with team.hub:
        replies = await team.through(limits=Limits(max_fan_out=1))
        assert replies == ["100", Code.FAN_OUT_EXCEEDED, Code.FAN_OUT_EXCEEDED]


async def test_a_limit_that_is_lowered_does_not_stop_what_is_in_flight(team: Team) -> None:
    """No run is dropped: it keeps the time and the tokens that it was granted."""
    async with team.hub:
        assert await team.through(limits=Limits(root_time_ms=1, root_tokens=1, max_depth=1)) == ["100", "100"]


async def test_new_guards_judge_what_is_asked_from_now_on_and_the_hubs_own_stay(team: Team) -> None:
    """C6: the team's guards are exchanged, never those that come with the hub."""
    async with team.hub as hub:
        assert await team.through(guards=[no_b]) == ["100", Code.PERMISSION_DENIED]
        hub.reconfigure(guards=[])
        assert (await team.ask("b")).ok
        assert code_of(await team.ask("nobody")) is Code.AGENT_NOT_FOUND


async def test_what_is_not_said_stays_as_it_was(make_hub: MakeHub) -> None:
    team = Team(make_hub(guards=[no_b], limits=Limits(max_fan_out=1)))
    async with team.hub as hub:
        hub.reconfigure()
        assert code_of(await team.ask("b")) is Code.PERMISSION_DENIED
        hub.reconfigure(limits=Limits())
        assert code_of(await team.ask("b")) is Code.PERMISSION_DENIED


async def test_a_new_breaker_holds_at_once(team: Team) -> None:
    @team.hub.agent("shaky")
    async def shaky(brief: Brief) -> str:
        raise ZeroDivisionError

    async with team.hub as hub:
        assert code_of(await team.ask("shaky")) is Code.DELEGATION_FAILED
        hub.reconfigure(breaker=BreakerSettings(failures_in_a_row=2))
        codes = [code_of(await team.ask("shaky")) for _ in range(2)]
    assert codes == [Code.DELEGATION_FAILED, Code.DELEGATION_UNAVAILABLE]


async def test_a_new_card_of_the_callee_holds_for_what_is_asked_from_now_on(team: Team) -> None:
    cards = team.hub.cards
    async with team.hub as hub:
        hub.reconfigure(cards=[replace(cards["b"], tokens=50)])
        assert (await team.ask("b")).ok
        assert hub.cards["b"].tokens == 50
        assert hub.cards["a"] == cards["a"]


async def test_a_permission_that_is_taken_away_is_gone_for_who_is_at_work_too(team: Team) -> None:
    """The run goes on, and its next call is judged by the new card."""
    cards = team.hub.cards
    async with team.hub:
        changed = replace(cards["a"], may_call=frozenset({"c"}))
        assert await team.through(cards=[changed]) == ["100", Code.PERMISSION_DENIED]
        response = await team.ask("a")
        assert response.result == [Code.PERMISSION_DENIED, Code.PERMISSION_DENIED]


@pytest.mark.parametrize("wrong", ["unknown agent", "unknown callee", "unknown tool", "wrong type", "bad guards"])
async def test_a_change_that_cannot_be_made_changes_nothing(make_hub: MakeHub, wrong: str) -> None:
    """All of it or none: cards, limits, breaker and guards."""
    team = Team(make_hub(guards=[no_b]))
    cards = team.hub.cards
    good = replace(cards["a"], may_call=frozenset[str]())
    bad: dict[str, Any] = {
        "unknown agent": replace(cards["b"], name="stranger"),
        "unknown callee": replace(cards["b"], may_call=frozenset({"stranger"})),
        "unknown tool": replace(cards["b"], tools=frozenset({"hammer"})),
        "wrong type": replace(cards["b"], tokens="many"),
    }
    change: dict[str, Any] = {"limits": Limits(max_depth=1), "cards": [good, bad[wrong]] if wrong in bad else [good]}
    change["guards"] = 5 if wrong == "bad guards" else []
    async with team.hub as hub:
        with pytest.raises((RemitError, TypeError)):
            hub.reconfigure(**change)
        assert hub.cards == cards
        assert code_of(await team.ask("b")) is Code.PERMISSION_DENIED
        assert hub._parts.limits == Limits()  # pyright: ignore[reportPrivateUsage]


async def test_what_a_hub_cannot_change_while_it_is_open_is_refused(make_hub: MakeHub) -> None:
    """Slots are given out already; a number that nobody keeps to would be worse than none."""
    hub = make_hub()

    @hub.agent("one", concurrency=1)
    async def one(brief: Brief) -> str:
        return "x"

    hub.reconfigure(cards=[replace(hub.cards["one"], concurrency=2)])
    async with hub:
        with pytest.raises(RemitError, match="cannot be changed while the hub is open"):
            hub.reconfigure(limits=Limits(max_depth=0), cards=[replace(hub.cards["one"], queue=1)])
        assert (await hub.ask("one", user="u-1")).ok
        assert (hub.cards["one"].concurrency, hub.cards["one"].queue) == (2, 1_024)


async def test_a_hub_can_be_changed_before_it_is_opened(team: Team) -> None:
    team.hub.reconfigure(guards=[no_b])
    async with team.hub:
        assert code_of(await team.ask("b")) is Code.PERMISSION_DENIED


# ── while a person thinks ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["b", "a"], ids=["root", "nested"])
def agent(request: pytest.FixtureRequest) -> str:
    return request.param


async def changed_while_waiting(make_hub: MakeHub, agent: str, change: Callable[[Hub], None]) -> tuple[Response, Team]:
    """Change the hub while a person thinks about `b`, then let them agree; return how it ended for the user."""
    team = Team(make_hub(guards=[ask_for_b], approver="inbox"))
    team.changed.set()
    async with team.hub as hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask(agent))
        while not (pending := await hub.pending()):
            await asyncio.sleep(0)
        change(hub)
        await hub.decide(pending[0].id, agreed=True, by="ann")
        if agent == "a":  # what it asks for next
            for objective in ("second",):
                while not (more := await hub.pending()) and not asking.done():
                    await asyncio.sleep(0)
                for question in more:
                    assert question.request.objective == objective
                    await hub.decide(question.id, agreed=True, by="ann")
        return await asking, team


async def test_guards_that_were_changed_while_a_person_thought_are_heard(make_hub: MakeHub, agent: str) -> None:
    """Decision 4: after an answer all guards are asked again."""
    response, _ = await changed_while_waiting(make_hub, agent, lambda hub: hub.reconfigure(guards=[no_b]))
    assert (code_of(response) or response.result[0]) is Code.PERMISSION_DENIED or response.result == [
        Code.PERMISSION_DENIED,
        Code.PERMISSION_DENIED,
    ]


async def test_a_callees_card_that_was_changed_while_a_person_thought_is_the_one_that_counts(
    make_hub: MakeHub, agent: str
) -> None:
    """Decision 4: with fresh facts; what was taken from the callee meanwhile is not given to it after all."""
    seen: list[object] = []

    def card(hub: Hub) -> None:
        hub.reconfigure(
            cards=[replace(hub.cards["b"], version="2.0", description="changed")], guards=[remember, ask_for_b]
        )

    def remember(request: Request, facts: Facts) -> Verdict:
        if request.target == "b" and facts.approved:
            seen.append(facts.target and facts.target.version)
        return ALLOW

    response, _ = await changed_while_waiting(make_hub, agent, card)
    assert response.ok, response.fault
    assert set(seen) == {"2.0"}
    assert agent == "a" or response.agent_version == "2.0"


async def test_an_approval_timeout_that_is_changed_holds_for_the_next_question(make_hub: MakeHub) -> None:
    team = Team(make_hub(guards=[ask_for_b], approver="inbox", limits=Limits(approval_timeout_ms=60_000)))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b"))
        while not (pending := await hub.pending()):
            await asyncio.sleep(0)
        hub.reconfigure(limits=Limits(approval_timeout_ms=50))
        assert code_of(await team.ask("b")) is Code.APPROVAL_DECLINED
        assert pending[0].expires_ms - pending[0].asked_ms == 60_000
        await hub.decide(pending[0].id, agreed=True, by="ann")
        assert (await asking).ok
