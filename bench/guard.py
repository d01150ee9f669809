"""What a hook of the guard costs a coding tool, over a hook that does nothing."""

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from harness import Figure, at_most, main, sized
from remit_guard.daemon import running_guard
from remit_guard.install import install
from remit_guard.settings import GuardSettings
from remit_guard.tools.claude_code import ClaudeCode

ROUNDS = sized(60, 1)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    install(ClaudeCode(), folder / "settings.json", folder)
    nothing = folder / "nothing.sh"
    nothing.write_text("#!/bin/sh\ncat > /dev/null\n")
    nothing.chmod(0o700)
    number = iter(range(1_000_000))

    def event(name: str, **more: object) -> bytes:
        about = {"session_id": "s", "transcript_path": str(folder / "s.jsonl"), "cwd": "/", "hook_event_name": name}
        return json.dumps({**about, **more}).encode()

    def spawn() -> object:
        each = next(number)
        given = {"description": f"Task {each}", "prompt": "x" * 2_000, "subagent_type": "general-purpose"}
        message = {"role": "assistant", "id": f"m{each}", "content": [{"type": "tool_use", "id": f"t{each}"}]}
        with (folder / "s.jsonl").open("a") as transcript:
            transcript.write(json.dumps({"message": message}) + "\n")
        body = event("PreToolUse", tool_name="Agent", tool_use_id=f"t{each}", tool_input=given)
        done = subprocess.run([script, "claude-code", "spawn", "60"], input=body, check=True, capture_output=True)
        assert done.stdout == b"{}", done.stdout
        return done

    def meter() -> object:
        used = {"tool_name": "Bash", "tool_use_id": f"t{next(number)}", "tool_input": {"command": "ls"}}
        body = event("PreToolUse", **used)
        return subprocess.run([script, "claude-code", "tool", "60"], input=body, check=True, capture_output=True)

    # Gemini CLI tells the whole request before each call of its model: a long conversation, and what it read.
    long_request = event("BeforeModel", llm_request={"messages": [{"role": "user", "content": "x" * 5_000}] * 100})

    def request() -> object:
        return subprocess.run([script, "gemini-cli", "meter", "8"], input=long_request, check=True, capture_output=True)

    script = str(folder / "hook.sh")
    settings = GuardSettings(at_once=10_000, tokens=10**9, reserve=5_000)
    async with running_guard(folder, lambda _: settings, "ada"):
        runs: dict[str, Callable[[], object]] = {
            "nothing": lambda: subprocess.run([nothing], input=b"{}", check=True),
            "a tool is used": meter,
            "a sub-agent starts": spawn,
            "500 kB of a request are told": request,
        }
        took = await asyncio.to_thread(_medians, runs)
    # A goal of the tool's user, who waits for it: milliseconds, over what any hook costs.
    return [
        Figure(name=f"guard: {name}", value=(took[name] - took["nothing"]) * 1e3, unit="ms", bound=at_most(25))
        for name in runs
        if name != "nothing"
    ]


def _medians(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {name: median(each) for name, each in times.items()}


if __name__ == "__main__":
    main(measure)
