"""CrewAI, with its checkpoints."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import Agent, BaseLLM, CheckpointConfig, Crew, Task
from crewai.tools import tool
from measuring import CALLS, COST, DEADLINE_S, TEXT, WORK_S, Ask, main

PACKAGES = ("crewai",)
REPEATS = 30
MEANS = {
    "loop": "a limit of nested events, by default",
    "budget": "none for tokens",
    "deadline": "`max_execution_time`",
    "crash": "`CheckpointConfig`",
    "personal_data": "none",
}


class Scripted(BaseLLM):
    """A model that does what a function says."""

    script: object = None

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages, tools=None, **options):
        content = self.script(messages)
        if isinstance(content, str):
            return content
        (name,) = content
        return [{"id": f"call-{time.time_ns()}", "type": "function", "function": {"name": name, "arguments": "{}"}}]


def agent_of(script, tools=(), **options) -> Agent:
    model = Scripted(model="script", script=script)
    return Agent(role="worker", goal="work", backstory="-", llm=model, tools=list(tools), **options)


def calls(name: str, times: int = 1):
    """Return a script that calls a tool so often, then answers."""
    left = iter(range(times))
    return lambda messages: "done" if next(left, None) is None else (name,)


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    agent = agent_of(lambda messages: "constant")
    await measured(lambda: agent.kickoff_async("x"))


async def loop(turn: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    @tool("ask")
    def ask() -> str:
        """Ask the other agent."""
        if failed:
            return "ended"
        try:
            turn()
            return agent_of(calls("ask"), [ask]).kickoff("Go").raw
        except Exception as error:  # noqa: BLE001 - CrewAI would tell it to the model
            failed.append(error)
            return "ended"

    await agent_of(calls("ask"), [ask]).kickoff_async("Go")
    for error in failed:
        raise error


async def budget(spend: Callable[[], None]) -> None:
    def script(messages) -> str:
        spend()
        worker.llm._track_token_usage_internal({"prompt_tokens": COST, "completion_tokens": 0, "total_tokens": COST})
        return "done"

    worker = agent_of(script)
    tasks = [Task(description=f"Part {number}", expected_output="-", agent=worker) for number in range(CALLS)]
    await Crew(agents=[worker], tasks=tasks).kickoff_async()


async def deadline(work: Ask) -> bool:
    loop = asyncio.get_running_loop()

    def script(messages) -> str:
        asyncio.run_coroutine_threadsafe(work(), loop).result(WORK_S * 3)
        return "done"

    agent = agent_of(script, max_execution_time=int(DEADLINE_S), max_retry_limit=0)
    task = Task(description="Go", expected_output="-", agent=agent)
    await asyncio.to_thread(Crew(agents=[agent], tasks=[task]).kickoff)
    return False


@contextmanager
def served(answer: Callable[[str], str]) -> Generator[None]:
    """Serve a model of OpenAI's protocol: a restored crew makes its models anew, by their names."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": answer(str(request["messages"][-1]["content"]))}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            body = {"id": "1", "object": "chat.completion", "created": 0, "model": "gpt-5-mini", "choices": [choice]}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1"}
    yield
    server.shutdown()


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    def answer(prompt: str) -> str:
        (ship if "Ship it" in prompt else pay)()
        return "done"

    def crew() -> Crew:
        seller = Agent(role="seller", goal="sell", backstory="-", llm="openai/gpt-5-mini")
        tasks = [Task(description=text, expected_output="-", agent=seller) for text in ("Pay it", "Ship it")]
        return Crew(agents=[seller], tasks=tasks, checkpoint=CheckpointConfig(location=str(folder / "kept")))

    kept = sorted((folder / "kept").rglob("*.json"))
    restored = CheckpointConfig(location=str(folder / "kept"), restore_from=kept[-1]) if kept else None
    with served(answer):
        await asyncio.to_thread(crew().kickoff, from_checkpoint=restored)


async def personal_data(seen: list[str]) -> str:
    def script(messages) -> str:
        seen.append(str(messages))
        return "Sent."

    return (await agent_of(script).kickoff_async(TEXT)).raw


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
