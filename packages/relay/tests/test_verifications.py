"""S14: the eleven verifications of shared agents, with two devices, a gateway, a hub and a local agent's process."""

import asyncio
import base64
import logging
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from gateways import code_of
from recorded import recorded, steps
from remit import Brief
from remit.agents.program import Program
from remit.protocol.card import Rate
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError
from remit_relay.bridge.ports import PromptConstraints, time_limit_s
from remit_relay.messages.types import AnswerMessage, DeclineMessage, QuestionMessage
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import ControlEnvelope, ProfileLimits
from remit_relay.session.run import Overlay
from two_sides import EXAMPLE, REQUESTER, Sides, Stranger, Tap, stranger, two_sides
from waiting import eventually

AUTO = "full_auto"


def timeline_of(run: Overlay) -> list[tuple[str, str, str | None]]:
    return [(each.role, each.text, each.label) for each in run.timeline]


# ── 1 and 2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_start_orchestrated_session_from_shared_chat_with_selected_local_agent(tmp_path: Path) -> None:
    """S14, verification 1: the agent of the examples, as it stands there."""
    agent = Program(command=sys.executable, args=(str(EXAMPLE),))
    async with two_sides(tmp_path, agent=agent) as sides:
        run = await sides.start("review this API for security issues")
        assert (run.profile, run.device, run.mode) == ("mine", sides.bob.device.id, "manual")
        assert run.objective == "review this API for security issues"
        ready = await sides.until(run, SessionState.READY_TO_SEND)
        assert ready.pending is not None
        assert "review this API for security issues" in ready.pending.text
        assert await sides.carried_out() == 0


async def test_loop_is_local_draft_remote_send_remote_response_local_follow_up(tmp_path: Path) -> None:
    """S14, verification 2; S2."""
    async with two_sides(tmp_path, "talk", "2", mode=AUTO) as sides:
        run = await sides.until(await sides.start(), SessionState.COMPLETED)
        assert timeline_of(run) == [
            ("local_agent", "turn 1: review this API", "auto_sent"),
            ("remote_agent", "heard: turn 1: review this API", None),
            ("local_agent", "turn 2: review this API", "auto_sent"),
            ("remote_agent", "heard: turn 2: review this API", None),
        ]
        first, second, third = sides.requests
        assert (first["remote_message"], first["history"]) == ("", [])
        assert second["remote_message"] == "heard: turn 1: review this API"
        assert second["history"] == [{"role": "local_agent", "text": "turn 1: review this API"}]
        assert third["remote_message"] == "heard: turn 2: review this API"
        assert (run.ended, run.result) == ("done", "turn 3: review this API")
        # What is told of a message on its way is a step, too, and leaves the state as it is.
        states = [state for state, _ in groupby(each.state for each in sides.steps)]
        assert states[:6] == [
            SessionState.PLANNING,
            SessionState.WAITING_LOCAL,
            SessionState.READY_TO_SEND,
            SessionState.WAITING_REMOTE,
            SessionState.PROCESSING_REMOTE,
            SessionState.WAITING_LOCAL,
        ]


# ── 3 and 4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_manual_mode_requires_approval_before_each_send(tmp_path: Path) -> None:
    """S14, verification 3; S6."""
    async with two_sides(tmp_path, "talk", "3") as sides:
        run = await sides.start()
        assert run.mode == "manual"
        for turn, words in enumerate((None, "in my own words", None), start=1):
            run = await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.pending is not None)
            assert run.pending is not None
            assert await sides.carried_out() == turn - 1, "nothing is sent before a person says so"
            assert run.pending.reviews[0].rule == "manual"
            await sides.host.act(run.id, moves.Approve(run.pending.id, words))
            await sides.until(run, *SessionState, when=lambda now, turn=turn: len(now.timeline) == 2 * turn)
        run = await sides.until(run, SessionState.COMPLETED)
        assert [each.label for each in run.timeline if each.label] == ["approved", "edited", "approved"]
        assert run.timeline[3].text == "heard: in my own words"


async def test_full_auto_runs_until_max_turn_stop_condition(tmp_path: Path) -> None:
    """S14, verification 4; S7: eight turns unless the profile says otherwise."""
    async with two_sides(tmp_path, "talk", "100", mode=AUTO) as sides:
        run = await sides.until(await sides.start(), SessionState.STOPPED)
        assert (run.turn, run.ended, run.banner) == (8, "max_turns", "The run has ended at its limit of 8 turns")
        assert {each.label for each in run.timeline if each.role == "local_agent"} == {"auto_sent"}
        assert await sides.carried_out() == 8
        with pytest.raises(RemitError) as raised:
            await sides.host.act(run.id, moves.Resume())
        assert raised.value.fault.code is Code.STATE_CONFLICT


# ── 5 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_pause_resume_stop_work_without_breaking_e2ee_session_integrity(tmp_path: Path) -> None:
    """S14, verification 5; S8: paused at two moments, stopped at one, and the same sealed session carries on."""
    answering = asyncio.Event()

    async def patient(brief: Brief) -> str:
        await answering.wait()
        return f"heard: {brief.text}"

    async with two_sides(tmp_path, "silent-at", "2", answer=patient, mode=AUTO) as sides:
        run = await sides.until(await sides.start(), SessionState.WAITING_REMOTE)
        # Paused while the remote agent is at work: its reply is kept, and nothing more is asked or sent.
        paused = await sides.host.act(run.id, moves.Pause())
        assert paused.state is SessionState.PAUSED
        answering.set()
        kept = await sides.until(run, SessionState.PAUSED, when=lambda now: bool(now.kept))
        assert (kept.turn, len(sides.requests)) == (1, 1)
        session = await sides.ours.do(sides.anna.session, sides.bob.device.id)
        assert session
        await sides.host.act(run.id, moves.Resume())
        # Stopped while the local agent is at work: nothing of it is sent.
        await sides.silent()
        stopped = await sides.host.act(run.id, moves.Stop())
        assert (stopped.state, stopped.ended, stopped.turn) == (SessionState.STOPPED, "user", 1)
        assert await sides.carried_out() == 1
        # What follows goes through the same sessions: none had to be begun anew.
        again = await sides.until(await sides.start(), SessionState.COMPLETED)
        assert again.turn == 3
        assert await sides.ours.do(sides.anna.session, sides.bob.device.id) == session
        assert not await sides.ours.do(sides.anna.losses, sides.bob.device.id)


# ── 6 and 7 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "denied", [{"allow_shared_agent_calls": False}, {"allowed_shared_device_ids": frozenset({"a" * 26})}]
)
async def test_policy_blocks_disallowed_target(tmp_path: Path, denied: dict[str, Any]) -> None:
    """S14, verification 6; S10: on the side that asks nothing starts, on the side that is asked nothing is done."""
    async with two_sides(tmp_path / "asks", **denied) as sides:
        with pytest.raises(RemitError) as raised:
            await sides.start()
        assert raised.value.fault.code is Code.PERMISSION_DENIED
        assert (sides.host.runs, sides.requests) == ((), [])
    async with two_sides(tmp_path / "asked", mode=AUTO, shared=denied) as sides:
        run = await sides.until(await sides.start(), SessionState.ERROR)
        assert run.failure.startswith("PERMISSION_DENIED: ")
        assert await sides.carried_out() == 0


def asks(sender: Stranger, number: int = 1, **control: Any) -> QuestionMessage:
    control_fields: dict[str, Any] = {
        "origin_agent_device_id": sender.sealer.device.id,
        "trace_id": f"t-{number}",
        "hop_count": 1,
    }
    return QuestionMessage(
        id=f"m-{number}",
        session="s-1",
        text="Pass it on.",
        control=ControlEnvelope(orchestrator_profile_id="theirs", **{**control_fields, **control}),
    )


async def test_loop_prevention_blocks_recursive_chains(tmp_path: Path) -> None:
    """S14, verification 7; S11: too many hops, back to where it began, too often; on both sides."""
    async with two_sides(tmp_path / "itself", mode=AUTO) as sides:
        with pytest.raises(RemitError) as raised:
            await sides.host.start("mine", sides.anna.device.id, "talk to yourself")
        assert raised.value.fault.code is Code.LOOP_DETECTED
    async with two_sides(tmp_path / "no-hops", mode=AUTO, max_hop_count=0) as sides:
        with pytest.raises(RemitError) as raised:
            await sides.start()
        assert raised.value.fault.code is Code.MAX_DEPTH_EXCEEDED
    # What a device says that passes on what others asked of it, with the truth about where it began.
    async with stranger(tmp_path / "chain", rate=Rate(calls=2, seconds=3_600)) as third:
        bob, other = third.bob, "b" * 26
        refusals: list[tuple[dict[str, Any], Code]] = [
            ({"origin_agent_device_id": other, "hop_count": 3}, Code.MAX_DEPTH_EXCEEDED),
            ({"origin_agent_device_id": bob, "hop_count": 2}, Code.LOOP_DETECTED),
            ({"hop_count": 2}, Code.LOOP_DETECTED),
            ({"origin_agent_device_id": other}, Code.PERMISSION_DENIED),
        ]
        for number, (refused, code) in enumerate(refusals, start=1):
            assert code_of(DeclineMessage, await third.ask(asks(third, number, **refused))) == code
        # Two hops are allowed, and so is a second message; a third is too much for this hour.
        for number, hops in enumerate((1, 2), start=5):
            origin = {"origin_agent_device_id": other} if hops == 2 else {}
            assert isinstance(await third.ask(asks(third, number, hop_count=hops, **origin)), AnswerMessage)
        assert code_of(DeclineMessage, await third.ask(asks(third, 7))) == Code.RATE_LIMITED
    async with two_sides(tmp_path / "often", mode=AUTO, rate=Rate(calls=2, seconds=3_600)) as sides:
        run = await sides.until(await sides.start(), SessionState.ERROR)
        assert "try again in" in run.failure
        assert (await sides.carried_out(), run.turn) == (2, 2)
        assert run.pending is not None
        assert run.pending.reviews[0].why == f"It was not sent: {run.failure}"


# ── 8 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

MAIL, KEY = "ada.weber@example.org", "sk-live-4eC39HqLyjWDarjtT1zdp7dc4eC39HqL"


async def test_audit_log_entries_are_profile_scoped_and_redacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S14, verification 8; S13: the records of the side that asks and of the one that is asked, and all logs."""
    caplog.set_level(logging.DEBUG)
    async with two_sides(tmp_path, "talk", "2", mode=AUTO) as sides:
        await sides.until(await sides.start(f"write to {MAIL} with api_key={KEY}"), SessionState.COMPLETED)
        assert {(each.profile, each.device, each.requester, each.mode) for each in sides.noted} == {
            ("mine", sides.bob.device.id, REQUESTER, AUTO)
        }
        assert [(each.turn, each.state) for each in sides.noted if each.event == "Sent"] == [
            (1, SessionState.WAITING_REMOTE),
            (2, SessionState.WAITING_REMOTE),
        ]
        assert all(each.active_ms >= 0 for each in sides.noted)
        asking = await recorded(sides.anna, tmp_path / "annas-hub.db")
        assert steps(asking) == sides.noted
        sharing = await recorded(sides.bob, tmp_path / "bobs-hub.db")
        assert {(each.profile, each.device, each.requester) for each in steps(sharing)} == {
            ("helper", sides.anna.device.id, REQUESTER)
        }
        entries = encode([*asking, *sharing]).decode()
        record = b"".join(map(encode, await sides.hub.store.records())).decode()
        assert sides.anna.device.id in record
        for private in (MAIL, KEY, sides.anna.device._pair.seed.hex()):  # pyright: ignore[reportPrivateUsage]
            assert private not in entries
            assert private not in record
            assert private not in caplog.text
        assert "write to" not in entries
        assert "[EMAIL:" in record


# ── 9 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def goes_on(sides: Sides, run: Overlay) -> None:
    """A person resumes the run after its agent failed, and it comes to its end."""
    sides.clock.by_s += 2  # an agent that failed is left alone for a second
    await sides.host.act(run.id, moves.Resume())
    assert (await sides.until(run, SessionState.COMPLETED)).turn == 3


async def test_killed_local_agent_mid_run_surfaces_the_error_path_and_halts_the_loop_safely(tmp_path: Path) -> None:
    """S14, verification 9; S4."""
    async with two_sides(tmp_path / "killed", "silent-at", "2", mode=AUTO) as sides:
        run = await sides.start()
        await sides.kill()
        run = await sides.until(run, SessionState.ERROR)
        assert run.failure == "the local agent's process ended without an answer: signal 9"
        assert (run.turn, run.failures) == (1, 1)
        assert [each.failure for each in sides.noted if each.event == "LocalFailed"] == [run.failure]
        with pytest.raises(RemitError) as raised:
            await sides.host.act(run.id, moves.Say("I was not asked"))
        assert raised.value.fault.code is Code.STATE_CONFLICT
        assert await sides.carried_out() == 1, "the loop stands still"
        await goes_on(sides, run)
    late = PromptConstraints(local_turn_timeout_ms=1_500)
    async with two_sides(tmp_path / "late", "silent-at", "2", mode=AUTO, constraints=late) as sides:
        run = await sides.until(await sides.start(), SessionState.ERROR)
        assert run.failure.startswith("the local agent did not answer within 1.5 s")
        assert await sides.carried_out() == 1
        await goes_on(sides, run)


# ── 10 ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(request: dict[str, Any]) -> dict[str, Any]:
    """What of a request depends on the conversation alone."""
    return {name: request.get(name) for name in ("turn_index", "remote_message", "history", "history_summary")}


@pytest.mark.parametrize(
    ("chars", "constraints"),
    [(6_000, PromptConstraints()), (300, PromptConstraints(max_history_turns=3, max_history_chars=2_000))],
    ids=["by default", "as configured"],
)
async def test_oversized_history_is_truncated_summarised_deterministically_and_stays_within_bounds(
    tmp_path: Path, chars: int, constraints: PromptConstraints
) -> None:
    """S14, verification 10; S5: as the local agent's process sees it."""
    seen: list[list[dict[str, Any]]] = []
    run, replies = None, list[str]()
    for each in ("once", "again") if chars == 300 else ("once",):
        async with two_sides(tmp_path / each, "long", str(chars), mode=AUTO, constraints=constraints) as sides:
            run = await sides.until(await sides.start(), SessionState.STOPPED)
            seen.append(list(map(shown, sides.requests)))
            replies = [entry.text for entry in run.timeline if entry.role == "remote_agent"]
    assert run is not None
    once = seen[0]
    assert seen[-1] == once, "the same conversation makes the same prompts"
    assert len(once) == 8
    for request, before in zip(once[1:], replies, strict=False):
        assert request["remote_message"] == before, "the last remote message is verbatim"
        history: list[dict[str, str]] = request["history"] or []
        summary: str = request["history_summary"] or ""
        assert len(history) <= constraints.max_history_turns
        assert len(summary) + sum(len(turn["text"]) for turn in history) <= constraints.max_history_chars
        assert all(turn["text"] in {entry.text for entry in run.timeline} for turn in history), "whole, or not at all"
    assert not once[1]["history_summary"]
    assert once[-1]["history_summary"].startswith(f"{13 - len(once[-1]['history'])} earlier turns")
    assert "local_agent: turn " in once[-1]["history_summary"]


# ── 11 ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_tool_enabled_runs_respect_max_tool_rounds_and_timeout_constraints(tmp_path: Path) -> None:
    """S14, verification 11; S3, S4."""
    two = ProfileLimits(max_turns=2)
    async with two_sides(tmp_path / "three", "tools", "3", mode=AUTO, limits=two) as sides:
        run = await sides.until(await sides.start(), SessionState.STOPPED)
        assert (run.turn, run.ended) == (2, "max_turns")
        allowed = sides.requests[0]["constraints"]
        assert (allowed["allow_tool_use"], allowed["max_tool_rounds"]) == (True, 3)
        assert allowed["local_turn_timeout_ms"] == 120_000
    for name, rounds, constraints, says in (
        ("four", "4", PromptConstraints(), "used tools 4 times in one turn; the limit is 3"),
        ("one", "1", PromptConstraints(allow_tool_use=False), "used tools once in one turn; tools are not allowed"),
    ):
        async with two_sides(tmp_path / name, "tools", rounds, mode=AUTO, constraints=constraints) as sides:
            run = await sides.until(await sides.start(), SessionState.ERROR)
            assert run.failure == f"the local agent {says}"
            assert (run.turn, await sides.carried_out()) == (0, 0)
    slow = PromptConstraints(local_turn_timeout_ms=200)
    async with two_sides(tmp_path / "slow", "silent", mode=AUTO, constraints=slow) as sides:
        run = await sides.until(await sides.start(), SessionState.ERROR)
        assert run.failure.startswith("the local agent did not answer within 0.2 s")
    # However long a profile would wait.
    for tools, most_s in ((True, 120), (False, 60)):
        patient = PromptConstraints(allow_tool_use=tools, local_turn_timeout_ms=3_600_000)
        assert time_limit_s(patient, ceiling_ms=3_600_000) == most_s


# ── the gateway ───────────────────────────────────────────────────────────────────────────────────────────────────────


def in_any_form(text: str) -> set[bytes]:
    """Return how a text would look to whoever searches for it: as it is, as hex, as base64 at any place in a stream."""
    plain = text.encode()
    coded = {base64.b64encode(b"x" * start + plain)[4 * (start > 0) : -4] for start in range(3)}
    return {plain, plain.hex().encode(), plain.hex().upper().encode(), text.encode("utf-16-le"), *coded}


async def test_all_that_a_gateway_stores_and_sends_holds_no_plaintext(tmp_path: Path) -> None:
    """S1: everything that it is sent, sends and writes, while one device is away and after it is back."""
    objective, draft, reply = "canary-objective-7391", "canary-draft-2846", "canary-reply-5163"

    async def answer(brief: Brief) -> str:
        return f"{reply} {brief.text}"

    files = tmp_path / "gateway"
    async with Tap() as tap, two_sides(tmp_path, "talk", "2", answer=answer, url=tap.before) as sides:
        run = await sides.until(await sides.start(objective), SessionState.READY_TO_SEND)
        assert run.pending is not None
        tap.flowing.clear()
        await sides.host.act(run.id, moves.Approve(run.pending.id, f"{draft} {run.pending.text}"))
        await eventually(lambda: tap.put and tap.put[0][-72:-8] in contents(files))
        stored = contents(files)
        tap.flowing.set()
        for turn in (2, 3):
            run = await sides.until(
                run, SessionState.READY_TO_SEND, SessionState.COMPLETED, when=lambda now, n=turn: now.turn == n - 1
            )
            if run.pending is not None:
                await sides.host.act(run.id, moves.Approve(run.pending.id))
        run = await sides.until(run, SessionState.COMPLETED)
        seeds = [each.device._pair.seed for each in (sides.anna, sides.bob)]  # pyright: ignore[reportPrivateUsage]
    texts = " ".join(entry.text for entry in run.timeline)
    assert all(canary in texts for canary in (objective, draft, reply))
    everything = b"\n".join((*tap.seen, stored, contents(files)))
    assert sides.bob.device.id.encode() in everything, "what it may know can be found, so what it may not could be"
    for canary in (objective, draft, reply, REQUESTER, run.session, run.id, "hop_count", "origin_agent", "local_agent"):
        assert not [form for form in in_any_form(canary) if form in everything], canary
    assert not [seed for seed in seeds if seed in everything or seed.hex().encode() in everything]


def contents(folder: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_a_canary_would_be_found_in_any_form() -> None:
    """The test above can fail."""
    for place in range(3):
        hidden = base64.b64encode(b"." * place + b"canary-objective-7391 and more")
        assert any(form in hidden for form in in_any_form("canary-objective-7391"))
