"""The hooks of Codex as it sends them, over the socket of a running guard."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from claude_hooks import guarding
from command_line import remit
from remit.stores.sqlite import SqliteStore
from remit_guard.install import install, is_in, uninstall
from remit_guard.tools.codex import HOOKS, Codex, hook_hashes

ROOT = "01a1ecba-0000-7000-8000-000000000000"


def thread(number: int) -> str:
    """Return the id of the thread of a sub-agent: ids grow with time."""
    return f"01a1ecbb-0000-7000-8000-{number:012}"


class CodexSession:
    """Writes rollouts and sends hooks as the tool does."""

    def __init__(self, web: ClientSession, folder: Path, *, named: bool = False) -> None:
        self.web = web
        self.day = folder / "sessions" / "2026" / "11" / "18"
        self.day.mkdir(parents=True, exist_ok=True)
        self.named = named
        if not self.path(ROOT).exists():
            self.write(ROOT, "session_meta", {"id": ROOT, "session_id": ROOT, "source": "exec"})

    def path(self, thread: str) -> Path:
        return self.day / f"rollout-2026-11-18T03-37-22-{thread}.jsonl"

    def write(self, thread: str, kind: str, payload: dict[str, Any]) -> None:
        with self.path(thread).open("a") as file:
            file.write(json.dumps({"timestamp": "…", "type": kind, "payload": payload}) + "\n")

    def says(self, response: str, thread: str = ROOT, *, call: str = "", owner: str = "") -> None:
        """Write an answer with 30 tokens, and 5 from a cache; *owner*: the thread that it is copied from."""
        if call:
            item = {"type": "function_call", "name": "spawn_agent", "namespace": "any", "call_id": call}
            self.write(thread, "response_item", item)
        usage = {"input_tokens": 25, "cached_input_tokens": 5, "output_tokens": 10, "reasoning_output_tokens": 3}
        about = {"thread_id": owner or thread, "response_id": response, "usage": usage}
        self.write(thread, "token_usage_record", about)

    async def hook(self, event: str, agent: str = "", **more: Any) -> dict[str, Any]:
        body = {"session_id": ROOT, "transcript_path": str(self.path(agent or ROOT)), "cwd": "/work"}
        about = {"agent_id": agent, "agent_type": "worker"} if agent else {}
        if event == "SubagentStop":
            about["agent_transcript_path"] = str(self.path(agent))
        async with self.web.post("/hooks/codex", json={**body, **about, "hook_event_name": event, **more}) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def ask(self, number: int, agent: str = "") -> str | None:
        """Ask to start a sub-agent; return why it may not start."""
        self.says(f"spawn-{number}", agent or ROOT, call=f"call-{number}")
        name = {"task_name": f"task_{number}"} if self.named else {"agent_type": "worker"}
        tool, given = ("collaborationspawn_agent" if self.named else "spawn_agent"), {"message": f"Do {number}", **name}
        about = {"tool_name": tool, "tool_use_id": f"call-{number}", "tool_input": given}
        answer = await self.hook("PreToolUse", agent, **about)
        if not answer:
            return None
        decision = answer["hookSpecificOutput"]
        assert decision["permissionDecision"] == "deny"
        return decision["permissionDecisionReason"]

    async def begin(self, number: int, parent: str = ROOT) -> None:
        """Start the thread of a sub-agent."""
        spawn = {"parent_thread_id": parent, "agent_path": f"/root/task_{number}" if self.named else None}
        source = {"subagent": {"thread_spawn": spawn}}
        self.write(thread(number), "session_meta", {"id": thread(number), "session_id": ROOT, "source": source})
        assert await self.hook("SubagentStart", thread(number)) == {}
        if not self.named:
            await self.hook("UserPromptSubmit", thread(number), prompt=f"Do {number}")

    async def end(self, number: int, message: str) -> None:
        await self.hook("SubagentStop", thread(number), last_assistant_message=message)


async def total(folder: Path) -> int:
    store = SqliteStore(folder / "guard" / "hub.db", durability="process")
    await store.open()
    try:
        (run, *_) = await store.runs(limit=1)
    finally:
        await store.close()
    assert run.response is not None
    return run.response.usage.total


def tree(folder: Path) -> list[str]:
    """Return the lines of the newest run: agent, state, task."""
    done = remit("runs", "tree", "last", "--store", str(folder / "guard" / "hub.db"), folder=folder)
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()[1:]]


@pytest.mark.parametrize("named", [False, True])
async def test_a_session_is_a_run_whose_total_is_that_of_all_rollouts(named: bool, tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path, named=named)
        await tool.hook("SessionStart", source="startup")
        await tool.hook("UserPromptSubmit", prompt="Fix the build")
        assert await tool.ask(1) is None
        assert await tool.ask(2) is None
        await tool.begin(2)  # threads may start in another order than they were asked for
        await tool.begin(1)
        tool.says("copied", thread(1), owner=ROOT)  # a fork has the history of its parent
        tool.says("one", thread(1))
        assert await tool.ask(3, thread(1)) is None
        await tool.begin(3, thread(1))
        tool.says("three", thread(3))
        await tool.end(3, "deep")
        await tool.end(1, "done")
        tool.says("late", thread(1))  # the rollout comes after the hook
        tool.says("end")
        await tool.hook("Stop", last_assistant_message="Done.")
        await tool.hook("SessionEnd", reason="other")
    assert await total(tmp_path) == 30 * 7
    lines = tree(tmp_path)
    tasks = ["task_1", "task_3", "task_2"] if named else ["Do 1", "Do 3", "Do 2"]
    assert [line.split("  ")[-1].partition(" (+")[0] for line in lines[1:]] == tasks
    assert lines[2].startswith("│  └─"), "the third one was started by the first"


async def test_refusals_reach_the_model_and_who_is_out_of_tokens_may_use_no_tool(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        await tool.begin(1)
        assert await tool.ask(2, thread(1)) is None
        await tool.begin(2, thread(1))
        refused = await tool.ask(3, thread(2))
        assert refused is not None
        assert refused.startswith("Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2).")
        shell: dict[str, Any] = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "true"}}
        assert await tool.hook("PreToolUse", thread(1), **shell) == {}
        for number in range(40):
            tool.says(f"much-{number}", thread(1))
        answer = await tool.hook("PreToolUse", thread(1), **shell)
        assert answer.keys() == {"hookSpecificOutput"}, "Codex takes an answer with `continue` for a broken one"
        assert "tokens of this session are spent" in answer["hookSpecificOutput"]["permissionDecisionReason"]
        assert await tool.hook("PreToolUse", **shell) == {}, "the person goes on"
        assert "TOKEN_BUDGET_EXCEEDED: no tokens are left" in str(await tool.ask(4))
        await tool.hook("SessionEnd")


async def test_the_same_task_may_be_given_again_after_an_edit(tmp_path: Path) -> None:
    given = {"message": "Run the tests", "agent_type": "worker"}
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)

        async def run_tests(number: int) -> str:
            tool.says(f"spawn-{number}", call=f"call-{number}")
            about: dict[str, Any] = {"tool_name": "spawn_agent", "tool_use_id": f"call-{number}", "tool_input": given}
            return str(await tool.hook("PreToolUse", **about))

        assert await run_tests(1) == "{}"
        await tool.begin(1)
        await tool.end(1, "two fail")
        assert "CYCLE_DETECTED" in await run_tests(2)
        assert await tool.hook("PreToolUse", tool_name="apply_patch", tool_use_id="t", tool_input={}) == {}
        assert await run_tests(3) == "{}"


async def test_a_guard_that_was_restarted_knows_what_all_threads_spent_before(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        await tool.begin(1)
        for number in range(10):
            tool.says(f"much-{number}", thread(1))
    other = CodexSession(web, tmp_path)
    other.write(thread(9), "session_meta", {"id": thread(9), "session_id": thread(9), "source": "exec"})
    other.says("of another session", thread(9))
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(2) is None
        await tool.hook("SessionEnd")
    assert await total(tmp_path) == 30 * 12


async def test_what_never_started_or_was_broken_off_gives_its_place_back(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        assert await tool.ask(2) is None
        assert "FAN_OUT_EXCEEDED" in str(await tool.ask(3))
        output = {"type": "function_call_output", "call_id": "call-1", "output": "agent thread limit reached"}
        tool.write(ROOT, "response_item", output)
        assert await tool.ask(4) is None
        await tool.begin(2)
        tool.write(thread(2), "event_msg", {"type": "task_started"})
        assert "FAN_OUT_EXCEEDED" in str(await tool.ask(5))
        tool.write(thread(2), "event_msg", {"type": "turn_aborted", "reason": "interrupted"})
        assert await tool.ask(6) is None
        await tool.hook("SessionEnd")
    assert await total(tmp_path) == 30 * 6


async def test_a_sub_agent_that_gets_another_task_after_its_end_is_asked_for_as_a_new_one(tmp_path: Path) -> None:
    def send(number: int, target: str) -> dict[str, Any]:
        given = {"target": target, "message": "Go on"}
        return {"tool_name": "collaborationfollowup_task", "tool_use_id": f"send-{number}", "tool_input": given}

    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path, named=True)
        assert await tool.ask(1) is None
        await tool.begin(1)
        assert await tool.hook("PreToolUse", **send(0, "task_1")) == {}, "it still runs"
        tool.says("one", thread(1))
        await tool.end(1, "done")
        for number, target in enumerate(("task_1", "/root/task_1"), start=1):
            assert await tool.hook("PreToolUse", **send(number, target)) == {}
            tool.says(f"more-{number}", thread(1))
            await tool.end(1, "done again")
        assert await tool.hook("PreToolUse", **send(3, "task_1")) == {}
        await tool.hook("PostToolUse", **send(3, "task_1"), tool_response="live agent path not found")
        tool.says("late", thread(1))
        for number in range(30):
            tool.says(f"much-{number}")
        answer = await tool.hook("PreToolUse", **send(4, "task_1"))
        assert "TOKEN_BUDGET_EXCEEDED" in answer["hookSpecificOutput"]["permissionDecisionReason"]
        unknown = await tool.hook("PreToolUse", **send(5, "task_9"))
        assert "knows no sub-agent of this name" in unknown["hookSpecificOutput"]["permissionDecisionReason"]
        await tool.hook("SessionEnd")
    assert await total(tmp_path) == 30 * (5 + 30)
    assert [line.split()[2] for line in tree(tmp_path)[1:]] == ["success"] * 4 + ["refused"]


async def test_a_sub_agent_that_ended_before_a_restart_is_asked_for_when_it_gets_another_task(tmp_path: Path) -> None:
    """Otherwise a session without tokens could go on with all that it had started before."""
    given = {"target": "task_1", "message": "Go on"}
    send: dict[str, Any] = {"tool_name": "collaborationfollowup_task", "tool_input": given}
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path, named=True)
        assert await tool.ask(1) is None
        await tool.begin(1)
        tool.says("one", thread(1))
        tool.write(thread(1), "event_msg", {"type": "task_complete"})
        await tool.end(1, "done")
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path, named=True)
        assert await tool.hook("PreToolUse", tool_use_id="send-1", **send) == {}
        tool.says("two", thread(1))
        await tool.end(1, "done again")
        for number in range(33):
            tool.says(f"much-{number}")
        answer = await tool.hook("PreToolUse", tool_use_id="send-2", **send)
        assert "TOKEN_BUDGET_EXCEEDED" in answer["hookSpecificOutput"]["permissionDecisionReason"]
        await tool.hook("SessionEnd")
    assert await total(tmp_path) == 30 * (3 + 33)
    assert [line.split()[2] for line in tree(tmp_path)[1:]] == ["success", "refused"]


async def test_one_that_the_guard_holds_for_ended_starts_no_other(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        await tool.begin(1)
        await tool.end(1, "done")
        assert str(await tool.ask(2, thread(1))).startswith("Remit: CANCELLED: worker was told to stop")
        await tool.hook("SessionEnd")


async def test_a_thread_that_began_before_the_guard_takes_no_place_of_a_new_one(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        await tool.begin(1)
        tool.says("one", thread(1))
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(2) is None
        shell: dict[str, Any] = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "true"}}
        assert await tool.hook("PreToolUse", thread(1), **shell) == {}
        tool.says("more", thread(1))
        await tool.begin(2)
        tool.says("two", thread(2))
        await tool.end(1, "done")
        await tool.end(2, "done")
        await tool.hook("SessionEnd")
    assert await total(tmp_path) == 30 * 5


async def test_two_hooks_that_ask_for_the_same_start_are_one(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        assert await tool.ask(1) is None
        assert await tool.ask(1) is None
        await tool.begin(1)
        await tool.end(1, "done")
        await tool.hook("SessionEnd")
    assert len(tree(tmp_path)) == 2


async def test_the_sum_of_a_thread_counts_where_a_version_tells_nothing_else(tmp_path: Path) -> None:
    def answers(tool: CodexSession, number: int, thread: str = ROOT) -> None:
        usage = {"input_tokens": 25 * number, "cached_input_tokens": 5 * number, "output_tokens": 10 * number}
        tool.write(thread, "event_msg", {"type": "token_count", "info": {"total_token_usage": usage}})

    async with guarding(tmp_path) as web:
        tool = CodexSession(web, tmp_path)
        answers(tool, 1)
        await tool.hook("Stop")
        answers(tool, 2)
        await tool.begin(1)
        answers(tool, 3, thread(1))
        tool.write(ROOT, "event_msg", {"type": "token_count", "info": None})
        await tool.hook("Stop")
    async with guarding(tmp_path) as web:
        await CodexSession(web, tmp_path).hook("SessionEnd")
    assert await total(tmp_path) == 30 * 5


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────

OTHERS = '{"hooks":   {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}}'


@pytest.mark.parametrize("before", [None, "", "{}", OTHERS, OTHERS + "\n\n"])
def test_undo_leaves_the_file_byte_for_byte_as_it_was(before: str | None, tmp_path: Path) -> None:
    path, folder = tmp_path / "codex" / "hooks.json", tmp_path / "guard"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before.encode())
    install(Codex(), path, folder)
    assert is_in(Codex(), path, folder)
    assert uninstall(Codex(), path, folder)
    assert (path.read_bytes().decode() if path.exists() else None) == before


def test_a_start_is_refused_also_if_the_script_is_gone(tmp_path: Path) -> None:
    path, folder = tmp_path / "hooks.json", tmp_path / "guard"
    install(Codex(), path, folder)
    (folder / "hook.sh").unlink()
    start, other = (group["hooks"][0]["command"] for group in json.loads(path.read_text())["hooks"]["PreToolUse"])
    done = subprocess.run(["sh", "-c", start], input=b"{}", capture_output=True, check=False)
    assert (done.returncode, b"hook.sh" in done.stderr) == (2, True), "Codex wants a reason, too"
    assert subprocess.run(["sh", "-c", other], input=b"{}", capture_output=True, check=False).returncode != 2


def test_the_hash_of_a_hook_is_that_of_codex() -> None:
    """As Codex 0.169.0 tells them in `hooks/list` of its app server."""
    hook = {"type": "command", "command": "/opt/hooks/dump.sh PreToolUse", "timeout": 10}
    hashes = list(hook_hashes({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    digest = "sha256:a559f06bcd09b20097b559bd76ee107a23c90c1a75358f3f0664b71498cdc2ef"
    assert hashes == [("/opt/hooks/dump.sh PreToolUse", "pre_tool_use:0:0", digest)]


def test_the_status_says_that_codex_does_not_trust_a_project(tmp_path: Path) -> None:
    home = tmp_path / "codex"
    variables = {"REMIT_GUARD": str(tmp_path / "guard"), "CODEX_HOME": str(home)}
    done = remit("guard", "codex", "--project", "--yes", folder=tmp_path, **variables)
    assert f"{tmp_path}/.codex/hooks.json" in done.stdout
    assert "The file belongs to the project" in done.stdout
    status = remit("guard", "status", folder=tmp_path, **variables)
    assert f"Codex leaves out all hooks of {tmp_path}, since you have not trusted it" in status.stdout
    home.mkdir()
    (home / "config.toml").write_text(f'[projects."{tmp_path.parent}"]\ntrust_level = "trusted"\n')
    assert "Codex leaves out 9 of 9 hooks" in remit("guard", "status", folder=tmp_path, **variables).stdout


def test_the_status_says_which_hooks_codex_leaves_out(tmp_path: Path) -> None:
    home = tmp_path / "codex"
    variables = {"REMIT_GUARD": str(tmp_path / "guard"), "CODEX_HOME": str(home)}
    home.mkdir()
    (home / "hooks.json").write_text(OTHERS)
    done = remit("guard", "codex", "--yes", folder=tmp_path, **variables)
    assert "Codex runs them only when you have trusted them" in done.stdout
    status = remit("guard", "status", folder=tmp_path, **variables)
    assert (status.returncode, f"Codex leaves out {len(HOOKS)} of {len(HOOKS)} hooks" in status.stdout) == (1, True)

    with (home / "config.toml").open("w") as settings:
        for _, place, digest in hook_hashes(json.loads((home / "hooks.json").read_text())):
            settings.write(f'[hooks.state."{home}/hooks.json:{place}"]\ntrusted_hash = "{digest}"\n')
    assert "leaves out" not in remit("guard", "status", folder=tmp_path, **variables).stdout
    settings = home / "config.toml"
    settings.write_text(settings.read_text().replace("trusted_hash", "enabled = false\ntrusted_hash", 1))
    assert "leaves out" not in remit("guard", "status", folder=tmp_path, **variables).stdout, "that is not ours"
    settings.write_text(settings.read_text().replace('stop:0:0"]', 'stop:0:0"]\nenabled = false', 1))
    assert "leaves out 1 of 9" in remit("guard", "status", folder=tmp_path, **variables).stdout
