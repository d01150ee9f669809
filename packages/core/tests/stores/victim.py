"""Works on a store until it is killed: a process for the tests, told on stdin what to do and reporting on stdout.

Each line of stdin is one JSON object with `path`, `durability`, `seed`, `again` (names to submit once more) and `new`
(how many others). The process forks, so that the next victim need not import anything, and prints the child's pid. A
child prints one line when it begins to execute a request, and one when its answer, the name so many times, is
acknowledged. Some requests wait for a person first: it prints one line when request, question and secrets are
acknowledged, one when the person's answer is, and one when it is that the request begins in its new form.
"""

import asyncio
import importlib
import json
import os
import random
import sys

from msgspec.structs import replace

from remit.ports import AcceptedRequest, Decision, SealedValue
from remit.protocol.envelope import Request
from remit.protocol.records import Kind
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import LONG_MS, a_question, a_request, a_response, progress

CALLERS = 16


def edited(request: Request) -> Request:
    """Return what the person makes of the request."""
    return replace(request, objective=f"Sort the receipts of {request.id}")


def decision(name: str) -> Decision:
    """Return what the person says."""
    return Decision(agreed=True, by=name, edits={"objective": edited(a_request(name)).objective})


def secrets(name: str) -> list[SealedValue]:
    """Return what is sealed for the run."""
    return [SealedValue(f"<NAME_{number}>", f"{name} {number}".encode(), bool(number % 2)) for number in range(3)]


def tell(*words: object) -> None:
    # One write below PIPE_BUF arrives whole or not at all.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def call(store: SqliteStore, name: str, chance: random.Random) -> None:
    request = a_request(name)
    waiting = chance.random() < 0.3
    if waiting:
        store.seal(request.run, secrets(name))
    submitted = await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS, waiting=waiting)
    if not isinstance(submitted, AcceptedRequest):
        return
    if waiting:
        await ask(store, request, name)
    tell("executing", name)
    for step in range(chance.randrange(6)):
        text = "x" * min(int(chance.paretovariate(0.5)), 9_000)
        store.append(Kind.PROGRESS, step, request.run, "session", progress(text))
        store.journal(request.run, 1, f"step {step}", chance.randbytes(chance.randrange(2_000)))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    times = chance.randrange(1_000)
    if await store.finish(request.run, 1, a_response(request, name * times), 1):
        tell("answered", name, times)


async def ask(store: SqliteStore, request: Request, name: str) -> None:
    question = a_question(name, run=name)
    await store.put(question)
    tell("waiting", name)
    assert await store.decide(question.id, decision(name))
    tell("decided", name)
    assert await store.begin(request.run, 1, edited(request))
    tell("begun", name)


async def work(path: str, durability: str, seed: int, again: list[str], new: int) -> None:
    chance = random.Random(seed)
    store = SqliteStore(path, durability="power" if durability == "power" else "process", checkpoint_every=50)
    await store.open()
    names = [*again, *(f"{seed}-{number}" for number in range(new))]
    names.reverse()

    async def caller() -> None:
        while names:
            await call(store, names.pop(), chance)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())
    await store.close()


def main() -> None:
    # Imported here and not when a child first signs, which would spend most of its short life on it.
    importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            asyncio.run(work(**task))
            os._exit(0)
        tell("pid", pid)
        os.waitpid(pid, 0)
        tell("gone")


if __name__ == "__main__":
    main()
