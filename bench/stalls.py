"""How long hostile requests keep a server from answering anyone else, whatever their shape.

Three figures. `turn`: the longest CPU time that one turn of the server's event loop took. `late`: the longest CPU time
that the whole server spent, its threads included, between the moment when something was given to its loop to do and the
moment when that was done; threads share the interpreter with the loop, and this shows how well. Both are measured in
the server, in CPU time, so that other load on the machine does not count. `wait`: the longest time between two answers
of `/healthz` to another process, less the longest of the idle server in the same run: what is felt outside, other load
included.
"""

import asyncio
import faulthandler
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from aiohttp import ClientSession, ClientTimeout

from harness import Figure, at_most, main, sized, start

TOKEN, HUB = "bench", "hub"
# A person does not notice it, and no peer times out.
MOST_MS = at_most(50)
MIB = 1024 * 1024
IDLE_S = sized(2.0, 0.1)
PATIENCE_S = 300.0
# Longer turns of the loop are told with where they were, if this is set.
EXPLAIN = "STALLS_EXPLAIN"
EXPLAINED_S = 0.02
# How often the loop is given something to do.
TICK_S = 0.002


# ── hostile requests ──────────────────────────────────────────────────────────────────────────────────────────────────

EMAILS = [f"u{number}@b{number % 97}.example" for number in range(sized(100_000, 1_000))]


def repeated(text: str, size: int = MIB) -> str:
    return (text * (size // len(text) + 1))[:size]


def nested(depth: int, wide: int) -> Any:
    value: Any = [1]
    for _ in range(depth):
        value = [value]
    return [value] * wide


TEXTS = {
    "addresses": "u1@b.co ",
    "numbers": "012 345 6789 ",
    "single digits": "1 ",
    "cards": "4111111111111111\n",
    "at signs": "@",
    "assignments": "password: hunter2x ",
    "keys": "sk-AKIA",
    "brackets": "[EMAIL:bcdfghjklmnp]",
    "zero-width": "4\u200b",
    "words": "Send 3 of them to Paris on 5 May 2025 and not to Rome. ",
    "umlauts": "Grüße an Jörg, 12 Straße 5. ",
}
"""What texts are made of."""


class Sent(NamedTuple):
    """One request."""

    body: bytes
    path: str = "/v1/delegations"
    accept: str = "application/json"
    token: str = TOKEN


def delegation_to(target: str = "echo", **fields: Any) -> Sent:
    return Sent(json.dumps({"target": target, "user": "u", **fields}).encode())


def inputs() -> Iterator[tuple[str, Any]]:
    yield "100,000 addresses", EMAILS
    yield "40,000 addresses", EMAILS[:40_000]
    yield "40,000 named addresses", {f"field{number}": mail for number, mail in enumerate(EMAILS[:40_000])}
    yield "40,000 addresses as names", dict.fromkeys(EMAILS[:40_000], 1)
    yield "9,000 addresses", EMAILS[:9_000]
    yield "45,000 harmless values", [f"1@{number}" for number in range(45_000)]
    yield "45,000 numbers", [4111111111111110 + number for number in range(45_000)]
    yield "45,000 names turned round", {f"{number:07d}"[::-1]: "x" for number in range(45_000)}
    yield "90 addresses", EMAILS[:90]
    yield "1 M numbers", [1] * 1_000_000
    yield "200,000 long numbers", [4111111111111111 + number for number in range(200_000)]
    yield "40,000 telephone numbers", {f"phone{number}": 4930123456 + number for number in range(40_000)}
    yield "300,000 names", {f"n{number}": 0 for number in range(300_000)}
    yield "500,000 empty objects", [{}] * 500_000
    yield "nested 60 deep", nested(58, 10_000)
    yield "names turned round", {f"{number:07d}"[::-1]: "x" for number in range(200_000)}
    yield "escapes", "\0" * 600_000
    for name, text in TEXTS.items():
        yield f"1 MiB of {name}", repeated(text)
        yield f"100 KiB of {name}", repeated(text, MIB // 10)
        yield f"2,000 texts of {name}", [repeated(text, 100)] * 2_000


def shapes() -> Iterator[tuple[str, Sent]]:
    for name, value in inputs():
        yield f"input: {name}", delegation_to(input=value)
        yield f"hand-off: {name}", delegation_to(objective="x", handoff={"data": {"value": value}})
        yield f"schema: {name}", delegation_to("count", capability="COUNT", input={"rows": value})
        yield f"orchestrator: {name}", delegation_to("orchestrator", input=value)
    for name, text in TEXTS.items():
        yield f"objective: {name}", delegation_to(objective=repeated(text, 100_000))
        yield f"orchestrator is asked: {name}", delegation_to("orchestrator", objective=repeated(text, 100_000))
        yield f"hints: {name}", delegation_to(objective="x", hints=[repeated(text, 100)] * 10_000)
        yield (
            f"conversation: {name}",
            delegation_to(objective="x", view={"messages": [{"role": "user", "text": repeated(text, 300)}] * 3_000}),
        )
    yield "rows that are wrong", delegation_to("count", capability="COUNT", input={"rows": ["aaaa"] * 45_000})
    yield (
        "a pattern that backtracks",
        delegation_to("count", capability="COUNT", input={"rows": ["a" * 40 + "!"] * 5_000}),
    )
    yield (
        "rows that are alike",
        delegation_to("count", capability="COUNT", input={"rows": [{"a": n} for n in range(20_000)]}),
    )
    yield "fields that nobody knows", Sent(json.dumps({f"objectiv{n}": 1 for n in range(45_000)}).encode())
    yield "long names that nobody knows", Sent(json.dumps({repeated(f"{n}", 10_000): 1 for n in range(300)}).encode())
    yield "a wrong field and much else", delegation_to(objective=5, input=EMAILS[:45_000])
    yield "hints that are none", delegation_to(objective="x", hints=[*["x"] * 45_000, 1])
    yield "a chain without end", delegation_to(objective="x", chain=[f"agent{number}" for number in range(45_000)])
    yield "tools without end", delegation_to(objective="x", tools=[f"tool{number}" for number in range(45_000)])
    yield "keywords", delegation_to(objective="x", context={"keywords": EMAILS[:9_000], "last_messages": 5})
    yield "notes", delegation_to(objective="x", handoff={"decisions": EMAILS[:9_000], "facts": EMAILS[:900]})
    doubled = b",".join([b'"a":1'] * 49_000)
    yield "the same name twice", Sent(b'{"target": "echo", "user": "u", "input": {%s}}' % doubled)
    yield "brackets", Sent(b"[" * 4 * MIB)
    yield "blanks", Sent(b" " * (4 * MIB - 60) + delegation_to(objective="x").body)
    yield "quotes", Sent(b'"' * 4 * MIB)
    yield "backslashes", Sent(b'{"target": "echo", "user": "u", "input": "%s"}' % (b"\\\\" * 2_000_000))
    for name in ANSWERS:
        yield f"answer: {name}", delegation_to("flood", objective=name)
        yield f"answer through another: {name}", delegation_to("boss", objective=name)
        yield f"answer as a stream: {name}", delegation_to("flood", objective=name)._replace(accept="text/event-stream")
        if f"{name}-other" in ANSWERS:
            yield f"two answers: {name}", delegation_to("editor", objective=f"{name} {name}-other")
    for name in TEXTS:
        request_of_text = delegation_to("talker", objective=f"text-{name}")
        yield f"words as they come: {name}", request_of_text._replace(accept="text/event-stream")
    for what, value in STRUCTURES.items():
        for name, body in foreign(value):
            yield f"dialect {name}: {what}", Sent(json.dumps(body).encode(), f"/dialects/{name}", token=HUB)
        part = {"text": value} if isinstance(value, str) else {"data": {"v": value}}
        message = {"role": "ROLE_USER", "messageId": f"m-{what}", "parts": [part]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        yield f"A2A: {what}", Sent(json.dumps(call).encode(), "/a2a/echo")
        arguments = {"agent": "echo", "task": "x", "input": value}
        params = {"name": "delegate_task", "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        yield f"MCP: {what}", Sent(json.dumps(call).encode(), "/mcp", "application/json, text/event-stream")


STRUCTURES: dict[str, Any] = {
    "9,000 addresses": EMAILS[:9_000],
    "45,000 numbers": [1] * 45_000,
    "40,000 names": {f"{number:07d}"[::-1]: 0 for number in range(40_000)},
    "a text": repeated("u1@b.co ", 300_000),
}


def foreign(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the body of a request in each dialect, with something in it."""
    fields = {"request_id": f"{len(str(value))}-{type(value).__name__}", "user_id": "u"}
    people = {"origin_employee": "boss", "target_employee": "echo", "parent_session_id": "s", "objective": "x"}
    bounds = {"max_tokens": 100_000, "max_depth": 2, "deadline_ms": 15_000}
    given: dict[str, Any] = {
        "input": value if isinstance(value, str) else "x",
        "handoff_data": {"v": value},
        "context_hints": [],
    }
    yield "employee", {**fields, **people, **given, "constraints": bounds}
    chain: dict[str, Any] = {
        "originalQuery": "x",
        "delegationChain": [],
        "delegationDepth": 0,
        "remainingTimeout": 5_000,
    }
    context = {**chain, "startTime": 1, "parentSpanId": "", "remit": {"user": "u"}, "findings": [value]}
    query = value if isinstance(value, str) else "x"
    yield "librarian/echo", {"query": query, "version": "1.0", "requestId": "r", "timestamp": 1, "context": context}
    agents = {"source_agent": "A", "target_agent": "echo", "capability_code": "ECHO", "request_id": "r"}
    yield "contract", {**agents, "inputs_json": {"v": value}, "context": {"user_id": "u", "v": value}}
    yield "subagent", {"agent_name": "echo", "task": query, "remit": {"user": "u"}, "context": {"v": value}}


def _answers() -> Iterator[tuple[str, Callable[[], Any]]]:
    from remit import Answer

    yield "addresses", lambda: EMAILS[:40_000]
    yield "addresses-other", lambda: EMAILS[1:40_001]
    yield "named", lambda: {mail: mail for mail in EMAILS[:20_000]}
    yield "named-other", lambda: {mail: mail + "x" for mail in EMAILS[:20_000]}
    yield "numbers", lambda: [1] * 500_000
    yield "numbers-other", lambda: [2] * 500_000
    yield "facts", lambda: Answer("x", new_facts=tuple(EMAILS[:20_000]), warnings=tuple(EMAILS[:20_000]))
    yield "facts-other", lambda: Answer("y", new_facts=tuple(EMAILS[1:20_001]))
    yield "table", lambda: [{"name": f"n{number}", "sum": number, "paid": True} for number in range(15_000)]
    yield "table-other", lambda: [{"name": f"n{number}", "sum": number + 1, "paid": False} for number in range(15_000)]
    for name, text in TEXTS.items():
        yield f"text-{name.replace(' ', '-')}", lambda text=text: repeated(text, 250_000)
        yield f"text-{name.replace(' ', '-')}-other", lambda text=text: repeated("x " + text, 250_000)


ANSWERS = dict(_answers())


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Turns:
    """The longest turn of the loop so far in CPU time of its thread, and how late it came to something in all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = 0.0
        self.latest = 0.0
        self._since = 0.0
        run = asyncio.Handle._run  # pyright: ignore[reportPrivateUsage]
        thread = threading.get_ident()

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                run(handle)
                return
            start = self._since = time.thread_time()
            run(handle)
            self._since = 0.0
            self.longest = max(self.longest, time.thread_time() - start)

        asyncio.Handle._run = timed  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        threading.Thread(target=self._tick, args=(loop,), daemon=True).start()
        if os.environ.get(EXPLAIN):
            threading.Thread(target=self._explain, args=(thread,), daemon=True).start()

    def take(self) -> str:
        longest, latest, self.longest, self.latest = self.longest, self.latest, 0.0, 0.0
        return f"{longest} {latest}"

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            time.sleep(TICK_S)
            done = threading.Event()
            if EXPLAIN in os.environ:
                faulthandler.dump_traceback_later(2 * EXPLAINED_S)
            loop.call_soon_threadsafe(self._came, time.process_time(), done)
            done.wait()

    def _came(self, given: float, done: threading.Event) -> None:
        self.latest = max(self.latest, time.process_time() - given)
        if EXPLAIN in os.environ:
            faulthandler.cancel_dump_traceback_later()
        done.set()

    def _explain(self, thread: int) -> None:
        while True:
            since = self._since
            time.sleep(EXPLAINED_S)
            if since and self._since == since:
                stack = traceback.extract_stack(sys._current_frames()[thread])[-9:]  # pyright: ignore[reportPrivateUsage]
                where = " < ".join(f"{Path(each.filename).stem}.{each.name}:{each.lineno}" for each in reversed(stack))
                print(where, file=sys.stderr, flush=True)


TABLE = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "uniqueItems": True,
            "items": {"type": ["string", "object", "integer"], "pattern": "^(a+)+$", "maxLength": 3},
        }
    },
    "additionalProperties": {"type": "integer"},
}


async def serve(folder: Path) -> None:
    from remit import Answer, Brief, Call, Capability, Hub, Limits
    from remit.policy.breaker import BreakerSettings
    from remit.policy.reception import Permission
    from remit.runtime.clock import LoopClock
    from remit_cli.config.rules import Rule, guard_of
    from remit_orchestrator import add_orchestrator
    from remit_server.a2a.routes import Exposure
    from remit_server.app import Api
    from remit_server.server import Server, freeze_loaded
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    turns = Turns(asyncio.get_running_loop())
    # More than the defaults, so that more is let through to what comes after.
    limits = Limits(root_tokens=2_000_000, context_tokens=1_000_000, delegation_tokens=1_000_000)
    mentions = guard_of([Rule(then="refuse", to="nobody", mentions=("zebra",))])
    never = BreakerSettings(failures_in_a_row=1_000_000, at_least_calls=1_000_000)
    hub = Hub(store=folder / "hub.db", limits=limits, guards=[mentions], breaker=never)

    @hub.agent("echo", capabilities=[Capability(code="ECHO", description="says it again", examples=("say it again",))])
    async def echo(brief: Brief) -> Any:
        return brief.text or brief.input

    @hub.agent("count", capabilities=[Capability(code="COUNT", input_schema=TABLE, result_schema=TABLE)])
    async def count(brief: Brief) -> Any:
        return brief.input

    @hub.agent("flood")
    async def flood(brief: Brief) -> Answer:
        shape = ANSWERS[brief.objective]()
        return shape if isinstance(shape, Answer) else Answer(shape)

    @hub.agent("talker")
    async def talker(brief: Brief) -> str:
        text = cast("str", ANSWERS[brief.objective.replace(" ", "-")]())
        for place in range(0, len(text), 4_000):
            brief.say(text[place : place + 4_000])
            await asyncio.sleep(0)
        return "done"

    @hub.agent("boss", may_call=["flood", "echo"])
    async def boss(brief: Brief) -> Any:
        return (await brief.delegate("flood", objective=brief.objective)).result

    @hub.agent("editor", may_call=["flood", "echo"])
    async def editor(brief: Brief) -> Answer:
        return Answer(calls=tuple(Call(target="flood", objective=each) for each in brief.objective.split()))

    assert all((echo, count, flood, talker, boss, editor))
    add_orchestrator(hub)
    async with hub:
        client = KnownSender(name="client", token=TOKEN, users=frozenset({"u"}), permissions=frozenset(Permission))
        peer = KnownSender(name="north", token=HUB, is_hub=True)
        door = Authenticator([client, peer], wall_ms=LoopClock().wall_ms)
        async with Server(Api(hub, door, a2a=Exposure()), port=0) as server:
            freeze_loaded()  # as a process does that serves nothing else
            print(server.address, flush=True)
            while (await asyncio.to_thread(sys.stdin.readline)).strip():
                print(turns.take(), flush=True)


# ── whoever else wants something ──────────────────────────────────────────────────────────────────────────────────────


def ping(address: str) -> None:
    """Ask for `/healthz` again and again, and tell the longest time between two answers whenever that is wanted."""
    host, port = address.removeprefix("http://").split(":")
    line = f"GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
    longest = 0.0
    wanted = threading.Event()
    threading.Thread(target=lambda: [wanted.set() for _ in sys.stdin], daemon=True).start()
    with socket.create_connection((host, int(port))) as connection:
        last = time.perf_counter()
        while True:
            connection.sendall(line)
            if b"alive" not in connection.recv(4_096):
                raise SystemExit("the server does not say that it is alive")
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            if wanted.is_set():
                wanted.clear()
                print(longest, flush=True)
                longest, last = 0.0, time.perf_counter()
            time.sleep(0.001)


class Process:
    """Another process of this file, and what it says."""

    def __init__(self, *arguments: str) -> None:
        self.process = start(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self) -> list[float]:
        """Return the longest since it was asked last, in milliseconds."""
        assert self.process.stdin is not None
        self.process.stdin.write("longest\n")
        self.process.stdin.flush()
        return [float(each) * 1e3 for each in self.line().split()]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


# ── the measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def attack(server: Process, pinger: Process, address: str, only: str) -> list[float]:
    """Send each shape, and return the longest turn, the latest, and the longest wait."""
    most = [0.0, 0.0, 0.0]
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    async with ClientSession(address, headers=headers, timeout=ClientTimeout(PATIENCE_S)) as session:
        for name, sent in islice(shapes(), sized(None, 8)):
            if only not in name:
                continue
            server.ask()
            pinger.ask()
            proof = {"accept": sent.accept, "authorization": f"Bearer {sent.token}"}
            if sent.path == "/mcp":
                proof["mcp-session-id"] = await greeted(session, proof)
            async with session.post(sent.path, data=sent.body, headers=proof) as reply:
                status, answer = reply.status, await reply.read()
            took = [*server.ask(), *pinger.ask()]
            if only or os.environ.get(EXPLAIN):
                words = answer[:90] if status >= 300 or sent.path != "/v1/delegations" else b""
                turn, late, wait = took
                print(f"turn {turn:5.0f} late {late:5.0f} wait {wait:5.0f}  {status} {name} {words}", file=sys.stderr)
            most = [max(pair) for pair in zip(most, took, strict=True)]
    return most


async def greeted(session: ClientSession, proof: dict[str, str]) -> str:
    """Begin a session of MCP, and return its id."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    async with session.post("/mcp", json=greeting, headers=proof) as reply:
        return reply.headers.get("mcp-session-id", "")


def measure(only: str = "") -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        server = Process("--serve", folder)
        address = server.line()
        pinger = Process("--ping", address)
        try:
            pinger.ask()
            time.sleep(IDLE_S)
            (idle,) = pinger.ask()
            turn, late, wait = asyncio.run(attack(server, pinger, address, only))
        finally:
            pinger.end()
            server.end()
    return [
        Figure(name="stalls: longest turn of the loop", value=turn, unit="ms", bound=MOST_MS),
        Figure(name="stalls: longest until the loop turns", value=late, unit="ms", bound=MOST_MS),
        Figure(name="stalls: longest wait for /healthz", value=max(wait - idle, 0), unit="ms", bound=MOST_MS),
        Figure(name="stalls: longest wait while idle", value=idle, unit="ms"),
    ]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve(Path(sys.argv[-1])))
    elif "--ping" in sys.argv:
        ping(sys.argv[-1])
    elif "--only" in sys.argv:
        print(measure(sys.argv[-1]))
    else:
        main(measure)
