"""The conformance suite for transports: what holds between a caller and its callee wherever the callee runs.

    class TestMyTransport(TransportConformance):
        def hubs(self, **options: Any) -> tuple[Hub, Hub]:
            return Hub(name="near", **options), Hub(name="far", **options)

        @asynccontextmanager
        async def joined(self, near: Hub, far: Hub) -> AsyncGenerator[None]:
            async with far, my_server(far) as address:
                for name in far.cards:
                    near.register(AgentCard(name=name), MyRemote(address, name))
                async with near:
                    yield

Run it with pytest and pytest-asyncio (`asyncio_mode = "auto"`). The caller `boss` is always near; its callees are far.
If a transport cannot do something, set the attribute for it to the reason; its tests are then skipped.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import SkipTest

# The public `Hub`: these tests must not depend on its internals.
import remit
from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Ask, Facts, Verdict
from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.envelope import Answer, Artifact, ContextFilter, Handoff, Request, Response, Source, Usage
from remit.protocol.errors import Code
from remit.protocol.files import File
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Delta, Kind, Progress, Record
from remit_testing.memory import MemoryStore

# Only a call that hangs takes this long.
PATIENCE = 20.0
USER = "anna"

Act = Callable[[Brief], Awaitable[Any]]


class TransportCase:
    """How a suite gets the two hubs that it tests, and what a transport cannot do."""

    no_streaming = ""
    """Why answers are not streamed."""
    no_progress = ""
    """Why progress is not reported."""
    no_way_back = ""
    """Why a callee cannot call an agent of its caller's hub."""
    no_persons = ""
    """Why the clock does not stop while the callee's hub asks a person."""
    no_envelope = ""
    """Why less than the whole envelope is sent: hints, artifacts, confidence and the like."""
    no_nesting = ""
    """Why the remit is not sent to the callee, but only enforced by the caller's hub."""

    def hubs(self, **options: Any) -> "tuple[remit.Hub, remit.Hub]":
        """Return the caller's hub and the callee's, not open yet; they may be the same."""
        return remit.Hub(name="near", store=MemoryStore(), **options), remit.Hub(
            name="far", store=MemoryStore(), **options
        )

    @asynccontextmanager
    async def joined(self, near: "remit.Hub", far: "remit.Hub") -> AsyncGenerator[None]:  # noqa: ARG002 - for others
        """Open both hubs; *near* has every agent of *far* under its name, and *far* has `boss` of *near*."""
        raise NotImplementedError
        yield

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run_boss(self, callee: Act, call: Act, **options: Any) -> Response:
        """Run `boss` with *call*, which may ask `helper`, which runs *callee*; return the response of the run."""
        near, far = self.hubs(**options)
        far.add("helper", callee)
        near.add("boss", call, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            return await near.ask("boss", "Go", user=USER)

    async def answered(self, callee: Act, **options: Any) -> Response:
        """Return the response that `boss` gets from `helper`."""
        got: list[Response] = []

        async def boss(brief: Brief) -> str:
            given: Any = {"objective": "Help"} | options
            got.append(await brief.delegate("helper", **given))
            return "done"

        response = await self.run_boss(callee, boss)
        assert response.ok, response
        return got[0]


class LimitConformance(TransportCase):
    """The limits that a caller sets hold for its callee, wherever it runs."""

    async def test_a_callee_that_takes_too_long_is_really_cancelled_and_its_part_kept(self) -> None:
        """X6: the delegate is really cancelled, not abandoned; K10: with what was finished."""
        cancelled = asyncio.Event()

        async def helper(brief: Brief) -> str:
            brief.progress("half", partial=Answer("half of it", finished=("one",), unfinished=("two",)))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        response = await self.answered(helper, deadline_ms=400)
        assert response.fault is not None
        assert (response.status, response.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        if not self.no_envelope:
            assert (response.result, response.finished, response.unfinished) == ("half of it", ("one",), ("two",))

    async def test_a_cancel_reaches_the_callee(self) -> None:
        """X15: cancellation."""
        near, far = self.hubs()
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def helper(_: Brief) -> str:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            asking = asyncio.create_task(near.ask("boss", "Go", user=USER, request_id="mine"))
            await began.wait()
            assert near.cancel("mine")
            response = await asking
            await cancelled.wait()
        assert response.status is Status.CANCELLED

    async def test_what_the_callee_spends_counts_for_its_caller(self) -> None:
        """X7: real use is metered."""
        if self.no_envelope:
            raise SkipTest(self.no_envelope)

        async def helper(brief: Brief) -> str:
            brief.spend(prompt=70, completion=30)
            return "ok"

        async def boss(brief: Brief) -> list[int]:
            response = await brief.delegate("helper", objective="Help", max_tokens=500)
            return [response.usage.total, brief.remit.tokens - brief.tokens_left()]

        response = await self.run_boss(helper, boss)
        assert (response.unwrap(), response.usage.total) == ([100, 100], 100)

    async def test_a_callee_that_spends_more_than_it_was_granted_fails(self) -> None:
        if self.no_envelope:
            raise SkipTest(self.no_envelope)

        async def helper(_: Brief) -> Answer:
            return Answer("dear", usage=Usage(prompt=900))

        response = await self.answered(helper, max_tokens=500)
        assert response.fault is not None
        assert (response.status, response.fault.code) == (Status.FAILED, Code.TOKEN_BUDGET_EXCEEDED)

    async def test_money_goes_along_and_its_cost_comes_back(self) -> None:
        if self.no_envelope or self.no_nesting:
            raise SkipTest(self.no_envelope or self.no_nesting)
        seen: list[int | None] = []

        async def helper(brief: Brief) -> Answer:
            seen.append(brief.remit.cost)
            return Answer("dear", usage=Usage(prompt=10, cost=70_000, priced=0 if brief.remit.cost == 80_000 else 10))

        for granted, ok in ((100_000, True), (60_000, False), (80_000, False)):
            response = await self.answered(helper, max_cost=granted)
            code = response.fault and response.fault.code
            assert (code, response.usage.cost) == (None if ok else Code.TOKEN_BUDGET_EXCEEDED, 70_000)
        assert seen == [100_000, 60_000, 80_000]

    async def test_the_remit_only_narrows(self) -> None:
        """DESIGN: everything a hop may do travels with the hop."""
        if self.no_nesting:
            raise SkipTest(self.no_nesting)
        seen: list[Request] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief.request)
            return "ok"

        await self.answered(helper, max_tokens=300, deadline_ms=5_000, may_delegate=False, tools=[], targets=["x"])
        remit = seen[0].remit
        assert (remit.depth, remit.tokens, remit.may_delegate) == (1, 300, False)
        assert (remit.tools, remit.targets) == (frozenset(), frozenset({"x"}))
        assert remit.time_ms <= 5_000
        assert [address.partition("@")[0] for address in remit.chain] == ["boss"]

    async def test_limits_on_the_arguments_of_tools_hold_where_the_callee_runs_or_it_is_not_asked(self) -> None:
        near, far = self.hubs()
        paid: list[int] = []

        async def pay(amount: int, to: str = "") -> str:
            paid.append(amount)
            return f"paid {to}"

        for hub in {near, far}:  # a team's hubs share its file
            hub.tool("pay")(pay)

        async def helper(brief: Brief) -> list[str]:
            async def use(**given: Any) -> str:
                try:
                    return str(await brief.use("pay", **given))
                except remit.RemitError as error:
                    return error.fault.code

            return [await use(amount=amount, to="bob") for amount in (40, 80, 400)] + [await use(amount=4)]

        async def boss(brief: Brief) -> list[str]:
            limits = {"pay": {"amount": {"at_most": 50}, "to": ["bob", "ann"]}}
            by_name = await brief.delegate("helper", objective="Help", tools=limits)
            if by_name.fault is not None:
                return [by_name.fault.code]
            return by_name.unwrap() + (await brief.delegate(objective="More", capability="PAY", tools=limits)).unwrap()

        far.add("helper", helper, tools=["pay"], capabilities=["PAY"])
        near.add("boss", boss, may_call=["*"], tools=["pay"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            response = await near.ask("boss", "Go", user=USER, tools={"pay": {"amount": "<= 100"}})
        no = Code.TOOL_NOT_ALLOWED
        expected: tuple[list[str], list[int]] = (
            ([no], []) if self.no_nesting else (["paid bob", no, no, no] * 2, [40, 40])
        )
        assert (response.result, paid) == expected

    async def test_depth_counts_on_through_the_callee(self) -> None:
        """C6: depth."""
        if self.no_nesting:
            raise SkipTest(self.no_nesting)
        near, far = self.hubs(limits=Limits(max_depth=1))

        async def colleague(_: Brief) -> str:
            return "too deep"

        async def helper(brief: Brief) -> str:
            response = await brief.delegate("colleague", objective="Help")
            assert response.fault is not None
            return response.fault.code

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("colleague", colleague)
        far.add("helper", helper, may_call=["colleague"])
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            assert (await near.ask("boss", "Go", user=USER)).unwrap() == Code.MAX_DEPTH_EXCEEDED

    async def test_nobody_is_asked_who_is_in_the_chain_already(self) -> None:
        """C6: no agent twice in a chain."""
        if self.no_way_back:
            raise SkipTest(self.no_way_back)
        near, far = self.hubs()

        async def helper(brief: Brief) -> str:
            response = await brief.delegate("boss", objective="You do it")
            assert response.fault is not None, response
            return response.fault.code

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("helper", helper, may_call=["*"])
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            assert (await near.ask("boss", "Go", user=USER)).unwrap() == Code.LOOP_DETECTED


_FILES = (
    File(name="receipt.png", media_type="image/png", data=b"\x89PNG\r\n\x00\xff"),
    File(name="notes.md", media_type="text/markdown", data=b"# Notes"),
    File(name="scan.pdf", media_type="application/pdf", url="https://example.org/scan.pdf"),
)

__all__ = ["USER", "TransportConformance"]


class TransportConformance(LimitConformance):
    """What a caller may rely on over every transport, one test each."""

    # ── content ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_the_result_comes_back_as_it_was_given(self) -> None:
        results: tuple[Any, ...] = ("text", {"rows": [1, 2.5, None, True], "é": "ü"}, [], None, 7)
        for result in results:

            async def helper(_: Brief, result: Any = result) -> Answer:
                return Answer(result)

            response = await self.answered(helper)
            assert (response.status, response.result, response.target) == (Status.SUCCESS, result, "helper")

    async def test_the_hub_of_the_caller_judges_the_answer_and_holds_back_live_text(self) -> None:
        """An answer that a guard refuses reaches no part of its caller's hub but the guard."""
        near, far = self.hubs()
        answers: list[Response] = []

        @remit.on_answer
        def no_secrets(request: Request, facts: Facts) -> Verdict:
            hidden = request.origin == "helper" and "secret" in str(facts.answer)
            return remit.refuse(Code.PERMISSION_DENIED, "secrets stay there") if hidden else ALLOW

        async def helper(brief: Brief) -> str:
            brief.say(brief.text)
            return brief.text

        async def boss(brief: Brief) -> str:
            answers.extend([await brief.delegate("helper", objective=text) for text in ("a secret", "fine")])
            return "done"

        near.reconfigure(guards=[no_secrets])
        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        live = list[str]()
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            async for event in near.stream("boss", "Go", user=USER):
                live += [event.body.text] if isinstance(event.body, Delta) else []
        assert [(each.status, each.result) for each in answers] == [(Status.FAILED, None), (Status.SUCCESS, "fine")]
        assert answers[0].fault is not None
        assert answers[0].fault.message == "secrets stay there"
        assert live == []

    async def test_all_parts_of_an_answer_come_back(self) -> None:
        if self.no_envelope:
            raise SkipTest(self.no_envelope)
        answer = Answer(
            "done",
            summary="All of it.",
            confidence=0.75,
            artifacts=(Artifact(type="json", value={"a": 1}, label="figures"),),
            new_facts=("likes tea",),
            sources=(Source(owner_scope=USER, source_id="doc-1", relevance=0.5),),
            requires_followup=True,
            warnings=("two receipts are unreadable",),
            finished=("January",),
            unfinished=("February",),
            metadata={"k": ["v"]},
            files=_FILES,
        )

        async def helper(_: Brief) -> Answer:
            return answer

        response = await self.answered(helper)
        assert response.status is Status.PARTIAL
        for field in Answer.__struct_fields__:
            if field not in ("usage", "calls", "strategy", "handover"):
                assert getattr(response, field) == getattr(answer, field), field

    async def test_the_callee_is_told_all_that_its_caller_says(self) -> None:
        seen: list[Request] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief.request)
            return "ok"

        await self.answered(helper, objective="Sort", input={"n": [1, 2]})
        (request,) = seen
        assert (request.objective, request.input, request.remit.user) == ("Sort", {"n": [1, 2]}, USER)
        if not self.no_envelope:
            seen.clear()
            handoff = Handoff(original_request="Go", prior_outputs={"read": {"n": 3}}, decisions=("keep it short",))
            fields: dict[str, Any] = {"handoff": handoff, "hints": ("table",), "reason": "knows tax"}
            await self.answered(helper, **fields, correlation="c-1", files=_FILES)
            (request,) = seen
            assert request.files == _FILES
            assert (request.handoff, request.hints, request.reason) == (handoff, ("table",), "knows tax")
            assert request.correlation == "c-1"

    async def test_a_session_is_gone_on_with(self) -> None:
        """X16: the child's conversation is kept."""
        if self.no_envelope:
            raise SkipTest(self.no_envelope)
        texts: list[list[str]] = []

        async def helper(brief: Brief) -> str:
            texts.append([message.text for message in await brief.history()])
            return f"I heard {brief.objective}"

        async def boss(brief: Brief) -> str:
            for text in ("first", "second"):
                (await brief.delegate("helper", objective=text, session="talk")).unwrap()
            return "done"

        assert (await self.run_boss(helper, boss)).ok
        assert texts == [[], ["first", "I heard first"]]

    async def test_a_returned_session_is_the_one_to_send(self) -> None:
        """X16: an unnamed session is continued by its returned id, by an agent and by a user."""
        texts: list[list[str]] = []

        async def helper(brief: Brief) -> str:
            texts.append([message.text for message in await brief.history()])
            return f"I heard {brief.objective}"

        async def boss(brief: Brief) -> str:
            session = None
            for text in ("first", "second", "third"):
                reply = await brief.delegate("helper", objective=text, session=session)
                assert reply.ok, reply
                assert session in (None, reply.session), "it keeps its name"
                session = reply.session
            return "done"

        near, far = self.hubs()
        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            (await near.ask("boss", "Go", user=USER)).unwrap()
            session = None
            for objective in ("first", "second", "third"):
                reply = await near.ask("helper", objective, user=USER, session=session)
                assert reply.ok, reply
                assert session in (None, reply.session), "it keeps its name"
                session = reply.session
        turns = ["first", "I heard first", "second", "I heard second"]
        assert texts == 2 * [[], turns[:2], turns]

    async def test_what_the_caller_shows_of_its_conversation_reaches_the_callee_each_time(self) -> None:
        """O4: the newest messages pass."""
        if self.no_envelope:
            raise SkipTest(self.no_envelope)
        near, far = self.hubs()
        knew: list[set[str]] = []

        async def helper(brief: Brief) -> str:
            knew.append({message.text for message in (*await brief.history(), *brief.messages)})
            return "noted"

        async def boss(brief: Brief) -> str:
            for step in ("one", "two"):
                context = ContextFilter(last_messages=9, roles=frozenset({"user"}))
                (await brief.delegate("helper", objective=step, session="talk", context=context)).unwrap()
            return "done"

        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            for text in ("I like tea", "Go"):
                (await near.ask("boss", text, user=USER, session="chat")).unwrap()
        assert len(knew) == 4
        assert [{"I like tea", "Go"} <= each for each in knew] == [False, False, True, True], knew

    async def test_many_at_once_each_get_their_own(self) -> None:
        async def helper(brief: Brief) -> str:
            await asyncio.sleep(0)
            return f"{brief.objective}!"

        async def boss(brief: Brief) -> list[str]:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(brief.delegate("helper", objective=str(number), max_tokens=1_000))
                    for number in range(24)
                ]
            return [task.result().unwrap() for task in tasks]

        response = await self.run_boss(helper, boss, limits=Limits(max_fan_out=24))
        assert response.unwrap() == [f"{number}!" for number in range(24)]

    # ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_callee_that_fails_fails_alone_and_tells_no_secret(self) -> None:
        """K12: one agent crashing never takes the others down."""

        async def helper(_: Brief) -> str:
            raise RuntimeError("password=hunter2secret")

        response = await self.answered(helper)
        assert response.fault is not None
        assert (response.status, response.fault.code) == (Status.FAILED, Code.DELEGATION_FAILED)
        assert "hunter2secret" not in str(response)

    async def test_an_agent_that_is_not_there_is_not_found(self) -> None:
        async def helper(_: Brief) -> str:
            return "here"

        async def boss(brief: Brief) -> str:
            response = await brief.delegate("nobody", objective="Help")
            assert response.fault is not None
            return response.fault.code

        assert (await self.run_boss(helper, boss)).unwrap() == Code.AGENT_NOT_FOUND

    async def test_an_input_that_does_not_fit_names_the_field(self) -> None:
        """K1: inputs are validated against the capability's schema."""
        if self.no_envelope:
            raise SkipTest(self.no_envelope)
        near, far = self.hubs()
        schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}

        async def add(brief: Brief) -> int:
            return brief.input["n"] + 1

        far.add("helper", add, capabilities=[Capability(code="ADD", input_schema=schema)])

        async def boss(brief: Brief) -> list[Any]:
            good = await brief.delegate("helper", capability="ADD", input={"n": 1})
            bad = await brief.delegate("helper", capability="ADD", input={"n": "x"})
            assert bad.fault is not None
            return [good.result, bad.fault.code, [each.path for each in bad.fault.problems]]

        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            response = await near.ask("boss", "Go", user=USER)
        assert response.unwrap() == [2, Code.INPUT_VALIDATION_FAILED, ["$.n"]]

    async def test_an_answer_beyond_all_bounds_is_refused_and_harms_nobody(self) -> None:
        async def helper(_: Brief) -> str:
            return "x" * 200_000

        async def boss(brief: Brief) -> list[Any]:
            response = await brief.delegate("helper", objective="Help")
            return [response.status, response.result]

        response = await self.run_boss(helper, boss, limits=Limits(max_result_bytes=100_000))
        assert response.unwrap() == [Status.FAILED, None]

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_personal_data_does_not_reach_the_callee_and_comes_back_to_the_user(self) -> None:
        """X12: redacted before the delegate sees it, and restored for the caller."""
        seen: list[str] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief.text)
            return f"wrote to {brief.text}"

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Write", input="joe@example.com")).unwrap()

        response = await self.run_boss(helper, boss)
        assert response.unwrap() == "wrote to joe@example.com"
        assert "joe" not in seen[0]

    async def test_no_time_passes_while_a_person_is_asked_at_the_callees(self) -> None:
        """Decision 4: waiting for a person stops the clocks of all callers that wait."""
        if self.no_persons:
            raise SkipTest(self.no_persons)

        def ask_first(request: Request, _: Facts) -> Verdict:
            return Ask("May it?") if request.target == "helper" else ALLOW

        near, far = self.hubs(guards=[ask_first], approver="inbox")
        if near is not far:  # a rule of the callee's hub does not apply to the caller's hub
            near, _ = self.hubs()

        async def helper(_: Brief) -> str:
            return "allowed"

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Pay", deadline_ms=600)).unwrap()

        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            for read_along in (False, True):
                events = far.events()
                asking = asyncio.create_task(_ask_boss(near, read_along))
                async for record in events:
                    if isinstance(record.body, Approval):
                        break
                await asyncio.sleep(0.8)  # longer than the callee may take
                (question,) = await far.pending()
                await far.decide(question.id, agreed=True, by=USER)
                assert (await asking).unwrap() == "allowed"

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_whoever_watches_hears_how_far_it_is_and_what_is_said(self) -> None:
        """X15: streamed responses."""
        near, far = self.hubs()

        async def helper(brief: Brief) -> str:
            brief.progress("half way")
            brief.say("The answer is on its way, as you can read.\n")
            return "ok"

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            records = [record async for record in near.stream("boss", "Go", user=USER)]
        answers, reports = _spoken_texts(records)
        if not self.no_streaming:
            assert answers == ["The answer is on its way, as you can read.\n"]
        if not self.no_progress:
            assert reports == ["half way"]
        assert records[-1].kind is Kind.RESULT


async def _ask_boss(hub: "remit.Hub", read_along: bool) -> Response:
    if not read_along:
        return await hub.ask("boss", "Go", user=USER)
    *_, last = [record async for record in hub.stream("boss", "Go", user=USER)]
    assert isinstance(last.body, Response)
    return last.body


def _spoken_texts(records: list[Record]) -> tuple[list[str], list[str]]:
    """Return the text that the helper streamed, and its progress reports."""
    deltas = [record.body for record in records if isinstance(record.body, Delta)]
    steps = [record.body for record in records if isinstance(record.body, Progress)]
    return ["".join(each.text for each in deltas if each.agent == "helper")], [each.text for each in steps]
