"""Commands of a tool's shell that start a coding tool outside of the tree."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_hooks import ClaudeCodeHooking, answered, guarding, outcome
from opencode_events import OpenCodeTelling
from remit_guard.settings import GuardSettings
from remit_guard.shell_commands import started_tool

STARTS = {
    "claude -p 'do it'": "claude",
    "claude": "claude",
    "opencode run go": "opencode",
    "codex exec --json 'x'": "codex",
    "gemini -p x": "gemini",
    "/usr/local/bin/claude --print x": "claude",
    "~/.local/bin/opencode run x": "opencode",
    "npx -y @anthropic-ai/claude-code@latest -p x": "claude",
    "bunx opencode-ai run x": "opencode",
    "pnpm dlx @openai/codex exec x": "codex",
}
BEFORE = (
    "cd /tmp && ",
    "true; ",
    "echo x | ",
    "sleep 1 & ",
    "A=1 B='2 3' ",
    "env -u HOME X=Y ",
    "sudo -u ada ",
    "timeout -k 5 60 ",
    "nohup ",
    "find . | xargs -n 1 ",
    "if ",
    "for i in 1 2; do ",
    "(",
    "x=$(",
    'echo "$(',
    "echo `",
    "# it's a remark\n",
    "cat <<EOF\nit's text\nEOF\n",
    "echo a > b\n",
    "echo \\\n && ",
)
LEAVES_ALONE = (
    "",
    "claude --version",
    "codex login",
    "opencode stats",
    "npx @google/gemini-cli --help",
    "npx prettier claude",
    "which claude",
    "echo claude -p",
    "git commit -m 'Use `claude -p` there'",
    "grep -r 'claude -p' .",
    "cat > claude",
    "cat notes 2>&1 >> claude",
    "cat claude.md # claude -p",
    "cat <<'EOF' > run.md\nclaude -p x\nEOF",
    "sudo cat claude",
    "bash run.sh",
    "python -m claude",
    "bash -c 'echo hi'",
    "sudo",
    "npx",
    "eval",
)


@given(st.sampled_from([*STARTS]), st.lists(st.sampled_from(BEFORE), max_size=2), st.integers(0, 3))
def test_a_session_is_seen_behind_whatever_stands_before_it(command: str, before: list[str], shells: int) -> None:
    text = "".join(before) + command
    for _ in range(shells):
        text = f"bash -lc {shlex.quote(text)}"
    assert started_tool(text) == STARTS[command]


@pytest.mark.parametrize("command", LEAVES_ALONE)
def test_what_starts_no_session_is_left_alone(command: str) -> None:
    assert started_tool(command) is None


@given(st.text(max_size=60).filter(lambda text: "<<" not in text))
def test_a_quoted_text_is_no_command(text: str) -> None:
    assert started_tool(f"echo {shlex.quote(text + ' claude -p x')}") is None


@given(
    st.lists(st.sampled_from(["claude", "-p", "'", '"', "$(", "`", ";", "<<A", "\n", "#", "&&", "sh -c", "\\", " "]))
)
def test_every_text_is_judged(parts: list[str]) -> None:
    assert started_tool("".join(parts)) in (None, "claude")
    assert started_tool(" ".join(parts)) in (None, "claude")


async def test_a_command_is_refused_with_a_sentence_in_both_tools(tmp_path: Path) -> None:
    async with guarding(tmp_path, GuardSettings(shell="deny")) as web:
        claude, opencode = ClaudeCodeHooking(web, tmp_path), OpenCodeTelling(web)
        denied = await claude.hook(
            "PreToolUse", tool_name="Bash", tool_use_id="t", tool_input={"command": "claude -p x"}
        )
        reason = denied["hookSpecificOutput"]["permissionDecisionReason"]
        assert reason.startswith("Remit: `claude` in a shell of claude-code is a session outside of this tree, with a")
        for given_ in ({"command": "ls"}, {"command": 1}, {}):
            assert await claude.hook("PreToolUse", tool_name="Bash", tool_input=given_) == {}
        assert await claude.hook("PreToolUse", tool_name="Read", tool_input={"command": "claude"}) == {}
        await opencode.tell("created", "top", directory="/work")
        assert (
            "`codex` in a shell of opencode" in (await opencode.use("top", "bash", command="codex exec x"))["refused"]
        )
        assert (await opencode.use("top", "bash", command="ls"))["refused"] == ""


@pytest.mark.parametrize("agreed", [True, False])
async def test_a_person_may_be_asked_for_each(tmp_path: Path, agreed: bool) -> None:
    async with guarding(tmp_path, GuardSettings(shell="ask", notify=False)) as web:
        tool = ClaudeCodeHooking(web, tmp_path)

        async def run() -> str | None:
            given_ = {"command": "gemini -p x"}
            answer = await tool.hook("PreToolUse", tool_name="Bash", tool_use_id="t", tool_input=given_)
            return str(answer) if answer else None

        reply = await answered(run(), tmp_path, "`gemini` in a shell of claude-code", agreed=agreed)
        assert (reply is None) == agreed
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).status == "success"


async def test_by_default_a_shell_may_start_what_it_wants(tmp_path: Path) -> None:
    async with guarding(tmp_path, GuardSettings()) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        given_ = {"command": "claude -p x"}
        assert await tool.hook("PreToolUse", tool_name="Bash", tool_use_id="t", tool_input=given_) == {}
