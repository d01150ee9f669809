"""How long two people wait: a gateway, two commands that pair two new devices, and the first message between them.

Seconds of wall time, with real processes on this machine. Starting Python is most of it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Figure, main, start

REMIT = str(Path(sys.executable).with_name("remit"))
AGENT = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    done = asked["turn_index"] > 1
    answer = {"type": "desktop.local_prompt.response", "request_id": asked["request_id"], "status": "ok"}
    print(json.dumps(answer | {"draft_message": "hello", "confidence": 0.9, "done": done}), flush=True)
"""
ANNA = '[profiles.mine]\nrun = ["{python}", "agent.py"]\nmode = "full_auto"\n'
BOB = '[agents.helper]\nrun = "code_of_bob:helper"\n[shared.helper]\n'
CODE = 'async def helper(brief):\n    return f"heard: {brief.text}"\n'


def measure() -> list[Figure]:
    """Pair, say something, and return how long each took."""
    with tempfile.TemporaryDirectory() as folder:
        annas, bobs = Path(folder, "annas"), Path(folder, "bobs")
        for each, files in (
            (annas, {"remit.toml": ANNA.format(python=sys.executable), "agent.py": AGENT}),
            (bobs, {"remit.toml": BOB, "code_of_bob.py": CODE}),
        ):
            each.mkdir()
            for name, text in files.items():
                (each / name).write_text(text)
        relay = _started("relay", "--json", "--port", "0", folder=Path(folder))
        sharing: subprocess.Popen[str] | None = None
        try:
            gateway = json.loads(_line(relay))["address"]
            begin = time.monotonic()
            host = _started("pair", "--gateway", gateway, "--name", "bob", "--yes", folder=bobs)
            code = _line(host).strip()
            _run("pair", code, "--gateway", gateway, "--name", "anna", "--yes", folder=annas)
            host.wait()
            paired = time.monotonic()
            sharing = _started("share", "--json", folder=bobs)
            _line(sharing)
            _run("chat", "mine", "bob", "--objective", "say hello", "--jsonl", folder=annas)
            answered = time.monotonic()
        finally:
            for process in (relay, sharing):
                if process is not None:
                    process.terminate()
                    process.wait()
    times = {"two devices": paired - begin, "and a first conversation": answered - begin}
    return [Figure(name=f"pair: {what}", value=seconds, unit="s") for what, seconds in times.items()]


def _started(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    return start(
        [REMIT, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
    )


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _run(*arguments: str, folder: Path) -> None:
    process = start([REMIT, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)


if __name__ == "__main__":
    main(measure)
