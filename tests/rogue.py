"""A local agent that does not keep to the rules: `python rogue.py HOW [FILE]`; what it notes down goes into FILE."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOW = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)
SLEEPER = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]


def wait_for_ever() -> None:
    while True:
        signal.pause()


def say(line: str | bytes) -> None:
    sys.stdout.buffer.write(line if isinstance(line, bytes) else line.encode())
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def response(request: Any, **changed: Any) -> str:
    fields = {"type": "desktop.local_prompt.response", "request_id": request["request_id"], "status": "ok"}
    return json.dumps({**fields, "draft_message": f"{request['objective']}!", "reason": "", **changed})


def note(what: Any) -> None:
    with FILE.open("a") as file:
        file.write(f"{what}\n")


def complain(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def answer(request: Any, turn: int) -> None:
    match HOW:
        case "echo":
            say(response(request, draft_message=json.dumps(request)))
        case "environment":
            say(response(request, draft_message=json.dumps([dict(os.environ), os.getcwd(), os.getpid()])))
        case "killed":
            complain("Traceback\nMemoryError: \x1b[31mall\x1b[0m of it\a is gone, and the key is s3cret-key")
            os.kill(os.getpid(), signal.SIGKILL)
        case "silent" | "sleepless":
            note(os.getpid())
            wait_for_ever()
        case "flood":
            while True:
                sys.stdout.buffer.write(b"x" * 1_000_000)
        case "chatter":
            while True:
                sys.stdout.buffer.write(b"hm\n" * 300_000)
        case "long line":
            say(response(request, draft_message="x" * 5_000_000))
        case "complains":
            for _ in range(10):
                complain("it is cold\n" * 10_000)
            complain("y" * 1_000_000)
            say(response(request))
        case "tells":
            complain("x" * 990 + os.environ["API_KEY"] + "x" * 999 + "\n" + os.environ["API_KEY"])
            sys.exit(1)
        case "complains and dies":
            complain("it is cold\n" * 10_000 + "y" * 1_000_000)
            sys.exit(3)
        case "wrong id":
            say(response(request, request_id="something secret"))
            say(response(request, request_id=None))
            say(response(request, request_id={"a": [1]}))
            say(response(request))
        case "tires" | "tires and stays" if turn == 0:
            note(os.getpid())
            say(response(request))
        case "tires" | "tires and stays":
            wait_for_ever()
        case "only wrong ids" if turn == 0:
            say(response(request))
        case "only wrong ids":
            for _ in range(50):
                say(response(request, request_id="something secret"))
        case "twice":
            say(response(request, draft_message=f"first {turn}"))
            say(response(request, draft_message=f"second {turn}"))
        case "garbage":
            for line in ("", "Thinking about something secret…", "{", "[1, 2]", "null", "3", '{"type": "log"}', '"x"'):
                say(line)
            say('{"type": "desktop.local_prompt.request", "request_id": "r-0"}')
            say('{"a": ' * 2_000 + "1" + "}" * 2_000)
            say(b"\xff\xfe\x00something secret\x80")
            say(response(request).encode()[:-1] + b', "note": "\xff"}')
            say(response(request))
        case "stops reading":
            sys.stdin.close()
            os.close(0)
            note("closed")
            say(response(request))
            wait_for_ever()
        case "stops talking":
            os.close(1)
            wait_for_ever()
        case "one-off":
            say(response(request))
            sys.exit(0)
        case "answers and dies":
            say(response(request))
            complain("cannot go on")
            sys.exit(7)
        case "late":
            note("asked")
            while not FILE.with_suffix(".go").exists():
                time.sleep(0.01)
            say(response(request))
        case "family":
            # One in the group, one that has left it, and one whose parent is gone as well.
            note(os.getpid())
            note(subprocess.Popen(SLEEPER).pid)
            note(subprocess.Popen(SLEEPER, start_new_session=True).pid)
            away = f"import subprocess; print(subprocess.Popen({SLEEPER!r}, start_new_session=True, stdout=-3).pid)"
            note(subprocess.check_output([sys.executable, "-c", away]).decode().strip())
            note("all")
            say(response(request))
        case _:
            say(response(request, **json.loads(HOW)))


def main() -> None:
    match HOW:
        case "exits":
            sys.exit(0)
        case "early":
            say(response({"request_id": "r-1", "objective": "not asked"}))
        case "slow":
            time.sleep(1)
        case "deaf":
            wait_for_ever()
        case "sleepless" | "tires and stays":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case _:
            pass
    for turn, line in enumerate(sys.stdin):
        if HOW in ("early", "slow"):
            say(response(json.loads(line)))
        else:
            answer(json.loads(line), turn)


if __name__ == "__main__":
    main()
