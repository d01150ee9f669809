"""A guard asks, a person answers: what they are shown, what they may change, and what becomes of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remit import (
    ALLOW,
    Ask,
    Brief,
    Call,
    Code,
    Facts,
    Guard,
    Hub,
    Kind,
    Limits,
    Refuse,
    RemitError,
    Request,
    Response,
    Status,
    Verdict,
    fault,
)
from remit.policy.verdict import Finding
from remit.ports import Decision, Question
from remit.protocol.card import Capability
from remit.protocol.records import Approval
from remit.runtime.approvers import NOBODY_ASKED, AllowList, InboxApprover, decide, deny, first_of
from remit.stores.sqlite import SqliteStore
from remit.words.terminal import marked
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock, a_request
from samples import code_of
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]

CARD = "4111 1111 1111 1111"


async def decide_elsewhere(path: Path, name: str, decision: Decision) -> None:
    """Answer as `remit pending` does in another process: through a store of its own on the same file."""
    store = SqliteStore(path, durability="process")
    await store.open()
    await decide(store, name, decision)
    await store.close()


def asks(question: str, *, of: str = "b", editable: Any = frozenset[str]()) -> Guard:
    """Return the guard that asks *question* about requests for *of*."""
    return lambda request, facts: Ask(question, editable) if request.target == of else ALLOW


class Team:
    """`a` asks `b` in the words that it was asked in; what `b` was given is noted."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.given: list[tuple[str, object]] = []
        self.replies: list[Response] = []
        hub.agent("b", capabilities=["DO"])(self.do)
        hub.agent("a", may_call=["b"])(self._a)

    async def do(self, brief: Brief) -> str:
        self.given.append((brief.request.objective, brief.request.input))
        return f"did {brief.request.objective}"

    async def _a(self, brief: Brief) -> object:
        self.replies.append(await brief.delegate("b", objective=brief.request.objective, input=brief.request.input))
        return self.replies[-1].result

    async def ask(self, agent: str, text: str = "pay bob", **options: Any) -> Response:
        return await self.hub.ask(agent, text, user="u-1", **options)

    async def reply(self, agent: str, text: str = "pay bob", **options: Any) -> Response:
        """Return how what was asked of `b` ended: by the user, or by `a` in the user's name."""
        response = await self.ask(agent, text, **options)
        return response if agent == "b" else self.replies[-1]


@pytest.fixture(params=["b", "a"], ids=["root", "nested"])
def agent(request: pytest.FixtureRequest) -> str:
    """Whom the user asks: `b` itself, which is a root, or `a`, which then asks `b`."""
    return request.param


async def questions(hub: Hub, count: int = 1) -> list[Question]:
    """Wait until so many questions are pending, and return them."""
    while len(pending := await hub.pending()) < count:
        await asyncio.sleep(0)
    return pending


async def answer(hub: Hub, *, agreed: bool = True, by: str = "ann", edits: dict[str, object] | None = None) -> Question:
    """Answer the next question that is put."""
    (question,) = await questions(hub)
    return await hub.decide(question.id, agreed=agreed, by=by, edits=edits)


async def approvals(hub: Hub, run: str) -> list[Approval]:
    await hub.store.flush()
    return [record.body for record in await hub.store.records(run=run) if isinstance(record.body, Approval)]


def always(decision: Decision | bool | None, questions: list[Question] | None = None) -> Any:
    """Return the approver that always says the same."""

    async def approver(question: Question) -> Decision | bool | None:
        if questions is not None:
            questions.append(question)
        return decision

    return approver


# ── the inbox, from another process ───────────────────────────────────────────────────────────────────────────────────


async def test_a_person_in_another_process_agrees_and_the_request_goes_on(
    make_hub: MakeHub, tmp_path: Path, agent: str
) -> None:
    """Decisions 4 and 14: the record says what was asked, who answered, when and why."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        (question,) = await questions(hub)
        await decide_elsewhere(tmp_path / "hub.db", question.id, Decision(agreed=True, by="ann", reason="fine"))
        reply = await asking
        recorded = await approvals(hub, reply.run)
        assert await hub.pending() == []
    assert (reply.status, reply.result, team.given) == (Status.SUCCESS, "did pay bob", [("pay bob", None)])
    assert (question.text, question.request.target, question.request.remit.user) == ("Pay?", "b", "u-1")
    path = reply.run if agent == "b" else f"{reply.run}.1"
    put = Approval(delegation=path, agent="b", id=question.id, question="Pay?")
    assert recorded == [put, replace(put, agreed=True, by="ann", reason="fine")]


async def test_a_person_in_another_process_declines_and_nothing_is_done(
    make_hub: MakeHub, tmp_path: Path, agent: str
) -> None:
    """C6: APPROVAL_DECLINED, with who declined and why."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        (question,) = await questions(hub)
        await decide_elsewhere(tmp_path / "hub.db", question.id, Decision(agreed=False, by="ben", reason="too much"))
        reply = await asking
        recorded = await approvals(hub, reply.run)
    assert reply.fault is not None
    assert (reply.status, code_of(reply), team.given) == (Status.REFUSED, Code.APPROVAL_DECLINED, [])
    assert "by ben (too much)" in reply.fault.message
    assert [(each.agreed, each.by, each.reason) for each in recorded] == [(None, "", ""), (False, "ben", "too much")]


async def test_a_root_that_a_person_declined_is_declined_again_and_nobody_is_asked(make_hub: MakeHub) -> None:
    """Decision 6: what a person decided about a request is its outcome."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b", request_id="1"))
        await answer(hub, agreed=False)
        declined = await asking
        again = await team.ask("b", request_id="1")
        kinds = [record.kind for record in await hub.store.records(run=declined.run)]
    assert (code_of(declined), again) == (Code.APPROVAL_DECLINED, declined)
    assert kinds == [Kind.STARTED, Kind.APPROVAL, Kind.APPROVAL, Kind.RESULT]
    assert team.given == []


async def test_a_root_about_which_nobody_decided_may_be_asked_again(make_hub: MakeHub) -> None:
    """Decision 6: nobody said no to it."""
    answers = iter([NOBODY_ASKED, Decision(agreed=True, by="ann")])

    async def at_last(_: Question) -> Decision:
        return next(answers)

    team = Team(make_hub(guards=[asks("Pay?")], approver=at_last))
    async with team.hub:
        declined = await team.ask("b", request_id="1")
        again = await team.ask("b", request_id="1")
    assert (code_of(declined), again.result) == (Code.APPROVAL_DECLINED, "did pay bob")


async def test_a_root_that_was_approved_and_could_not_begin_is_not_asked_about_again(
    make_hub: MakeHub,
) -> None:
    """Decision 6: what a person decided about a request holds for it when it is sent again."""
    questions_asked: list[Question] = []
    hosted = iter([False, True, True, True])

    def away(request: Request, facts: Facts) -> Verdict:
        """Refuse once, after the person agreed."""
        if not facts.approved or next(hosted):
            return ALLOW
        return Refuse(fault(Code.DELEGATION_UNAVAILABLE, "nobody hosts b"))

    hub = make_hub(guards=[asks("Pay?"), away], approver=always(Decision(agreed=True, by="ann"), questions_asked))
    team = Team(hub)
    async with team.hub:
        refused = await team.ask("b", request_id="1")
        done = await team.ask("b", request_id="1")
        other_text = await team.ask("b", "pay eve", request_id="2")
        other_id = await team.ask("b", request_id="3")
    assert (refused.status, code_of(refused)) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert (done.result, done.run != refused.run) == ("did pay bob", True)
    assert done.warnings == ("A person approved this request when it was sent before.",)
    # Neither another content nor another id is what was agreed to.
    assert [other_text.warnings, other_id.warnings] == [(), ()]
    assert [each.request.id for each in questions_asked] == ["1", "2", "3"]


async def test_a_root_that_was_edited_and_could_not_begin_is_asked_about_again(make_hub: MakeHub) -> None:
    """What is sent again is not what was agreed to."""
    questions_asked: list[Question] = []
    hosted = iter([False, True])

    def away(request: Request, facts: Facts) -> Verdict:
        if not facts.approved or next(hosted):
            return ALLOW
        return Refuse(fault(Code.DELEGATION_UNAVAILABLE, "nobody hosts b"))

    edited = Decision(agreed=True, by="ann", edits={"objective": "pay ben"})
    approver = always(edited, questions_asked)
    team = Team(make_hub(guards=[asks("Pay?", editable=frozenset({"objective"})), away], approver=approver))
    async with team.hub:
        await team.ask("b", request_id="1")
        await team.ask("b", request_id="1")
    assert [each.request.objective for each in questions_asked] == ["pay bob", "pay bob"]


async def test_nobody_answers_in_time_and_the_question_is_gone(make_hub: MakeHub, agent: str) -> None:
    """Decision 4: a person's time has a limit of its own."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox", limits=Limits(approval_timeout_ms=50)))
    async with team.hub as hub:
        reply = await team.reply(agent)
        (question,) = [each.id for each in await approvals(hub, reply.run)]
        assert await hub.pending() == []
        with pytest.raises(RemitError):
            await hub.decide(question, agreed=True, by="ann")
    assert reply.fault is not None
    assert (code_of(reply), team.given) == (Code.APPROVAL_DECLINED, [])
    assert "within 50 ms" in reply.fault.message


async def test_a_question_whose_time_is_over_before_it_is_stored_stays_over() -> None:
    """Decision 4: an agent that is run again meets the refusal that it met before."""
    stored, stores = MemoryStore(), asyncio.Event()
    await stored.open()

    class SlowInbox(MemoryStore):
        async def put(self, question: Question) -> Question:
            await stores.wait()
            return await stored.put(question)

    question = Question(id="1.1-5", text="Pay?", request=a_request(), asked_ms=1, expires_ms=2)
    asking = asyncio.create_task(InboxApprover(SlowInbox())(question))
    await asyncio.sleep(0)
    asking.cancel()  # as the time limit does
    await asyncio.sleep(0)
    stores.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await stored.put(replace(question, expires_ms=600_000)) == question
    await stored.close()


async def test_whoever_answered_in_time_did_though_nobody_looked_before_it_was_over(
    make_hub: MakeHub, agent: str
) -> None:
    """A race of answer and expiry: who was told that the answer was taken is not told otherwise by what happens."""

    async def deaf(question: Question) -> bool:
        await team.hub.store.put(question)
        await team.hub.decide(question.id, agreed=True, by="ann")
        await asyncio.Event().wait()
        return False

    team = Team(make_hub(guards=[asks("Pay?")], approver=deaf, limits=Limits(approval_timeout_ms=300)))
    async with team.hub:
        reply = await team.reply(agent)
    assert (reply.result, team.given) == ("did pay bob", [("pay bob", None)])


async def test_a_yes_that_comes_after_the_time_is_up_saves_nothing(make_hub: MakeHub, agent: str) -> None:
    """Also from an approver that does not notice that it was told to stop."""

    async def stubborn(question: Question) -> bool:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return True

    team = Team(make_hub(guards=[asks("Pay?")], approver=stubborn, limits=Limits(approval_timeout_ms=50)))
    async with team.hub:
        reply = await team.reply(agent)
    assert (code_of(reply), team.given) == (Code.APPROVAL_DECLINED, [])


async def test_fifty_wait_at_once_and_each_gets_its_own_answer(make_hub: MakeHub, agent: str) -> None:
    limits = Limits(max_fan_out=50)
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox", limits=limits))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = [group.create_task(team.ask(agent, f"pay {number}")) for number in range(50)]
        for question in await questions(hub, 50):
            number = int(question.request.objective.split()[-1])
            await hub.decide(question.id, agreed=number % 2 == 0, by=f"person {number}")
        replies = [await each for each in asking]
    assert sorted(each for each, _ in team.given) == sorted(f"pay {number}" for number in range(0, 50, 2))
    results = [reply.result for reply in replies]
    assert results == [f"did pay {number}" if number % 2 == 0 else None for number in range(50)]


# ── several questions ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_two_guards_ask_one_after_the_other_about_one_request(make_hub: MakeHub, agent: str) -> None:
    """C6: each gets its own answer, and both are recorded."""
    team = Team(make_hub(guards=[asks("Pay?"), asks("Really?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        first = await answer(hub, by="ann")
        second = await answer(hub, by="ben")
        reply = await asking
        recorded = await approvals(hub, reply.run)
    assert reply.ok
    assert first.id != second.id
    assert [(each.question, each.agreed, each.by) for each in recorded] == [
        ("Pay?", None, ""),
        ("Pay?", True, "ann"),
        ("Really?", None, ""),
        ("Really?", True, "ben"),
    ]


async def test_the_first_of_two_guards_agreed_to_does_not_outweigh_the_second_declined(
    make_hub: MakeHub, agent: str
) -> None:
    team = Team(make_hub(guards=[asks("Pay?"), asks("Really?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        await answer(hub)
        await answer(hub, agreed=False)
        assert code_of(await asking) is Code.APPROVAL_DECLINED
    assert team.given == []


async def test_a_guard_that_refuses_meanwhile_is_heard_after_the_yes(make_hub: MakeHub, agent: str) -> None:
    """Decision 4: after an answer all guards are asked again, with fresh facts."""
    closed = False

    def shop(request: Request, facts: Facts) -> Verdict:
        return Refuse(fault(Code.PERMISSION_DENIED, "the shop has closed")) if closed else ALLOW

    team = Team(make_hub(guards=[shop, asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        (question,) = await questions(hub)
        closed = True
        await hub.decide(question.id, agreed=True, by="ann")
        assert code_of(await asking) is Code.PERMISSION_DENIED
    assert team.given == []


async def test_one_question_at_two_places_of_a_run_is_two_questions(make_hub: MakeHub) -> None:
    """The same words about the same work: what is agreed to at one place says nothing of the other."""
    hub = make_hub(guards=[asks("Pay?")], approver="inbox")
    team = Team(hub)

    @hub.agent("twice", may_call=["b"])
    async def twice(brief: Brief) -> list[str]:
        replies = [await brief.delegate("b", objective="pay bob") for _ in range(2)]
        return [each.status for each in replies]

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("twice"))
        first = await answer(hub, agreed=False)
        second = await answer(hub)
        assert (await asking).result == ["refused", "success"]
    assert first.id != second.id


async def test_a_request_that_names_itself_after_a_question_does_not_answer_it(make_hub: MakeHub) -> None:
    """Decision 9: ids that a sender chose are not places in a run."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        first = group.create_task(team.ask("b"))
        (victim,) = await questions(hub)
        forged = group.create_task(team.ask("b", "steal", request_id=victim.id))
        pending = await questions(hub, 2)
        assert len({each.id for each in pending}) == 2
        await hub.decide(victim.id, agreed=True, by="ann")
        assert (await first).ok
        (left,) = await questions(hub)
        await hub.decide(left.id, agreed=False, by="ann")
        assert code_of(await forged) is Code.APPROVAL_DECLINED
    assert team.given == [("pay bob", None)]


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

BOTH = frozenset({"objective", "input"})


async def test_what_a_person_changed_is_what_is_done_and_recorded(make_hub: MakeHub, agent: str) -> None:
    """C6: the record names the fields that were changed."""
    team = Team(make_hub(guards=[asks("Pay?", editable=BOTH)], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent, input={"amount": 100}))
        await answer(hub, edits={"objective": "pay eve", "input": {"amount": 5}})
        reply = await asking
        recorded = await approvals(hub, reply.run)
        (summary,) = [each for each in await hub.delegations(reply.run) if each.target == "b"]
    assert (reply.result, team.given) == ("did pay eve", [("pay eve", {"amount": 5})])
    assert [each.edited for each in recorded] == [(), ("input", "objective")]
    assert (summary.objective, summary.status) == ("pay eve", Status.SUCCESS)


async def test_a_request_that_a_person_changed_is_known_by_what_its_sender_said(make_hub: MakeHub) -> None:
    """Decision 6: the sender repeats its own words, not the person's."""
    team = Team(make_hub(guards=[asks("Pay?", editable=BOTH)], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b", request_id="1"))
        await answer(hub, edits={"objective": "pay eve"})
        first = await asking
        assert await team.ask("b", request_id="1") == first
        assert code_of(await team.ask("b", "pay eve", request_id="1")) is Code.DUPLICATE_REQUEST
    assert team.given == [("pay eve", None)]


@pytest.mark.parametrize(
    "edits",
    [{"objective": "x"}, {"target": "c"}, {"remit": {}}, {"input": float("nan")}],
    ids=["not allowed", "route", "remit", "unsayable"],
)
async def test_an_edit_that_is_not_allowed_is_refused_and_the_question_still_pends(
    make_hub: MakeHub, edits: dict[str, object]
) -> None:
    team = Team(make_hub(guards=[asks("Pay?", editable=frozenset({"input"}))], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b"))
        (question,) = await questions(hub)
        with pytest.raises(RemitError):
            await hub.decide(question.id, agreed=True, by="ann", edits=edits)
        await hub.decide(question.id, agreed=True, by="ann", edits={"input": 1})
        assert (await asking).ok
    assert team.given == [("pay bob", 1)]


@pytest.mark.parametrize(
    "edits",
    [{"target": "c"}, {"objective": 5}, {"objective": "x" * 100_001}, {"input": object()}, {"objective": "\ud800"}],
    ids=["route", "type", "length", "object", "half a character"],
)
async def test_an_approver_whose_edit_could_not_be_carried_has_declined(
    make_hub: MakeHub, agent: str, edits: dict[str, object]
) -> None:
    """C6: someone else's code fails closed."""
    team = Team(
        make_hub(guards=[asks("Pay?", editable=BOTH)], approver=always(Decision(agreed=True, by="script", edits=edits)))
    )
    async with team.hub as hub:
        reply = await team.reply(agent)
        recorded = await approvals(hub, reply.run)
    assert (code_of(reply), team.given) == (Code.APPROVAL_DECLINED, [])
    assert [(each.agreed, each.by) for each in recorded] == [(None, ""), (False, "script")]


async def test_an_edit_is_judged_like_what_it_replaces(make_hub: MakeHub, agent: str) -> None:
    """Decision 4: a person cannot put in what another guard refuses."""

    def no_eve(request: Request, facts: Facts) -> Verdict:
        return Refuse(fault(Code.PERMISSION_DENIED, "not eve")) if "eve" in request.objective else ALLOW

    team = Team(make_hub(guards=[no_eve, asks("Pay?", editable=BOTH)], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        await answer(hub, edits={"objective": "pay eve"})
        assert code_of(await asking) is Code.PERMISSION_DENIED
    assert team.given == []


async def test_an_edited_input_is_held_to_the_capabilitys_schema(make_hub: MakeHub) -> None:
    hub = make_hub(guards=[asks("Pay?", of="pay", editable=BOTH)], approver="inbox")
    schema = {"properties": {"amount": {"type": "integer"}}}
    ran: list[object] = []

    @hub.agent("pay", capabilities=[Capability(code="PAY", input_schema=schema)])
    async def pay(brief: Brief) -> str:
        ran.append(brief.input)
        return "paid"

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("pay", capability="PAY", input={"amount": 1}, user="u-1"))
        await answer(hub, edits={"input": {"amount": "much"}})
        assert code_of(await asking) is Code.INPUT_VALIDATION_FAILED
    assert ran == []


async def test_an_edit_that_gives_a_guard_a_new_question_is_asked_about(make_hub: MakeHub, agent: str) -> None:
    """Decision 4."""

    def about(request: Request, facts: Facts) -> Verdict:
        return Ask(f"{request.objective}?", BOTH) if request.target == "b" else ALLOW

    team = Team(make_hub(guards=[about], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        await answer(hub, edits={"objective": "pay eve"})
        second = await answer(hub)
        assert (await asking).result == "did pay eve"
    assert (second.text, second.request.objective) == ("pay eve?", "pay eve")


async def test_a_yes_to_one_content_is_no_yes_to_what_another_person_made_of_it(make_hub: MakeHub, agent: str) -> None:
    """Decision 4: who agreed to a hundred is asked again when the next one in line makes it a million."""
    guards = [asks("Accounting: pay?"), asks("Manager: pay?", editable=BOTH)]
    team = Team(make_hub(guards=guards, approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent, input=100))
        await answer(hub, by="accounting")
        await answer(hub, by="manager", edits={"input": 1_000_000})
        (again,) = await questions(hub) if not asking.done() else [None]
        if again is not None:
            assert (again.text, again.request.input) == ("Accounting: pay?", 1_000_000)
            await hub.decide(again.id, agreed=False, by="accounting")
        assert code_of(await asking) is Code.APPROVAL_DECLINED
    assert team.given == []


@pytest.mark.parametrize("editable", [frozenset({"target", "remit", "input"}), ["input"], {"input"}, ("input",)])
async def test_a_guard_can_let_nothing_be_changed_but_what_is_said(
    make_hub: MakeHub, agent: str, editable: Any
) -> None:
    """C6: not the route, not the remit, whatever the guard's author wrote."""
    team = Team(make_hub(guards=[asks("Pay?", editable=editable)], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        (question,) = await questions(hub)
        assert question.editable == {"input"}
        with pytest.raises(RemitError):
            await hub.decide(question.id, agreed=True, by="mallory", edits={"target": "a"})
        await hub.decide(question.id, agreed=True, by="ann", edits={"input": 2})
        assert (await asking).ok
    assert team.given == [("pay bob", 2)]


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw_in(value: object) -> bool:
    # Four digits may stand in any id.
    return "4111 1111" in repr(value) or "41111111" in repr(value)


async def test_a_person_sees_tokens_and_may_use_them(make_hub: MakeHub, agent: str) -> None:
    """Decision 13: the raw value is nowhere but with whoever sent it; the edit keeps its token."""

    def guard(request: Request, facts: Facts) -> Verdict:
        return Ask(f"Charge {request.input}?", BOTH) if request.target == "b" and not facts.approved else ALLOW

    team = Team(make_hub(guards=[guard], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask(agent, input={"card": CARD}))
        (question,) = await questions(hub)
        token = question.request.input["card"]
        await hub.decide(question.id, agreed=True, by="ann", edits={"objective": f"charge {token}", "input": token})
        response = await asking
        records = await hub.store.records(run=response.run)
    assert response.ok, response.fault
    assert token.startswith("[")
    assert not raw_in(question)
    assert not raw_in(records)
    assert team.given == [(f"charge {token}", token)]
    # `a` was given a token, so only the user themselves get the number back.
    assert response.result == (f"did charge {CARD}")


async def test_a_token_in_an_edit_is_raw_for_a_callee_that_may_see_it(make_hub: MakeHub) -> None:
    """Decision 13: restored, judged and redacted anew, so the callee's own right to see decides."""
    hub = make_hub(guards=[asks("Pay?", editable=BOTH)], approver="inbox")
    given: list[object] = []

    @hub.agent("b", sees=["CREDIT_CARD"])
    async def b(brief: Brief) -> str:
        given.append(brief.input)
        return "x"

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("b", "pay", input={"card": CARD, "amount": 100}, user="u-1"))
        (question,) = await questions(hub)
        token = question.request.input["card"]
        await hub.decide(question.id, agreed=True, by="ann", edits={"input": {"card": token, "amount": 5}})
        assert (await asking).ok
        assert not raw_in(await hub.store.records())
    assert given == [{"card": CARD, "amount": 5}]


async def test_a_token_that_was_made_up_stands_for_nothing(make_hub: MakeHub) -> None:
    team = Team(make_hub(guards=[asks("Pay?", editable=BOTH)], approver="inbox"))
    forged = "[CREDIT_CARD:bcdfghjklmnp]"
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b", input={"card": CARD}))
        await answer(hub, edits={"input": forged})
        assert (await asking).ok
    assert team.given == [("pay bob", forged)]


async def test_a_token_that_stands_for_a_number_can_be_put_into_the_objective(make_hub: MakeHub) -> None:
    """An objective is a text, also for a callee that may see what the token stands for."""
    hub = make_hub(guards=[asks("Pay?", editable=BOTH)], approver="inbox")
    given: list[object] = []

    @hub.agent("b", sees=["CREDIT_CARD"])
    async def b(brief: Brief) -> str:
        given.append(brief.request.objective)
        return "x"

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("b", "pay", input={"card": 4111111111111111}, user="u-1"))
        (question,) = await questions(hub)
        await hub.decide(question.id, agreed=True, by="ann", edits={"objective": question.request.input["card"]})
        assert (await asking).ok
        assert not raw_in(await hub.store.records())
    assert given == ["4111111111111111"]


async def test_a_detector_that_fails_lets_nobody_be_asked(make_hub: MakeHub, agent: str) -> None:
    """C6, decision 13: closed, with a value and not with the detector's exception."""

    def detector(text: str) -> list[Finding]:
        if "bob" in text:
            raise ValueError(f"cannot read {text}")
        return []

    questions_asked: list[Question] = []
    hub = make_hub(guards=[asks("Pay?")], approver=always(True, questions_asked), redaction=detector)
    replies: list[Response] = []
    ran: list[str] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        ran.append("b")
        return "x"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        replies.append(await brief.delegate("b", objective="pay bob"))
        return "went on"

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask(agent, "pay bob" if agent == "b" else "pay", user="u-1")
        shown = response if agent == "b" else replies[-1]
        assert shown.fault is not None
        assert shown.status is Status.REFUSED
        assert "bob" not in shown.fault.message
        assert "bob" not in repr(await hub.store.records(run=response.run))
    assert (questions_asked, ran) == ([], [])


# ── approvers that are someone else's code ────────────────────────────────────────────────────────────────────────────


async def test_what_an_approvers_exception_says_is_told_to_nobody(make_hub: MakeHub, agent: str) -> None:
    """C6: only its type; the text may hold a key, an address, a person's words."""

    async def broken(question: Question) -> bool:
        raise ConnectionError("https://token:s3cret@approvals.example")

    team = Team(make_hub(guards=[asks("Pay?")], approver=broken))
    async with team.hub as hub:
        reply = await team.reply(agent)
        records = await hub.store.records(run=reply.run)
    assert reply.fault is not None
    assert (code_of(reply), team.given) == (Code.APPROVAL_DECLINED, [])
    assert "ConnectionError" in reply.fault.message
    assert "s3cret" not in repr((reply, records))


async def test_a_question_whose_approver_failed_does_not_stay_in_the_inbox(make_hub: MakeHub, agent: str) -> None:
    """Nobody is asked for an answer that nobody waits for."""

    async def flaky(question: Question) -> bool:
        await team.hub.store.put(question)
        raise OSError("the screen went dark")

    team = Team(make_hub(guards=[asks("Pay?")], approver=flaky))
    async with team.hub as hub:
        assert code_of(await team.reply(agent)) is Code.APPROVAL_DECLINED
        assert await hub.pending() == []


@pytest.mark.parametrize(
    "given",
    [
        Decision(agreed="no", by="script"),  # pyright: ignore[reportArgumentType]
        Decision(agreed=1, by="script"),  # pyright: ignore[reportArgumentType]
        Decision(agreed=True, by=None),  # pyright: ignore[reportArgumentType]
        Decision(agreed=True, by="\ud800"),
        Decision(agreed=True, by="script", reason="\ud800"),
        Decision(agreed=True, by="script", edits=None),  # pyright: ignore[reportArgumentType]
        "yes",
        1,
        [True],
    ],
    ids=repr,
)
async def test_what_is_not_plainly_a_yes_is_none(make_hub: MakeHub, agent: str, given: Any) -> None:
    """C6: fails closed, and leaves records that can be read."""
    team = Team(make_hub(guards=[asks("Pay?", editable=BOTH)], approver=always(given)))
    async with team.hub as hub:
        reply = await team.reply(agent)
        recorded = await approvals(hub, reply.run)
    assert (code_of(reply), team.given) == (Code.APPROVAL_DECLINED, [])
    assert [each.agreed for each in recorded] == [None, False]


async def test_nobody_is_asked_in_a_hub_without_an_approver(make_hub: MakeHub, agent: str) -> None:
    """C6: declined at once, and nothing is left waiting."""
    team = Team(make_hub(guards=[asks("Pay?")]))
    async with team.hub as hub:
        reply = await team.reply(agent, request_id="1")
        assert (await approvals(hub, reply.run), await hub.pending()) == ([], [])
        assert [run.state for run in await hub.store.runs()] == (["finished"] if agent == "a" else [])
    assert reply.fault is not None
    assert (code_of(reply), "no person is available" in reply.fault.message) == (Code.APPROVAL_DECLINED, True)


async def test_a_list_answers_first_and_a_person_what_is_not_on_it(make_hub: MakeHub, tmp_path: Path) -> None:
    """C6: `first_of`, with who it was in the record."""
    hub = make_hub(guards=[asks("Pay?")])
    approver = first_of([AllowList(["a -> b"]), InboxApprover(hub.store)])
    team = Team(make_hub(guards=[asks("Pay?")], approver=approver, store=hub.store))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        by_list = await team.reply("a")
        asking = group.create_task(team.ask("b"))
        await answer(hub, by="ann")
        by_person = await asking
        who = [(await approvals(hub, each.run))[-1].by for each in (by_list, by_person)]
    assert (by_list.ok, by_person.ok, who) == (True, True, ["the allow-list", "ann"])


async def test_after_the_last_approver_that_has_nothing_to_say_nothing_is_done(make_hub: MakeHub, agent: str) -> None:
    for approver in (first_of([AllowList(["c"])]), first_of([]), deny, first_of([deny, always(True)])):
        team = Team(make_hub(guards=[asks("Pay?")], approver=approver))
        async with team.hub:
            assert code_of(await team.reply(agent)) is Code.APPROVAL_DECLINED
        assert team.given == []


# ── questions that are odd ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "x" * 1_000_000,
        "a\0b",
        "\x1b[2J\x1b[31mAPPROVED",
        "\u202eyap",
        "line\nline\r",
        "'; DROP TABLE q",
        "€" * 9,
    ],
    ids=["empty", "blank", "huge", "nul", "terminal", "right to left", "lines", "sql", "euro"],
)
async def test_a_question_is_kept_and_answered_whatever_its_words_are(make_hub: MakeHub, agent: str, text: str) -> None:
    team = Team(make_hub(guards=[asks(text)], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.reply(agent))
        question = await answer(hub)
        reply = await asking
        recorded = await approvals(hub, reply.run)
    assert reply.ok, reply.fault
    shown = marked(text)  # what a person sees is what is kept
    assert (question.text, [each.question for each in recorded]) == (shown, [shown, shown])


async def test_a_refusal_does_not_repeat_a_question_without_end(make_hub: MakeHub, agent: str) -> None:
    """What an agent reads of a refusal costs tokens."""
    team = Team(make_hub(guards=[asks("x" * 100_000)], approver=always(False)))
    async with team.hub:
        reply = await team.reply(agent)
    assert reply.fault is not None
    assert len(reply.fault.message) < 1_000


@pytest.mark.parametrize("text", [None, 5, b"Pay?", ["Pay?"], "half \ud800 a character"], ids=repr)
async def test_a_guard_whose_question_is_none_lets_nothing_pass_without_a_yes(
    make_hub: MakeHub, agent: str, text: Any
) -> None:
    """Decision 1: whoever asked gets a response, and no surprise."""
    questions_asked: list[Question] = []
    team = Team(make_hub(guards=[asks(text)], approver=always(False, questions_asked)))
    async with team.hub as hub:
        reply = await team.reply(agent)
        await hub.store.records(run=reply.run)
        assert [run.state for run in await hub.store.runs() if run.state != "finished"] == []
    assert (reply.status, team.given) == (Status.REFUSED, [])
    assert [type(each.text) for each in questions_asked] in ([], [str])


# ── slots and clocks ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("agreed", [True, False], ids=["yes", "no"])
async def test_who_has_waited_for_a_person_works_on_in_a_slot(make_hub: MakeHub, agreed: bool) -> None:
    """Decision 10: slots count running, also after a no."""
    hub = make_hub(guards=[asks("Pay?")], approver="inbox")
    team = Team(hub)
    at_work: set[str] = set()
    crowds: list[int] = []
    second_at_work, may_end = asyncio.Event(), asyncio.Event()

    @hub.agent("one", may_call=["b"], concurrency=1)
    async def one(brief: Brief) -> str:
        if brief.text == "second":
            at_work.add("second")
            second_at_work.set()
            await may_end.wait()
            at_work.discard("second")
            return "x"
        status = (await brief.delegate("b", objective="pay bob")).status
        crowds.append(len(at_work))
        return status

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        first = group.create_task(team.ask("one", "first"))
        (question,) = await questions(hub)
        second = group.create_task(team.ask("one", "second"))
        await second_at_work.wait()
        await hub.decide(question.id, agreed=agreed, by="ann")
        # The answer is known to the hub once it is recorded; then the first would go on if it needed no slot.
        while not [each for each in await approvals(hub, question.request.run) if each.agreed is agreed]:
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        may_end.set()
        await second
        await first
    assert crowds == [0], "it worked on while another was in the only slot"


async def test_the_time_that_a_person_takes_counts_for_nobody_above(make_hub: MakeHub) -> None:
    """Decision 4: an hour passes, and neither caller nor root is late."""
    clock = ManualClock()
    hub = make_hub(guards=[asks("Pay?")], approver="inbox", clock=clock, limits=Limits(approval_timeout_ms=10**9))
    team = Team(hub)
    left: list[int] = []

    @hub.agent("top", may_call=["middle"])
    async def top(brief: Brief) -> str:
        status = (await brief.delegate("middle", objective="x", deadline_ms=2_000)).status
        left.append(brief.time_left_ms())
        return status

    @hub.agent("middle", may_call=["b"])
    async def middle(brief: Brief) -> str:
        clock.advance(0.5)
        status = (await brief.delegate("b", objective="pay bob", deadline_ms=60_000)).status
        left.append(brief.time_left_ms())
        return status

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("top", deadline_ms=5_000))
        (question,) = await questions(hub)
        clock.advance(3_600)
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).result == "success"
    assert left == [1_500, 4_500]


async def test_a_delegation_gets_what_was_left_before_the_wait_and_no_more(make_hub: MakeHub) -> None:
    """Decision 4, time: never more than what is left."""
    clock = ManualClock()
    hub = make_hub(guards=[asks("Pay?", of="c")], approver="inbox", clock=clock)
    team = Team(hub)
    got: list[tuple[int, int]] = []

    @hub.agent("c")
    async def c(brief: Brief) -> str:
        got.append((brief.remit.time_ms, brief.remit.tokens))
        return "x"

    @hub.agent("top", may_call=["c"])
    async def top(brief: Brief) -> str:
        clock.advance(1)
        brief.spend(prompt=900)
        return (await brief.delegate("c", objective="x", deadline_ms=60_000, max_tokens=5_000)).status

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("top", deadline_ms=5_000, max_tokens=1_000))
        (question,) = await questions(hub)
        clock.advance(600)
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).result == "success"
    assert got == [(3_600, 100)], "four seconds less a tenth for the answer, and a hundred tokens"


async def test_a_root_has_all_of_its_time_after_a_person_has_thought(make_hub: MakeHub) -> None:
    """Decision 4: its clock begins when it does."""
    clock = ManualClock()
    hub = make_hub(guards=[asks("Pay?")], approver="inbox", clock=clock)
    left: list[int] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        left.append(brief.time_left_ms())
        return "x"

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("b", user="u-1", deadline_ms=5_000))
        (question,) = await questions(hub)
        clock.advance(60)
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).ok
    assert left == [5_000]


async def test_a_caller_that_waits_for_a_person_in_one_task_can_delegate_in_another(make_hub: MakeHub) -> None:
    """Decision 4: its clock stands while it waits, for whatever it does besides."""
    clock = ManualClock()
    hub = make_hub(guards=[asks("Pay?")], approver="inbox", clock=clock)
    team = Team(hub)
    waiting, turned = asyncio.Event(), asyncio.Event()
    left: list[int] = []

    @hub.agent("c")
    async def c(brief: Brief) -> str:
        return "free"

    @hub.agent("top", may_call=["b", "c"])
    async def top(brief: Brief) -> list[str]:
        async with asyncio.TaskGroup() as group:
            delegation = group.create_task(brief.delegate("b", objective="pay bob"))
            waiting.set()
            await turned.wait()
            left.append(brief.time_left_ms())
            free = await brief.delegate("c", objective="x")
        return [delegation.result().status, free.status]

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("top", deadline_ms=5_000))
        await waiting.wait()
        (question,) = await questions(hub)
        clock.advance(60)
        turned.set()
        while "c" not in {each.target for each in await hub.delegations(question.request.run)}:
            await asyncio.sleep(0)
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).result == ["success", "success"]
    assert left == [5_000]


async def test_of_three_at_once_two_need_a_yes_and_one_is_declined(make_hub: MakeHub) -> None:
    """C11, decision 4: all are asked about at once; whoever needs no yes is at work meanwhile, and not declined."""
    hub = make_hub(guards=[asks("Pay?", of="b"), asks("Sign?", of="d")], approver="inbox")
    team = Team(hub)
    for name in ("c", "d"):
        hub.agent(name)(team.do)

    @hub.agent("top", may_call=["*"])
    async def top(brief: Brief) -> list[object]:
        replies = await brief.fan_out([Call(target=name, objective=name) for name in ("b", "c", "d")])
        return [code_of(each) or each.result for each in replies]

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("top"))
        both = await questions(hub, 2)
        while ("c", None) not in team.given:
            await asyncio.sleep(0)
        for question in both:
            await hub.decide(question.id, agreed=question.text == "Pay?", by="ann")
        assert (await asking).result == ["did b", "did c", Code.APPROVAL_DECLINED]


# ── the same request again ────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_request_attaches_to_the_one_that_waits(make_hub: MakeHub) -> None:
    """Decision 6: one question, one execution, one outcome for all."""
    team = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = [group.create_task(team.ask("b", request_id="1"))]
        (question,) = await questions(hub)
        asking += [group.create_task(team.ask("b", request_id="1")) for _ in range(3)]
        assert code_of(await team.ask("b", "pay eve", request_id="1")) is Code.DUPLICATE_REQUEST
        assert len(await hub.pending()) == 1
        await hub.decide(question.id, agreed=True, by="ann")
        outcomes = [await each for each in asking]
    assert outcomes == [outcomes[0]] * 4
    assert team.given == [("pay bob", None)]


@pytest.mark.parametrize("agreed", [True, False], ids=["yes", "no"])
async def test_the_same_request_at_another_hub_attaches_to_the_one_that_waits(make_hub: MakeHub, agreed: bool) -> None:
    """Decision 6: also when it is declined, which is not kept."""
    first = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    second = Team(make_hub(guards=[asks("Pay?")], approver="inbox"))
    async with first.hub as hub, second.hub, asyncio.TaskGroup() as group:
        asking = group.create_task(first.ask("b", request_id="1"))
        (question,) = await questions(hub)
        assert code_of(await second.ask("b", "pay eve", request_id="1")) is Code.DUPLICATE_REQUEST
        attached = group.create_task(second.ask("b", request_id="1"))
        while "waiting" not in {run.state for run in await second.hub.store.runs()}:
            await asyncio.sleep(0)
        await hub.decide(question.id, agreed=agreed, by="ann")
        outcomes = [await asking, await attached]
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0].ok, len(first.given), second.given) == (agreed, int(agreed), [])
