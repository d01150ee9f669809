"""ContextForge, an agent gateway: agents are services behind it, and it forwards A2A requests to them."""

import asyncio
import atexit
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from measuring import CALLS, DEADLINE_S, TEXT, Ask, NotEndedError, main

PACKAGES = ("mcp-contextforge-gateway",)
REPEATS = 50
MEANS = {
    "loop": "none",
    "budget": "none for tokens",
    "deadline": "`HTTPX_READ_TIMEOUT`, for all requests",
    "crash": "none: it keeps no run",
    "personal_data": "a plugin for tools and prompts, none for A2A agents",
}
# Its database is made anew, which takes most of a minute.
STARTS_S = 300
LOOPS_S = 30
KEY = "a-key-of-more-than-thirty-two-characters-0123456789"

NUMBERS = itertools.count()

Answer = Callable[[str], str]


def served(answer: Answer) -> str:
    """Serve an A2A agent from threads of this process, and return its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = answer(request["params"]["message"]["parts"][0]["text"])
            message = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": text}]}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"message": message}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


class Gateway:
    """A gateway that runs, and a client that may do everything there."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}
        self.client = httpx.AsyncClient(base_url=url, headers=self._headers, timeout=60)

    async def add(self, answer: Answer) -> str:
        """Add an agent, and return its name there."""
        name = f"agent-{next(NUMBERS)}"
        agent = {"name": name, "endpoint_url": served(answer), "agent_type": "generic", "visibility": "public"}
        (await self.client.post("/a2a", json={"agent": agent, "visibility": "public"})).raise_for_status()
        return name

    async def ask(self, name: str, text: str = "x") -> str:
        call = {"parameters": {"query": text}, "interaction_type": "query"}
        return (await self.client.post(f"/a2a/{name}/invoke", json=call)).raise_for_status().text

    def ask_blocking(self, name: str) -> str:
        """Ask from an agent, which runs in a thread."""
        call = {"parameters": {"query": "x"}, "interaction_type": "query"}
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=60) as client:
            return client.post(f"/a2a/{name}/invoke", json=call).raise_for_status().text


@cache
def started() -> tuple[str, str, int]:
    """Start the gateway once for all scenarios; return its address, its administrator's token and its process."""
    folder = tempfile.TemporaryDirectory()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    settings = {
        "DATABASE_URL": f"sqlite:///{folder.name}/gateway.db",
        "JWT_SECRET_KEY": KEY,
        "AUTH_ENCRYPTION_SECRET": KEY,
        "BASIC_AUTH_PASSWORD": KEY,
        "PLATFORM_ADMIN_PASSWORD": f"{KEY}-A!",
        "CACHE_TYPE": "memory",
        "LOG_LEVEL": "ERROR",
        "MCPGATEWAY_A2A_ENABLED": "true",
        "HTTPX_READ_TIMEOUT": str(DEADLINE_S),
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
    }
    options: dict[str, Any] = {"env": {**os.environ, **settings}, "cwd": folder.name}
    make_token = ["-m", "mcpgateway.utils.create_jwt_token", "--username", "admin@example.com", "--admin"]
    command = [sys.executable, *make_token, "--exp", "600", "--secret", KEY]
    token = subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout.split()[-1]
    command = [str(Path(sys.executable).parent / "mcpgateway"), "--host", "127.0.0.1", "--port", port]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)

    def end() -> None:
        process.terminate()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return f"http://127.0.0.1:{port}", token, process.pid


def memory_mb() -> float:
    """Return the memory of the gateway at its highest, and not that of its client."""
    status = Path(f"/proc/{started()[2]}/status").read_text(encoding="ascii")
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)


@asynccontextmanager
async def running() -> AsyncGenerator[Gateway]:
    url, token, _ = started()
    gateway = Gateway(url, token)
    async with gateway.client, asyncio.timeout(STARTS_S) as waiting:
        while True:
            try:
                (await gateway.client.get("/health")).raise_for_status()
                break
            except httpx.HTTPError:
                await asyncio.sleep(0.5)
        waiting.reschedule(None)
        yield gateway


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    async with running() as gateway:
        name = await gateway.add(lambda text: "constant")
        await measured(lambda: gateway.ask(name))


async def loop(turn: Callable[[], None]) -> None:
    ended = asyncio.Event()
    asyncio_loop = asyncio.get_running_loop()

    def ask(text: str) -> str:
        try:
            turn()
        except NotEndedError:
            asyncio_loop.call_soon_threadsafe(ended.set)
            return "ended"
        return gateway.ask_blocking(name)

    async with running() as gateway:
        name = await gateway.add(ask)
        try:
            await gateway.ask(name)
        except httpx.HTTPError:
            with contextlib.suppress(TimeoutError):  # the caller has an error; does the loop go on?
                await asyncio.wait_for(ended.wait(), LOOPS_S)
            if not ended.is_set():
                raise
        raise NotEndedError


async def budget(spend: Callable[[], None]) -> None:
    def work(text: str) -> str:
        spend()
        return "done"

    async with running() as gateway:
        name = await gateway.add(work)
        for _ in range(CALLS):
            await gateway.ask(name)


async def deadline(work: Ask) -> bool:
    asyncio_loop = asyncio.get_running_loop()

    def slow(text: str) -> str:
        return str(asyncio.run_coroutine_threadsafe(work(), asyncio_loop).result())

    async with running() as gateway:
        await gateway.ask(await gateway.add(slow))
    return False


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    pay()  # whoever asks has to remember what was done
    ship()


async def personal_data(seen: list[str]) -> str:
    def clerk(text: str) -> str:
        seen.append(text)
        return "Sent."

    async with running() as gateway:
        return await gateway.ask(await gateway.add(clerk), TEXT)


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
