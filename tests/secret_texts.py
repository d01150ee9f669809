"""Stores with texts of two users that must not be readable without their keys."""

import time

from msgspec.structs import replace

from remit.ports import AcceptedRequest, Store
from remit.protocol.codec import encode
from remit.protocol.envelope import Note
from remit.protocol.records import Kind
from remit_testing.samples import LONG_MS, a_question, a_request, a_response, progress


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def ask(store: Store, name: str, user: str) -> None:
    """Have a run of a user, with a text of every kind."""
    request = a_request(name)
    request = replace(
        request, objective=f"secret of {user}", session=f"s-{user}", remit=replace(request.remit, user=user)
    )
    assert isinstance(await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)
    store.append(Kind.PROGRESS, now_ms(), request.run, f"s-{user}", progress(f"secret step of {user}"))
    await store.put(a_question(name, run=request.run, text=f"secret question to {user}"))
    store.remember(user, request.run, (f"secret fact of {user}",))
    store.note(f"s-{user}", [Note(kind="decision", text=f"secret note of {user}", by="prime")])
    response = replace(a_response(request, f"secret answer to {user}"), session=f"s-{user}")
    await store.finish(request.run, 1, response, now_ms())


async def write(store: Store) -> None:
    """Have three runs of each user, which are over and forgotten as outcomes."""
    await store.open()
    for number in range(3):
        await ask(store, f"a{number}", "ann")
        await ask(store, f"b{number}", "bob")
    await store.sweep(max_attempts=3, keep_ms=0)
    await store.close()


async def texts_of(store: Store) -> str:
    """Return everything that a store has to say, which is opened for it."""
    await store.open()
    try:
        records = " ".join(encode(record).decode() for record in await store.records())
        return f"{records} {await store.facts('ann')} {await store.facts('bob')} {await store.notes('s-ann')}"
    finally:
        await store.close()
