"""An ACP agent made with the SDK: `python acp_agent.py [FILE]`. What it does stands in its objective, as JSON.

With `--resumes` it says that it can take up sessions of an earlier process, with `--forgets` it cannot after all.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema

FILE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.devnull)


def note(what: object) -> None:
    with FILE.open("a") as file:
        file.write(f"{what}\n")


class Agent:
    """Does one step after another: say, think, tool, ask, wait, read and the like."""

    _client: Any

    def __init__(self) -> None:
        self._cancelled = asyncio.Event()
        self._sessions = 0

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> Any:
        fs = client_capabilities.fs
        note(f"greeted {protocol_version} {fs.read_text_file} {fs.write_text_file} {client_capabilities.terminal}")
        resumes = schema.SessionCapabilities(resume=schema.SessionResumeCapabilities())
        can = schema.AgentCapabilities(session_capabilities=resumes if "--resumes" in sys.argv else None)
        return schema.InitializeResponse(protocol_version=protocol_version, agent_capabilities=can)

    async def new_session(self, cwd: str, **_: Any) -> Any:
        self._sessions += 1
        note(f"session {self._sessions} in {cwd}")
        return schema.NewSessionResponse(session_id=f"theirs-{self._sessions}")

    async def resume_session(self, session_id: str, cwd: str, **_: Any) -> Any:
        note(f"resumes {session_id} in {cwd}")
        if "--forgets" in sys.argv:
            raise acp.RequestError(-32_002, "Resource not found")
        return schema.ResumeSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        note(f"cancelled {session_id}")
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        self._cancelled.clear()
        text = prompt[0].text
        steps: list[Any] = json.loads(text.partition("objective:\n")[2].partition("\n")[0])
        reason: Any = "end_turn"
        usage, meta = None, None
        for name, value in steps:
            match name:
                case "say":
                    await self._tell(session_id, acp.update_agent_message_text(value))
                case "think":
                    await self._tell(session_id, acp.update_agent_thought_text(value))
                case "tool":
                    await self._tell(session_id, acp.start_tool_call(value, f"Tool {value}", kind="read"))
                    await self._tell(session_id, acp.update_tool_call(value, status="completed"))
                case "ask":
                    await self._tell(session_id, acp.update_agent_message_text(await self._ask(session_id, value)))
                case "read":
                    await self._tell(session_id, acp.update_agent_message_text(await self._fetch(session_id, value)))
                case "repeat":
                    await self._tell(session_id, acp.update_agent_message_text(f"{session_id}: {text}"))
                case "wait":
                    note("waits")
                    await self._cancelled.wait()
                    await self._tell(session_id, acp.update_agent_message_text("too late"))
                    reason = "cancelled"
                case "leave":
                    asyncio.get_running_loop().call_later(0.2, os._exit, 0)
                case "die":
                    os._exit(3)
                case "stop":
                    reason = value
                case "fail":
                    raise acp.RequestError(value, "the model is \x1b[1mnot there")
                case "usage":
                    usage = schema.Usage(**value)
                case "meta":
                    meta = value
                case _:
                    raise AssertionError(name)
        return schema.PromptResponse(stop_reason=reason, usage=usage, field_meta=meta)

    async def _tell(self, session: str, update: Any) -> None:
        await self._client.session_update(session, update)

    async def _ask(self, session: str, kinds: list[Any]) -> str:
        options = [schema.PermissionOption(option_id=f"id-{kind}", name=f"{kind}\a", kind=kind) for kind in kinds]
        tool = schema.ToolCallUpdate(
            tool_call_id="t-1", title="rm \x1b[31m-rf", kind="delete", raw_input={"path": "/\n"}
        )
        answer = await self._client.request_permission(session_id=session, tool_call=tool, options=options)
        outcome = answer.outcome
        note(f"answered {outcome.outcome}")
        return outcome.option_id if outcome.outcome == "selected" else outcome.outcome

    async def _fetch(self, session: str, path: str) -> str:
        try:
            return (await self._client.read_text_file(session_id=session, path=path)).content
        except acp.RequestError as error:
            return str(error)


if __name__ == "__main__":
    agent: Any = Agent()
    asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))
