"""The agent of `acp_agent.py` without the SDK, which takes a second to import: `python acp_quick.py [FILE]`.

It does the same steps, one at a time: what it is sent meanwhile is read when it waits or has answered.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.devnull)


class Refusal(Exception):
    """What is answered in the place of a result: a code and a message."""


def note(what: object) -> None:
    with FILE.open("a") as file:
        file.write(f"{what}\n")


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Agent:
    """Answers what it is asked, and does the steps of a prompt."""

    def __init__(self) -> None:
        self._cancelled = False
        self._leaves = False
        self._sessions = 0
        self._asked = 0

    def serve(self) -> None:
        while True:
            message = self._next_message()
            if "method" in message and "id" in message:
                self._answer(message["id"], message["method"], message.get("params") or {})
                if self._leaves:
                    return

    def _next_message(self) -> dict[str, Any]:
        """Return the next message, once it is known whether it cancels the turn."""
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        message: dict[str, Any] = json.loads(line)
        if message.get("method") == "session/cancel":
            note(f"cancelled {message['params']['sessionId']}")
            self._cancelled = True
        return message

    def _answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        try:
            say(id=number, result=self._result(method, params))
        except Refusal as error:
            code, text = error.args
            say(id=number, error={"code": code, "message": text})

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                # That nothing more than this is offered is looked at with the SDK.
                note(f"greeted {params['protocolVersion']}")
                able: dict[str, Any] = {"sessionCapabilities": {"resume": {}}} if "--resumes" in sys.argv else {}
                return {"protocolVersion": params["protocolVersion"], "agentCapabilities": able}
            case "session/new":
                self._sessions += 1
                note(f"session {self._sessions} in {params['cwd']}")
                return {"sessionId": f"theirs-{self._sessions}"}
            case "session/resume":
                note(f"resumes {params['sessionId']} in {params['cwd']}")
                if "--forgets" in sys.argv:
                    raise Refusal(-32_002, "Resource not found")
                return {}
            case "session/prompt":
                return self._prompt(params["sessionId"], params["prompt"][0]["text"])
            case _:
                raise Refusal(-32_601, "Method not found")

    def _prompt(self, session: str, text: str) -> dict[str, Any]:
        self._cancelled = False
        result: dict[str, Any] = {"stopReason": "end_turn"}
        for name, value in json.loads(text.partition("objective:\n")[2].partition("\n")[0]):
            match name:
                case "say":
                    self._tell(session, value)
                case "think":
                    self._tell(session, value, "agent_thought_chunk")
                case "tool":
                    call = {"toolCallId": value, "title": f"Tool {value}", "kind": "read"}
                    self._update(session, {"sessionUpdate": "tool_call", **call})
                    done = {"toolCallId": value, "status": "completed"}
                    self._update(session, {"sessionUpdate": "tool_call_update", **done})
                case "ask":
                    self._tell(session, self._ask(session, value))
                case "repeat":
                    self._tell(session, f"{session}: {text}")
                case "wait":
                    note("waits")
                    while not self._cancelled:
                        self._next_message()
                    self._tell(session, "too late")
                    result["stopReason"] = "cancelled"
                case "leave":
                    self._leaves = True
                case "stop":
                    result["stopReason"] = value
                case "fail":
                    raise Refusal(value, "the model is \x1b[1mnot there")
                case _:
                    raise AssertionError(name)
        return result

    def _tell(self, session: str, text: str, kind: str = "agent_message_chunk") -> None:
        self._update(session, {"sessionUpdate": kind, "content": {"type": "text", "text": text}})

    def _update(self, session: str, update: dict[str, Any]) -> None:
        say(method="session/update", params={"sessionId": session, "update": update})

    def _ask(self, session: str, kinds: list[str]) -> str:
        self._asked += 1
        options = [{"optionId": f"id-{kind}", "name": f"{kind}\a", "kind": kind} for kind in kinds]
        tool = {"toolCallId": "t-1", "title": "rm \x1b[31m-rf", "kind": "delete", "rawInput": {"path": "/\n"}}
        params = {"sessionId": session, "toolCall": tool, "options": options}
        say(id=self._asked, method="session/request_permission", params=params)
        answer = self._next_message()
        while "result" not in answer:
            answer = self._next_message()
        outcome = answer["result"]["outcome"]
        note(f"answered {outcome['outcome']}")
        return outcome["optionId"] if outcome["outcome"] == "selected" else outcome["outcome"]


if __name__ == "__main__":
    Agent().serve()
