"""An ACP agent that does not keep to the protocol: `python acp_rogue.py HOW [FILE]`; it needs no SDK."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

HOW = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)


def wait_for_ever() -> None:
    while True:
        signal.pause()


def say(message: Any) -> None:
    line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def note(what: object) -> None:
    with FILE.open("a") as file:
        file.write(f"{what}\n")


def tell(text: str, session: str = "s", **update: Any) -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **update}
    say({"method": "session/update", "params": {"sessionId": session, "update": chunk}})


def script(number: int, text: str) -> None:
    """Say what stands in the objective, as JSON, word for word."""
    for name, value in json.loads(text.partition("objective:\n")[2].partition("\n")[0]):
        match name:
            case "update":
                say({"method": "session/update", "params": {"sessionId": "s", "update": value}})
            case "ask":
                options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
                params = {"sessionId": "s", "toolCall": value, "options": options}
                say({"id": "q", "method": "session/request_permission", "params": params})
                sys.stdin.readline()
            case _:
                say({"id": number, name: value})


def prompted(number: int, turn: int) -> None:
    ended = {"id": number, "result": {"stopReason": "end_turn"}}
    match HOW:
        case "dies":
            tell("Hello")
            sys.stderr.write("out of luck\n")
            sys.exit(5)
        case "deaf to cancel":
            wait_for_ever()
        case "late":
            tell(f"first {turn}")
            say(ended)
            tell(" and more")
            note("said")
        case "of another session":
            tell("not ", session="other")
            tell("right")
            say(ended)
        case "garbage":
            say(b"Loading something secret\xff")
            say(b"[1, 2]")
            say(b'{"a": ' * 2_000)
            say({"method": "session/update", "params": {"sessionId": 3}})
            say({"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "odd"}}})
            tell("", content={"type": "image", "data": "AA=="})
            tell("", content="text")
            say({"id": 999, "result": {}})
            say({"id": [1], "result": {}})
            say({"id": None, "error": "?"})
            say({"method": "made/up", "params": {}})
            tell("Hello")
            say(ended)
        case "asks for everything":
            methods = ("fs/read_text_file", "terminal/create", "elicitation/create", "made/up", "_made/up")
            for question, method in enumerate(methods):
                say({"id": f"q-{question}", "method": method, "params": {"sessionId": "s", "path": "/etc/passwd"}})
            answers = [json.loads(sys.stdin.readline()) for _ in methods]
            tell(json.dumps([[answer["id"], answer["error"]["code"]] for answer in answers]))
            say(ended)
        case "asks for ever":
            for question in range(30):
                tool = {"toolCallId": "t-1", "title": "x"}
                options = [{"optionId": "no", "name": "No", "kind": "reject_once"}]
                params = {"sessionId": "s", "toolCall": tool, "options": options}
                say({"id": question, "method": "session/request_permission", "params": params})
            while json.loads(sys.stdin.readline()).get("method") != "session/cancel":
                pass
            say({"id": number, "result": {"stopReason": "cancelled"}})
        case "flood":
            while True:
                tell("")
        case "endless line":
            while True:
                sys.stdout.buffer.write(b"x" * 1_000_000)
        case "no reason":
            say({"id": number, "error": "just because"})
        case "wrong result":
            say({"id": number, "result": {"stopReason": ["?"]}})
        case "dies later":
            tell("Hello")
            say(ended)
            sys.stderr.write("cannot go on\n")
            sys.exit(6)
        case "two answers":
            tell(f"answer {turn}")
            say(ended)
            say(ended)
        case _:
            raise AssertionError(HOW)


def main() -> None:
    if HOW == "mute":
        sys.stderr.write("fetching a lot\n")
        sys.stderr.flush()
        note(os.getpid())
        wait_for_ever()
    if HOW == "exits":
        sys.exit(4)
    if HOW == "deaf to cancel":
        note(os.getpid())
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    turn = 0
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize" if HOW == "misgreets":
                say({"id": message["id"], "result": {"protocolVersion": "one"}})
            case "initialize" if HOW == "declines":
                say({"id": message["id"], "error": {"code": -32_603, "message": "not \x1b[1mtoday"}})
            case "initialize":
                version = 2 if HOW == "newer" else 1
                methods = [{"id": "oauth", "name": "Log in with \x1b[1mGoogle", "description": "Run `x login`"}]
                say({"id": message["id"], "result": {"protocolVersion": version, "authMethods": methods}})
            case "session/new" if HOW == "stuck":
                wait_for_ever()
            case "session/new" if HOW == "locked":
                say({"id": message["id"], "error": {"code": -32_000, "message": "No key is set"}})
            case "session/new":
                say({"id": message["id"], "result": {"sessionId": "s"}})
            case "session/prompt" if HOW == "script":
                script(message["id"], message["params"]["prompt"][0]["text"])
            case "session/prompt":
                turn += 1
                prompted(message["id"], turn)
            case _:
                pass


if __name__ == "__main__":
    main()
