"""What agents keep in a conversation (K13): merged or refused, never lost, whoever else changes it at the same time.

Run as a program, this file is a hub in a process of its own that counts in a session which others count in too.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import popen
from programs import with_tests_on_path
from remit import Brief, Capability, Code, Hub, Limits, RemitError, Response
from remit.runtime import root_runs
from remit_orchestrator import add_orchestrator
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]

MAIL = "ann@example.org"


async def kept(hub: Hub, agent: str = "a", session: str = "s") -> Any:
    """What an agent finds in a session."""
    return (await hub.ask(agent, "look", user="u", session=session)).result


def code_of(response: Response) -> Code | None:
    return None if response.fault is None else response.fault.code


async def count(brief: Brief, name: str) -> int:
    """Add one, as often as it takes; return how often it took."""
    tried = 0
    while True:
        tried += 1
        now = (await brief.state()).get(name, 0)
        try:
            await brief.update_state(**{name: now + 1})
        except RemitError as error:
            if error.fault.code is not Code.STATE_CONFLICT:
                raise
        else:
            return tried


def counting(hub: Hub) -> Hub:
    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        if brief.text != "look":
            for name in brief.text.split():
                await count(brief, name)
        return await brief.state()

    return hub


# ── two at once ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_whoever_meets_a_conflict_meets_it_until_they_have_read_what_there_is(hub: Hub) -> None:
    """K13: to try again blindly would overwrite what another has decided."""
    read, changed = asyncio.Event(), asyncio.Event()
    met: list[str] = []

    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        if brief.text == "first":
            await brief.state()
            read.set()
            await changed.wait()
            for _ in range(2):
                with pytest.raises(RemitError, match="has changed x") as conflict:
                    await brief.update_state(x="mine", y=1)
                met.append(conflict.value.fault.code)
            await brief.update_state(y=2)
            now = await brief.state()
            return await brief.update_state(x=f"{now['x']} and mine")
        if brief.text == "second":
            return await brief.update_state(x="theirs")
        return await brief.state()

    async with hub:
        first = asyncio.create_task(hub.ask("a", "first", user="u", session="s"))
        await read.wait()
        await hub.ask("a", "second", user="u", session="s")
        changed.set()
        assert (await first).result == {"x": "theirs and mine", "y": 2}
        assert await kept(hub) == {"x": "theirs and mine", "y": 2}
    assert met == ["STATE_CONFLICT", "STATE_CONFLICT"]


async def test_nothing_is_lost_among_many_runs_of_one_session(hub: Hub) -> None:
    """K13: of forty increments by ten runs at once, forty are there."""
    counting(hub)
    async with hub:
        calls = [hub.ask("a", f"all own{number} all own{number}", user="u", session="s") for number in range(10)]
        responses = await asyncio.gather(*calls)
        counts = await kept(hub)
    assert [code_of(each) for each in responses if each.fault] == []
    assert counts == {"all": 20, **{f"own{number}": 2 for number in range(10)}}


async def test_changes_that_one_agent_makes_at_once_are_all_kept(hub: Hub) -> None:
    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        await asyncio.gather(*(brief.update_state(**{f"n{number}": number}) for number in range(10)))
        await brief.update_state(n0="again")  # no conflict with what it has itself changed
        return await brief.update_state(n1=None)

    async with hub:
        response = await hub.ask("a", "go", user="u", session="s")
    assert response.result == {"n0": "again", **{f"n{number}": number for number in range(2, 10)}}


async def test_what_is_only_equal_in_python_is_a_change(hub: Hub) -> None:
    read, changed = asyncio.Event(), asyncio.Event()

    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        if brief.text == "set":
            return await brief.update_state(flag=1)
        if brief.text == "turn":
            await brief.update_state(flag=True)
            changed.set()
            return None
        await brief.state()
        read.set()
        await changed.wait()
        return await brief.update_state(flag=2)

    async with hub:
        await hub.ask("a", "set", user="u", session="s")
        slow = asyncio.create_task(hub.ask("a", "slow", user="u", session="s"))
        await read.wait()
        await hub.ask("a", "turn", user="u", session="s")
        assert code_of(await slow) is Code.STATE_CONFLICT


async def test_two_who_ask_the_user_back_at_once_both_get_through(hub: Hub) -> None:
    """K13: the orchestrator keeps what it asked; of several runs at once, the user is asked by each."""
    paid: list[Any] = []

    @hub.agent("b", capabilities=[Capability(code="PAY", description="Pay a bill", input_schema=SCHEMA)])
    async def b(brief: Brief) -> str:
        paid.append(brief.input)
        return "paid"

    add_orchestrator(hub)
    async with hub:
        calls = [hub.ask("orchestrator", "pay a bill", user="u", session="s") for _ in range(3)]
        responses = await asyncio.gather(*calls)
        await hub.ask("orchestrator", "amount: 5\nto: bob", user="u", session="s")
        reply = await hub.ask("orchestrator", "yes", user="u", session="s")
    assert [code_of(each) for each in responses if each.fault] == []
    assert all(each.requires_followup for each in responses)
    assert paid == [{"amount": 5, "to": "bob"}], "the reply is to the question that was asked last"
    assert reply.ok


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
    "required": ["amount", "to"],
}


async def test_of_two_replies_at_once_one_is_heard(hub: Hub) -> None:
    """K13: a yes that was sent twice does not pay twice."""
    paid: list[Any] = []

    @hub.agent("b", capabilities=[Capability(code="PAY", description="Pay a bill", input_schema=SCHEMA)])
    async def b(brief: Brief) -> str:
        paid.append(brief.input)
        return "paid"

    add_orchestrator(hub)
    async with hub:
        for text in ("pay a bill", "amount: 5\nto: bob"):
            await hub.ask("orchestrator", text, user="u", session="s")
        replies = [hub.ask("orchestrator", "yes", user="u", session="s") for _ in range(3)]
        responses = await asyncio.gather(*replies)
    assert [code_of(each) for each in responses if each.fault] == []
    assert paid == [{"amount": 5, "to": "bob"}]


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_another_users_and_another_agents_state_is_not_read(hub: Hub) -> None:
    """X10: not under the same session either."""

    async def keep(brief: Brief) -> Any:
        return await brief.state() if brief.text == "look" else await brief.update_state(secret=brief.text)

    hub.agent("a")(keep)

    @hub.agent("boss", may_call=["a"])
    async def boss(brief: Brief) -> Any:
        await brief.update_state(secret="the boss's")
        return (await brief.delegate("a", objective=brief.text)).result

    async with hub:
        assert (await hub.ask("boss", "mine", user="u-1", session="s")).result == {"secret": "mine"}
        assert (await hub.ask("boss", "look", user="u-1", session="s")).result == {"secret": "mine"}
        assert (await hub.ask("boss", "look", user="u-1", session="t")).result == {}
        assert (await hub.ask("boss", "look", user="u-2", session="s")).result == {}


async def test_what_is_done_to_a_state_that_was_read_changes_nothing_that_is_kept(hub: Hub) -> None:
    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        if brief.text == "look":
            return await brief.state()
        made = await brief.update_state(items=[1])
        made["items"].append(2)
        (await brief.state())["items"].append(3)
        return await brief.update_state(other=True)

    async with hub:
        assert (await hub.ask("a", "go", user="u", session="s")).result == {"items": [1], "other": True}
        assert await kept(hub) == {"items": [1], "other": True}


async def test_personal_data_is_kept_as_tokens_and_read_as_far_as_the_team_lets_an_agent_see_it(hub: Hub) -> None:
    """X12."""
    seen: dict[str, Any] = {}

    async def keep(brief: Brief) -> Any:
        made = await brief.update_state(mail=MAIL)
        seen[brief.request.target] = [made["mail"], (await brief.state())["mail"]]
        return made

    hub.agent("blind")(keep)
    hub.agent("clerk", sees=["EMAIL"])(keep)
    async with hub:
        for agent in ("blind", "clerk"):
            assert (await hub.ask(agent, "go", user="u", session=agent)).result == {"mail": MAIL}
            stored = await hub.store.get(f"state {agent} {agent}")
            assert stored is not None
            assert MAIL.encode() not in stored[1]
    assert seen["clerk"] == [MAIL, MAIL]
    assert all(each.startswith("[EMAIL:") for each in seen["blind"])


# ── what cannot be kept ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        (object(), Code.INPUT_VALIDATION_FAILED, "value"),
        (float("nan"), Code.INPUT_VALIDATION_FAILED, "NaN"),
        ({"deep": {"er": {1, 2, object()}}}, Code.INPUT_VALIDATION_FAILED, "value: cannot be written"),
        ("x" * 2_000, Code.TOO_LARGE, "2"),
    ],
)
async def test_what_cannot_be_kept_is_refused_and_what_was_there_stays(
    make_hub: MakeHub, value: Any, code: Code, message: str
) -> None:
    hub = make_hub(limits=Limits(max_result_bytes=1_500))

    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        await brief.update_state(value="before")
        with pytest.raises(RemitError) as refused:
            await brief.update_state(value=value)
        assert refused.value.fault.code is code
        assert message in str(refused.value)
        return await brief.state()

    async with hub:
        assert (await hub.ask("a", "go", user="u", session="s")).result == {"value": "before"}


async def test_a_state_cannot_grow_without_end_by_small_changes(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_result_bytes=1_000))

    @hub.agent("a")
    async def a(brief: Brief) -> int:
        for number in range(9):
            await brief.update_state(**{f"n{number}": "x" * 100})
        with pytest.raises(RemitError, match="TOO_LARGE"):
            await brief.update_state(n9="x" * 100)
        return len(await brief.state())

    async with hub:
        assert (await hub.ask("a", "go", user="u", session="s")).result == 9


# ── restarts and other processes ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_that_is_taken_up_again_has_no_conflict_with_itself(make_hub: MakeHub) -> None:
    """K13: what it changed before the restart is what it finds."""
    seen: list[Any] = []
    working = asyncio.Event()

    def make(go: bool) -> Hub:
        hub = make_hub()

        @hub.agent("a", resumable=True)
        async def a(brief: Brief) -> Any:
            seen.append(await brief.state())
            await brief.update_state(step="begun")
            working.set()
            if not go:
                await asyncio.Event().wait()
            return await brief.update_state(step="done")

        return hub

    async with make(go=False) as hub:
        asking = asyncio.create_task(hub.ask("a", "go", user="u", session="s", request_id="r"))
        await working.wait()
    await asking
    async with make(go=True) as hub:
        response = await hub.ask("a", "go", user="u", session="s", request_id="r")
    assert response.result == {"step": "done"}
    assert seen == [{}, {"step": "begun"}]


def start(folder: Path, name: str, times: int) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, str(folder), name, str(times)]
    return popen(command, stdout=subprocess.PIPE, text=True, env=with_tests_on_path())


async def test_processes_that_share_a_store_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """K13, decision 14: two count in one session; what both count is the sum, what each counts its own."""
    processes = [start(tmp_path, name, 30) for name in ("left", "right")]
    try:
        outputs = await asyncio.gather(*(asyncio.to_thread(each.communicate, timeout=PATIENCE_S) for each in processes))
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert [each.returncode for each in processes] == [0, 0]
    assert all(json.loads(out.splitlines()[-1]) for out, _ in outputs)
    async with counting(Hub(store=tmp_path / "hub.db", durability="process")) as hub:
        assert await kept(hub) == {"both": 60, "left": 30, "right": 30}


async def test_what_was_acknowledged_survives_a_kill_in_the_middle(tmp_path: Path, monkeypatch: Any) -> None:
    """K13: kill -9; the other process goes on, and what was counted before is there."""
    monkeypatch.setattr(root_runs, "LEASE_MS", 200)
    victim = start(tmp_path, "victim", 100_000)
    assert victim.stdout is not None
    acknowledged = 0
    for line in victim.stdout:
        acknowledged = json.loads(line)
        if acknowledged >= 10:
            break
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    async with counting(Hub(store=tmp_path / "hub.db", durability="process")) as hub:
        counts = (await hub.ask("a", "both", user="u", session="s")).result
    assert counts["victim"] >= acknowledged
    assert counts["both"] - 1 in (counts["victim"], counts["victim"] + 1), "each of its changes is there or is not"


async def live(folder: Path, name: str, times: int) -> None:
    async with counting(Hub(store=folder / "hub.db", durability="process")) as hub:
        for number in range(1, times + 1):
            response = await hub.ask("a", f"both {name}", user="u", session="s")
            assert response.ok, response
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
