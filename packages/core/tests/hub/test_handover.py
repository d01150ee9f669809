"""A conversation is handed over: the agent that gets it answers the user, and the next turns start at it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from remit import (
    ALLOW,
    Answer,
    Ask,
    Brief,
    Code,
    ContextFilter,
    Decision,
    Facts,
    Handover,
    Hub,
    Question,
    Request,
    Status,
    Verdict,
)

MakeHub = Callable[..., Hub]


def office(hub: Hub, said: list[str]) -> None:
    """A front desk that hands over to billing or refunds, by the first word; they hand back what is not theirs."""

    @hub.agent("desk", may_call=["billing", "refunds"])
    async def desk(brief: Brief) -> Answer:
        said.append(f"desk: {brief.text}")
        topic = brief.text.partition(" ")[0]
        return Answer(handover=topic) if topic in ("billing", "refunds") else Answer(f"desk answers {brief.text}")

    @hub.agent("billing", may_call=["refunds"])
    async def billing(brief: Brief) -> Answer:
        said.append(f"billing: {brief.text}")
        topic = brief.text.partition(" ")[0]
        if topic == "thanks":
            return Answer("billing says goodbye", handover="back")
        if topic == "deeper":
            return Answer(handover="refunds")
        return Answer(f"billing answers {brief.text}") if topic in ("billing", "and") else Answer(handover="desk")

    @hub.agent("refunds")
    async def refunds(brief: Brief) -> Answer:
        said.append(f"refunds: {brief.text}")
        topic = brief.text.partition(" ")[0]
        if topic in ("refunds", "deeper", "and"):
            return Answer(f"refunds answers {brief.text}")
        return Answer(handover="desk" if topic == "desk" else "back")


async def test_the_next_turns_start_at_the_agent_that_took_the_conversation_over(hub: Hub) -> None:
    said: list[str] = []
    office(hub, said)
    async with hub:
        answers = [
            await hub.ask("desk", text, user="u", session="s")
            for text in ("billing of May", "and June", "thanks", "hello")
        ]
        steps = await hub.delegations(answers[1].run)
    assert [each.result for each in answers] == [
        "billing answers billing of May",
        "billing answers and June",
        "billing says goodbye",
        "desk answers hello",
    ]
    assert said[:2] == ["desk: billing of May", "billing: billing of May"]
    assert said[2:] == ["billing: and June", "billing: thanks", "desk: hello"]
    assert [each.path for each in answers] == [("desk", "billing"), ("desk", "billing"), ("desk", "billing"), ()]
    assert [[to.to for to in each.handover] for each in answers] == [["billing"], ["billing"], [], []]
    assert [(each.origin, each.target, each.status) for each in steps] == [
        ("user", "desk", Status.SUCCESS),
        ("desk", "billing", Status.SUCCESS),
    ]


async def test_what_is_not_its_own_goes_back_and_on_in_one_turn(hub: Hub) -> None:
    said: list[str] = []
    office(hub, said)
    async with hub:
        await hub.ask("desk", "billing of May", user="u", session="s")
        said.clear()
        answer = await hub.ask("desk", "refunds please", user="u", session="s")
        further = await hub.ask("desk", "and June", user="u", session="s")
    assert said == ["billing: refunds please", "desk: refunds please", "refunds: refunds please", "refunds: and June"]
    assert (answer.result, further.result) == ("refunds answers refunds please", "refunds answers and June")


async def test_a_conversation_goes_down_a_line_of_agents_and_back_up_past_those_between(hub: Hub) -> None:
    said: list[str] = []
    office(hub, said)
    async with hub:
        await hub.ask("desk", "billing of May", user="u", session="s")
        deeper = await hub.ask("desk", "deeper", user="u", session="s")
        further = await hub.ask("desk", "and June", user="u", session="s")
        said.clear()
        back = await hub.ask("desk", "desk please", user="u", session="s")
        steps = [(each.origin, each.target) for each in await hub.delegations(further.run)]
    assert deeper.path == ("desk", "billing", "refunds")
    assert [each.to for each in deeper.handover] == ["billing", "refunds"]
    assert further.result == "refunds answers and June"
    assert steps == [("user", "desk"), ("desk", "billing"), ("billing", "refunds")]
    assert said == ["refunds: desk please", "desk: desk please"]
    assert (back.result, back.handover) == ("desk answers desk please", ())


async def test_handing_over_in_a_circle_ends_with_an_error_that_says_so(hub: Hub) -> None:
    @hub.agent("a", may_call=["b"])
    async def a(_: Brief) -> Answer:
        return Answer(handover="b")

    @hub.agent("b", may_call=["a"])
    async def b(_: Brief) -> Answer:
        return Answer(handover="a")

    async with hub:
        response = await hub.ask("a", "who is it?", user="u", session="s")
        again = await hub.ask("a", "and now?", user="u", session="s")
    for each in (response, again):
        assert each.status is Status.FAILED
        assert each.fault is not None
        assert each.fault.code is Code.LOOP_DETECTED
        assert "handed it back at once" in each.fault.message


async def test_a_handover_is_refused_like_a_call(hub: Hub) -> None:
    """The callee is not in `may_call`; the session stays with its agent."""

    @hub.agent("desk", may_call=["billing"])
    async def desk(brief: Brief) -> Answer:
        return Answer(handover="vault") if brief.text == "vault" else Answer("desk answers")

    @hub.agent("vault")
    async def vault(_: Brief) -> str:
        raise AssertionError("it must not run")

    @hub.agent("billing", may_call=["desk"])
    async def billing(_: Brief) -> None:
        raise AssertionError("it must not run")

    async with hub:
        refused = await hub.ask("desk", "vault", user="u", session="s")
        after = await hub.ask("desk", "hello", user="u", session="s")
        unbounded = await hub.ask("desk", "vault", user="u", session="s", targets=())
    assert refused.fault is not None
    assert (refused.fault.code, after.result) == (Code.PERMISSION_DENIED, "desk answers")
    assert unbounded.fault is not None


async def test_the_conversation_stays_where_it_was_if_a_turn_fails_or_the_agent_is_gone(make_hub: MakeHub) -> None:
    said: list[str] = []
    first, second = make_hub(), make_hub()
    office(first, said)

    @second.agent("desk")
    async def desk(brief: Brief) -> str:
        return f"desk alone answers {brief.text}"

    async with first:
        await first.ask("desk", "billing of May", user="u", session="s")
        failed = await first.ask("desk", "and June", user="u", session="s", max_depth=0)
        goes_on = await first.ask("desk", "and June", user="u", session="s")
    async with second:
        alone = await second.ask("desk", "and July", user="u", session="s")
    assert failed.fault is not None
    assert failed.fault.code is Code.MAX_DEPTH_EXCEEDED
    assert goes_on.result == "billing answers and June"
    assert alone.result == "desk alone answers and July"


async def test_it_survives_a_restart_and_another_hub_on_the_same_store(tmp_path: Path) -> None:
    said: list[str] = []
    for text in ("billing of May", "and June"):
        hub = Hub(store=tmp_path / "hub.db")
        office(hub, said)
        async with hub:
            answer = await hub.ask("desk", text, user="u", session="s")
    assert answer.result == "billing answers and June"
    assert said[-1] == "billing: and June"


async def test_the_user_can_ask_for_another_agent_and_take_the_conversation_back(hub: Hub) -> None:
    said: list[str] = []
    office(hub, said)
    async with hub:
        await hub.ask("desk", "billing of May", user="u", session="s")
        other = await hub.ask("desk", "and that?", user="u", session="s", handover="refunds")
        back = await hub.ask("desk", "and this?", user="u", session="s", handover="desk")
        nobody = await hub.ask("desk", "and this?", user="u", session="s", handover="nobody")
        last = await hub.ask("desk", "so?", user="u", session="s")
    assert (other.result, other.path) == ("refunds answers and that?", ("desk", "refunds"))
    assert (back.result, last.result) == ("desk answers and this?", "desk answers so?")
    assert nobody.fault is not None
    assert nobody.fault.code is Code.AGENT_NOT_FOUND


async def test_another_user_and_another_session_begin_at_the_front(hub: Hub) -> None:
    said: list[str] = []
    office(hub, said)
    async with hub:
        await hub.ask("desk", "billing of May", user="u", session="s")
        other = await hub.ask("desk", "and June", user="v", session="s")
        new = await hub.ask("desk", "and June", user="u", session="t")
    assert (other.result, new.result) == ("desk answers and June",) * 2


async def test_the_agent_in_charge_sees_the_conversation_as_far_as_its_filter_says_and_nothing_twice(hub: Hub) -> None:
    seen: list[tuple[list[str], list[str]]] = []

    @hub.agent("desk", may_call=["billing"])
    async def desk(brief: Brief) -> Answer:
        if brief.text.startswith("pay"):
            return Answer(handover=Handover(to="billing", context=ContextFilter(roles=frozenset({"user"}))))
        return Answer("desk: fine")

    @hub.agent("billing")
    async def billing(brief: Brief) -> Answer:
        history = await brief.history()
        seen.append(([each.text for each in history], [each.text for each in brief.messages]))
        return Answer("billing: done", handover="back" if brief.text == "bye" else None)

    async with hub:
        for text in ("I am Ada", "pay my bill", "pay the next", "bye", "new topic", "pay again"):
            await hub.ask("desk", text, user="u", session="s")
    assert seen == [
        ([], ["I am Ada"]),
        (["I am Ada", "pay my bill", "billing: done"], []),
        (["I am Ada", "pay my bill", "billing: done", "pay the next", "billing: done"], []),
        (
            ["I am Ada", "pay my bill", "billing: done", "pay the next", "billing: done", "bye", "billing: done"],
            ["new topic"],
        ),
    ]


async def test_a_result_with_a_handover_is_the_answer_and_the_other_agent_begins_with_the_next_turn(hub: Hub) -> None:
    @hub.agent("desk", may_call=["billing"])
    async def desk(_: Brief) -> Answer:
        return Answer("What is the number of the bill?", handover="billing")

    @hub.agent("billing")
    async def billing(brief: Brief) -> str:
        return f"bill {brief.text} is paid"

    async with hub:
        first = await hub.ask("desk", "pay", user="u")
        second = await hub.ask("desk", "17", user="u", session=first.session)
    assert (first.result, first.path) == ("What is the number of the bill?", ())
    assert second.result == "bill 17 is paid"


@pytest.mark.parametrize("to", ["back", "desk"])
async def test_there_must_be_somebody_to_hand_over_to(hub: Hub, to: str) -> None:
    @hub.agent("desk")
    async def desk(_: Brief) -> Answer:
        return Answer(handover=to)

    async with hub:
        response = await hub.ask("desk", "hello", user="u")
    assert response.fault is not None
    assert response.fault.code is Code.RESULT_VALIDATION_FAILED
    assert "cannot hand the conversation over" in response.fault.message


async def test_a_person_is_asked_about_a_handover_as_about_a_call(make_hub: MakeHub) -> None:
    questions: list[Question] = []

    async def approve(question: Question) -> Decision:
        questions.append(question)
        return Decision(agreed=False, by="Eve")

    def ask(request: Request, _: Facts) -> Verdict:
        return Ask("May billing have it?") if request.target == "billing" else ALLOW

    hub = make_hub(guards=[ask], approver=approve)
    office(hub, [])
    async with hub:
        declined = await hub.ask("desk", "billing of May", user="u", session="s")
    assert declined.fault is not None
    assert declined.fault.code is Code.APPROVAL_DECLINED
    assert [each.text for each in questions] == ["May billing have it?"]


async def test_personal_data_pass_as_tokens_and_come_back_to_the_user(hub: Hub) -> None:
    seen: list[str] = []

    @hub.agent("desk", may_call=["billing"])
    async def desk(_: Brief) -> Answer:
        keywords = ContextFilter(keywords=("alice@example.org",))
        return Answer(handover=Handover(to="billing", reason="alice@example.org pays", context=keywords))

    @hub.agent("billing")
    async def billing(brief: Brief) -> str:
        seen.append(brief.text)
        return f"the bill went to {brief.text.split()[-1]}"

    async with hub:
        first = await hub.ask("desk", "send it to alice@example.org", user="u", session="s")
        await hub.ask("desk", "and to bob@example.org", user="u", session="s")
        records = repr(await hub.store.records())
    assert first.result == "the bill went to alice@example.org"
    assert all("example.org" not in each for each in seen)
    assert "example.org" not in records


async def test_it_takes_over_within_what_is_left(hub: Hub) -> None:
    remits: list[tuple[int, int, tuple[str, ...]]] = []

    @hub.agent("desk", may_call=["billing"])
    async def desk(brief: Brief) -> Answer:
        brief.spend(prompt=400)
        return Answer(handover="billing")

    @hub.agent("billing")
    async def billing(brief: Brief) -> str:
        remits.append((brief.tokens_left(600), brief.remit.time_ms, brief.remit.chain))
        return "done"

    async with hub:
        await hub.ask("desk", "pay", user="u", max_tokens=1_000, deadline_ms=100_000)
    ((tokens, time_ms, chain),) = remits
    assert tokens == 600
    assert 90_000 < time_ms <= 100_000
    assert [each.partition("@")[0] for each in chain] == ["desk"]
