"""Two devices, a gateway between them: one person's agent works with the one that another shares."""

import asyncio
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pairs import Local, together
from remit import Brief
from remit_relay.bridge.ports import AskUser, Choice, Draft, PermissionRequest, PromptRequest, deny
from remit_relay.messages import types
from remit_relay.messages.types import AnswerMessage, DeclineMessage
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Person
from two_sides import two_sides
from waiting import PATIENCE_S, eventually, no_longer

LEAVE = PermissionRequest(
    session_id="",
    title="rm -rf",
    kind="delete",
    details="",
    choices=(Choice(id="yes", name="Allow", kind="allow_once"), Choice(id="no", name="Reject", kind="reject_once")),
)


async def test_what_the_agent_asks_its_user_is_part_of_the_run_and_answered_there(tmp_path: Path) -> None:
    async with together(tmp_path, mode="full_auto") as pair:
        pair.local.wants = LEAVE
        run = await pair.start()
        for choice in ("yes", None):
            run = await eventually(lambda: pair.host.runs[0], when=lambda now: bool(now.questions))
            (question,) = run.questions
            assert (question.title, run.since_ms) == ("rm -rf", None)
            await pair.host.act(run.id, moves.Decide(question.id, choice), by=Person("anna", "api"))
        run = await eventually(lambda: pair.host.runs[0], when=lambda now: bool(now.questions))
        assert pair.local.permitted == ["yes", None]
        # Who stops the run ends the question, and the agent is told nothing.
        await pair.host.act(run.id, moves.Stop())
        assert pair.host.runs[0].questions == ()
    assert pair.local.permitted == ["yes", None]
    answers = [(each.event, each.label, each.by) for each in pair.notes if each.event in ("Asked", "Decide")]
    assert answers == [
        ("Asked", "", ""),
        ("Decide", "allow_once", "anna"),
        ("Asked", "", ""),
        ("Decide", "reject_once", "anna"),
        ("Asked", "", ""),
    ]


async def test_a_question_that_needs_no_answer_any_more_leaves_the_run(tmp_path: Path) -> None:
    async with together(tmp_path, mode="full_auto") as pair:
        pair.local.wants = LEAVE
        asks: AskUser = deny

        async def impatient(question: PermissionRequest) -> str | None:
            asking = asyncio.ensure_future(asks(question))
            await eventually(lambda: bool(pair.host.runs[0].questions))
            asking.cancel()
            await eventually(lambda: not pair.host.runs[0].questions)
            return None

        def of(ask_user: AskUser) -> Local:
            nonlocal asks
            asks, pair.local.ask_user = ask_user, impatient
            return pair.local

        pair.local.of = of
        run = await pair.until(await pair.start(), SessionState.COMPLETED)
        assert run.turn == 3
    assert [each.event for each in pair.notes if each.event == "Unasked"] == ["Unasked"] * 4


async def test_credentials_are_not_displayed_and_are_sent_as_they_are(tmp_path: Path) -> None:
    key = "sk-live-4eC39HqLyjWDarjtT1zdp7dc4eC39HqL"

    def leaks(request: PromptRequest) -> Draft:
        return Draft(text=f"use api_key={key}", done=request.turn_index > 1)

    async with together(tmp_path, leaks, mode="full_auto") as pair:
        run = await pair.host.start("mine", pair.bob.device.id, f"try api_key={key}")
        run = await pair.until(run, SessionState.COMPLETED)
        displayed = pair.host.displayed(run)
    assert [each.text for each in run.timeline] == [f"use api_key={key}", f"heard: use api_key={key}"]
    assert [each.text for each in displayed.timeline] == ["use api_key=[API_KEY]", "heard: use api_key=[API_KEY]"]
    assert (displayed.objective, displayed.result) == ("try api_key=[API_KEY]", "use api_key=[API_KEY]")
    assert key not in msgspec.json.encode(displayed).decode()


async def test_a_host_that_comes_back_has_its_runs_paused_and_loses_no_reply(tmp_path: Path) -> None:
    async with together(tmp_path, mode="full_auto") as pair:
        pair.local.gate.clear()
        run = await pair.until(await pair.start(), SessionState.WAITING_LOCAL)
    async with together(tmp_path, mode="full_auto") as pair:
        (again,) = pair.host.runs
        assert (again.id, again.state) == (run.id, SessionState.PAUSED)
        await pair.host.act(run.id, moves.Resume())
        assert (await pair.until(run, SessionState.COMPLETED)).turn == 3


async def test_a_message_is_answered_once_and_nothing_else_is_taken_for_its_answer(tmp_path: Path) -> None:
    """S9: one turn in flight; whatever the other device says besides changes nothing in the run."""
    async with together(tmp_path) as pair:
        run = await pair.until(await pair.start(), SessionState.READY_TO_SEND)
        assert run.pending is not None
        await pair.host.act(run.id, moves.Approve(run.pending.id))
        before = await eventually(
            lambda: pair.host.runs[0], when=lambda now: len(now.timeline) >= 2 and now.pending is not None
        )
        message, here = before.timeline[0].id, pair.anna.device.id
        for message_sent in (
            AnswerMessage(to=message, session=run.session, text="and another"),
            AnswerMessage(to="never-sent", session=run.session, text="unasked"),
            DeclineMessage(to=message, session=run.session, code="DELEGATION_FAILED"),
        ):
            await asyncio.to_thread(pair.bob.seal, here, types.write(message_sent))
        last = AnswerMessage(to="x", session="of no run", text="the last")
        await asyncio.to_thread(pair.bob.seal, here, types.write(last))
        await no_longer(lambda: asyncio.to_thread(pair.bob.unsettled, here))
        await no_longer(lambda: asyncio.to_thread(pair.anna.inbox))
        assert next(each for each in pair.host.runs) == before


async def test_who_stops_a_run_that_waits_has_the_other_side_stop_too(tmp_path: Path) -> None:
    """S8: what nobody waits for any more is withdrawn, and cancelled where it is worked on."""
    began, stopped = asyncio.Event(), asyncio.Event()

    async def slow(_: Brief) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    async with two_sides(tmp_path, mode="full_auto", answer=slow) as sides, asyncio.timeout(PATIENCE_S):
        run = await sides.start()
        await began.wait()
        run = await sides.host.act(run.id, moves.Stop())
        assert run.state is SessionState.STOPPED
        await stopped.wait()
        for post, sealer in ((sides.ours, sides.anna), (sides.theirs, sides.bob)):
            await no_longer(lambda post=post, sealer=sealer: post.do(sealer.inbox))
        timeline = sides.now(run).timeline
        assert [each.text for each in timeline] == [each.text for each in run.timeline]
        now = replace(sides.now(run), timeline=run.timeline)
        assert now == run, "what comes back of it changes nothing but how far the message has come"


async def test_a_driver_that_breaks_puts_its_run_in_error_and_says_so(tmp_path: Path) -> None:
    """S4: the user must act, and can."""
    broken = [KeyError("a mistake")]

    def say(request: PromptRequest) -> Draft:
        if broken:
            raise broken.pop()
        return Draft(text="now it works", confidence=0.9)

    async with together(tmp_path, say) as pair:
        run = await pair.until(await pair.start(), SessionState.ERROR)
        assert run.failure == "the driver of the agent failed (KeyError); see the log"
        await pair.host.act(run.id, moves.Resume())
        run = await pair.until(run, SessionState.READY_TO_SEND)
        assert run.pending is not None
        assert run.pending.text == "now it works"
