"""What it costs a device to seal, open and keep: against the ratchet and one commit alone, in the same run.

Seconds of the processor are compared where that is said, so that it hardly matters what else the machine does.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import vodozemac
from msgspec import msgpack
from msgspec.structs import replace

import relay
from harness import Figure, at_least, at_most, cpu_seconds, main, sized
from remit.ports.keys import HubKeys
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.identity import choose_prekey
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher
from remit_relay.e2e.streams import PIECE_BYTES
from remit_relay.session.repository import RunRepository
from remit_relay.session.run import Overlay, TimelineEntry

COUNT, ROUNDS = sized((200, 3), (4, 1))
BODY = os.urandom(2_048)
LARGE = os.urandom(sized(16, 1) * 1024 * 1024)
PICKLE = bytes(32)
AT_ONCE = 64


def device(folder: Path, name: str) -> MessageCipher:
    state = DeviceFile.open(folder / f"{name}.db", HubKeys(name.encode() * 8), "process")
    return MessageCipher(Device.create(state, name=name))


def introduced(folder: Path) -> tuple[MessageCipher, MessageCipher]:
    a, b = device(folder, "a"), device(folder, "b")
    for here, there in ((a, b), (b, a)):
        here.peers.pair(there.device.card)
        here.peers.allow(there.device.id)
    return a, b


def carry(sender: MessageCipher, receiver: MessageCipher) -> None:
    for each in sender.outbox(limit=10_000):
        receiver.open(sender.device.id, each.sealed)
        sender.sent(each.id)


def talking(folder: Path) -> tuple[MessageCipher, MessageCipher]:
    """Two devices with a session that both have used."""
    a, b = introduced(folder)
    keys = b.device.publish(1)
    a.begin(b.device.id, choose_prekey(b.device.card, keys.bundle, keys.one_time[0]))
    for _ in range(2):
        carry(a, b)
        b.acknowledge(a.device.id, always=True)
        carry(b, a)
    return a, b


def ratchets() -> tuple[vodozemac.Session, vodozemac.Session]:
    a, b = vodozemac.Account(), vodozemac.Account()
    b.generate_one_time_keys(1)
    (key,) = b.one_time_keys.values()
    one = a.create_outbound_session(b.curve25519_key, key)
    first = one.encrypt(b"-").to_pre_key()
    assert first is not None
    other, _ = b.create_inbound_session(a.curve25519_key, first)
    one.decrypt(other.encrypt(b"-"))
    return one, other


def seconds(work: Callable[[], object]) -> float:
    start = cpu_seconds()
    work()
    return cpu_seconds() - start


def commit(file: DeviceFile, ratchet: vodozemac.Session, *rows: bytes) -> None:
    with file.writing():
        file.execute("INSERT OR REPLACE INTO facts VALUES ('ratchet', ?)", ratchet.pickle(PICKLE))
        for row in rows:
            file.execute("INSERT INTO outbox (peer, sealed) VALUES (1, ?)", row)


def encrypt(ratchet: vodozemac.Session, file: DeviceFile) -> None:
    for _ in range(COUNT):
        commit(file, ratchet, BODY, ratchet.encrypt(BODY).to_parts()[1])


def decrypt(ratchet: vodozemac.Session, messages: list[vodozemac.AnyOlmMessage], file: DeviceFile) -> None:
    for message in messages:
        commit(file, ratchet, ratchet.decrypt(message))


def seal(sender: MessageCipher, to: str) -> None:
    for _ in range(COUNT):
        sender.seal(to, BODY)


def unseal(receiver: MessageCipher, sender: MessageCipher) -> None:
    for row in sender.outbox(limit=COUNT):
        receiver.open(sender.device.id, row.sealed)


# ── one after another ─────────────────────────────────────────────────────────────────────────────────────────────────


def sealing() -> list[Figure]:
    """2 KB, each in a commit of its own: the floor encrypts them, pickles the ratchet, and commits that and them."""
    best: dict[str, float] = dict.fromkeys(("seal", "open", "encrypt", "decrypt"), float("inf"))
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            a, b = talking(folder)
            bare = DeviceFile.open(folder / "bare.db", HubKeys(b"bare" * 8), "process")
            one, other = ratchets()
            works: dict[str, Callable[[], object]] = {
                "encrypt": partial(encrypt, one, bare),
                "seal": partial(seal, a, b.device.id),
                "decrypt": partial(decrypt, other, [one.encrypt(BODY) for _ in range(COUNT)], bare),
                "open": partial(unseal, b, a),
            }
            for work, do in works.items():
                best[work] = min(best[work], seconds(do))
            for each in (a.device.state, b.device.state, bare):
                each.close()
    us = {name: us_of_all / COUNT * 1e6 for name, us_of_all in best.items()}
    return [
        Figure(name="seal: 2 KB, processor", value=us["seal"], unit="µs", floor=us["encrypt"], bound=at_most(2.1)),
        Figure(name="seal: open 2 KB, processor", value=us["open"], unit="µs", floor=us["decrypt"], bound=at_most(3.8)),
    ]


def large() -> Figure:
    """16 MB sealed on one device and opened on the other; the floor is the ratchet, if it had to encrypt all of it."""
    taken = ratchet = float("inf")
    for _ in range(2):
        with tempfile.TemporaryDirectory() as name:
            a, b = talking(Path(name))

            def both(a: MessageCipher = a, b: MessageCipher = b) -> None:
                a.seal(b.device.id, LARGE)
                carry(a, b)

            taken = min(taken, seconds(both))
            a.device.state.close()
            b.device.state.close()
        one, other = ratchets()

        def bare(one: vodozemac.Session = one, other: vodozemac.Session = other) -> None:
            for start in range(0, len(LARGE), PIECE_BYTES):
                other.decrypt(one.encrypt(LARGE[start : start + PIECE_BYTES]))

        ratchet = min(ratchet, seconds(bare))
    size = len(LARGE) / 2**20
    return Figure(
        name="seal: 16 MB sealed, kept and opened, processor",
        value=size / taken,
        unit="MB/s",
        floor=size / ratchet,
        bound=at_least(0.8),
    )


# ── through a gateway ─────────────────────────────────────────────────────────────────────────────────────────────────


class Sealed:
    """One side of a gateway as a device is: what it sends is sealed and kept, what it gets is opened and kept."""

    def __init__(self, post: MessageDelivery, to: str) -> None:
        self._post = post
        self._to = to
        self._came = aiter(post)
        self._tasks: set[asyncio.Task[object]] = set()

    async def send(self, body: bytes) -> None:
        self._begin(self._post.send(self._to, body))

    async def receive(self) -> bytes:
        opened = await anext(self._came)
        self._begin(self._post.taken(opened))
        return opened.body

    def _begin(self, work: Awaitable[object]) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # pyright: ignore[reportAssignmentType]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@asynccontextmanager
async def sealed_sides(url: str, a: MessageCipher, b: MessageCipher) -> AsyncGenerator[tuple[Sealed, Sealed]]:
    links = [GatewayConnection(url, gateway=relay.NAME, key=each.device) for each in (a, b)]
    async with MessageDelivery(a, links[0]) as one, MessageDelivery(b, links[1]) as two:
        for each in links:  # a device is known once it has connected
            await each.publish()
        yield Sealed(one, b.device.id), Sealed(two, a.device.id)


class Counted:
    """A connection that counts its commits."""

    def __init__(self, state: DeviceFile) -> None:
        self._connection = state._connection  # pyright: ignore[reportPrivateUsage]
        self.commits = 0
        state._connection = self  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]

    def execute(self, statement: str, *bindings: object) -> object:
        self.commits += statement == "COMMIT"
        return self._connection.execute(statement, *bindings)  # pyright: ignore[reportArgumentType]

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


async def through(url: str, folder: Path) -> list[Figure]:
    """Sealed messages there and back; the floor sends the same bytes through the same gateway, and keeps nothing.

    Both sides of each are in this process, so what is printed is the processor's time for two devices.
    """
    a, b = introduced(folder)
    counts = [Counted(each.device.state) for each in (a, b)]
    figures: list[Figure] = []
    async with sealed_sides(url, a, b) as (x, y), relay.devices(url) as (p, q):
        await relay.round_trips(x, y, 8, 1)
        for at_once, count in ((1, sized(100, 4)), (AT_ONCE, sized(1_000, AT_ONCE))):
            best: dict[str, float] = dict.fromkeys(("sealed", "bare"), float("inf"))
            commits = float("inf")
            for _ in range(ROUNDS):
                for name, here, there in (("bare", p, q), ("sealed", x, y)):
                    before, start = sum(each.commits for each in counts), cpu_seconds()
                    await relay.round_trips(here, there, count, at_once)
                    best[name] = min(best[name], (cpu_seconds() - start) / count * 1e6)
                    if name == "sealed":
                        commits = min(commits, (sum(each.commits for each in counts) - before) / count)
            what = "one after another" if at_once == 1 else f"{at_once} at once"
            figures += [
                Figure(
                    name=f"seal: 2 KB there and back, {what}, processor",
                    value=best["sealed"],
                    unit="µs",
                    floor=best["bare"],
                ),
                Figure(
                    name=f"seal: commits for that, {what}",
                    value=commits,
                    unit="",
                    bound=at_most(6.5) if at_once == 1 else at_most(2),
                ),
            ]
    return figures


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def step() -> Figure:
    """What a step of a run writes that has 16 texts of 1 MB behind it; the floor is the run whole."""
    entries = tuple(
        TimelineEntry(
            role="local_agent", text=os.urandom(sized(500_000, 5_000)).hex(), turn=number, at_ms=number, id=f"m{number}"
        )
        for number in range(16)
    )
    run = Overlay(id="r", profile="p", device="d", session="s", objective="Review this API", timeline=entries)
    with tempfile.TemporaryDirectory() as name:
        file = DeviceFile.open(Path(name) / "device.db", HubKeys(b"k" * 32), "process")
        runs = RunRepository(file)
        runs.keep(run)
        written = Path(name) / "device.db-wal"
        file.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        sent = replace(run, timeline=(*entries[:-1], replace(entries[-1], sent_ms=1)))
        runs.keep(sent)
        value = written.stat().st_size
        file.close()
    return Figure(
        name="seal: a step of a run with 16 MB behind it writes",
        value=value / 2**10,
        unit="KB",
        floor=len(msgpack.encode(sent)) / 2**10,
        bound=at_most(0.01),
    )


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        process, url = relay.started("--serve-remit", f"{folder}/gateway")
        try:
            gone = asyncio.run(through(url, Path(folder)))
        finally:
            process.terminate()
            process.communicate()
    return [*sealing(), large(), *gone, step()]


if __name__ == "__main__":
    main(measure)
