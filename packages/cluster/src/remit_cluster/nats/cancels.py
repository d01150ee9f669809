"""Cancels runs over the bus, beside the store: whichever is there reaches the hub of a run.

An order is sealed with the key of the store, so that only its hubs and its commands can cancel a run.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Protocol

import msgspec
from nats.aio.msg import Msg

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.protocol.errors import Code, fault
from remit.runtime.clock import end_tasks
from remit.runtime.shared_requests import CancelOrder, SharedRequests
from remit_cluster.nats.connection import LOST, BusSettings, Connection, in_words
from remit_cluster.nats.proofs import BusProofs
from remit_cluster.nats.subjects import Subjects, encode

log = logging.getLogger("remit")

# A hub that has the run replies at once.
REPLY_S = 1.0
# How often the store is tried again while it is away.
AGAIN_S = 1.0

_PLACE = "cancel"
_read_order = msgspec.json.Decoder(CancelOrder).decode


class OrderSeal(Protocol):
    """Encrypts for those who have the key of the store: see `ports/keys.py`."""

    def lock(self, value: bytes, bound_to: str) -> bytes: ...

    def unlock(self, locked: bytes, bound_to: str) -> bytes | None: ...


class BusCancels:
    """Sends the orders of a hub, and obeys those of others."""

    def __init__(self, connection: Connection, subjects: Subjects, proofs: BusProofs, shared: SharedRequests) -> None:
        self._connection = connection
        self._subjects = subjects
        self._proofs = proofs
        self._shared = shared
        self._tasks: set[asyncio.Task[bool]] = set()

    async def subscribe(self, agents: frozenset[str]) -> None:
        """Hear of runs to cancel: any of this hub, and requests for *agents*, which it hosts."""
        for subject in (self._subjects.cancel(), *map(self._subjects.cancel, agents)):
            await self._connection.subscribe(subject, self._receive_order)

    async def close(self) -> None:
        """Stop telling the store."""
        await end_tasks(self._tasks)

    async def announce(self, order: CancelOrder) -> str | None:
        """Tell all hubs of a run to cancel, and return its id if one of them has it."""
        subject = self._subjects.cancel()
        payload = self._proofs.sign(subject, _sealed(self._shared.keys, order))
        return await _ask(self._connection, subject, payload, self._proofs)

    async def cancel_call(self, agent: str, run: str, user: str) -> bool:
        """Stop a request of a *user* that nobody waits for any more; True: no host had taken it.

        Its host hears of it over the bus, and the store is told as soon as it can be.
        """
        return await self._cancel(self._subjects.cancel(agent), run, user)

    async def _cancel(self, subject: str, run: str, user: str) -> bool:
        why = "its caller was stopped"
        order = CancelOrder(run, self._shared.hub, why)
        telling = self._start(self._tell_store(run, user, why))
        await self._connection.publish(subject, self._proofs.sign(subject, _sealed(self._shared.keys, order)))
        return await asyncio.shield(telling)

    def _start(self, work: Coroutine[None, None, bool]) -> "asyncio.Task[bool]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tell_store(self, run: str, user: str, why: str) -> bool:
        while True:
            try:
                if await self._shared.withdraw(run, fault(Code.CANCELLED, f"cancelled: {why}")):
                    return True
                await self._shared.cancel(run, why)
                # If its hub is dead, no other has the run before its lease ends; what it handed over goes on meanwhile.
                for part in await self._shared.handed_over(run, user):
                    self._start(self._cancel(self._subjects.cancel(), part, user))
                return False
            except StoreError as error:
                log.debug("the store is not told yet to cancel %s: %s", run, error.fault.message)
            await asyncio.sleep(AGAIN_S)

    async def _receive_order(self, message: Msg) -> None:
        proven = self._proofs.read(message.subject, message.data, "an order to cancel a run")
        raw = None if proven is None else self._shared.keys.unlock(proven.body, _PLACE)
        if raw is None:
            return
        try:
            run = self._shared.obey(_read_order(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid order to cancel a run")
            return
        if run is not None and message.reply:
            await self._connection.publish(message.reply, self._proofs.sign(message.reply, run.encode()))


async def cancel_over_bus(settings: BusSettings, team: str, keys: HubKeys, order: CancelOrder) -> str | None:
    """Cancel a run of a team from outside its hubs; return its id, or None if no hub that is reached has it."""
    connection = Connection(settings, f"{team} cancel")
    proofs = BusProofs(settings.proofs, lambda what, why: log.debug("%s: %s", what, why.message))
    await connection.open()
    try:
        subject = Subjects(team).cancel()
        return await _ask(connection, subject, proofs.sign(subject, _sealed(keys, order)), proofs)
    finally:
        await connection.close()


def _sealed(keys: OrderSeal, order: CancelOrder) -> bytes:
    return keys.lock(encode(order), _PLACE)


async def _ask(connection: Connection, subject: str, payload: bytes, proofs: BusProofs) -> str | None:
    try:
        reply = await connection.request(subject, payload, REPLY_S)
    except LOST as error:  # nobody has it, or the bus is away: the store reaches its hub
        log.debug("no hub confirmed a cancel: %s", in_words(error))
        return None
    proven = proofs.read(reply.subject, reply.data, "a reply to a cancel")
    return None if proven is None else proven.body.decode(errors="replace")
