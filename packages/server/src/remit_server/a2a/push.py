"""Push notifications: where clients want them, and their delivery by whichever server is running."""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.protocol.records import Kind, Record
from remit.words.names import hidden_names
from remit_server.dialects.a2a.errors import Declined, Error
from remit_server.dialects.a2a.responses import Stream, TaskPresentation
from remit_server.dialects.a2a.types import MEDIA_TYPE, PushConfig, StreamResponse
from remit_server.streams import Following, ends, follow_records
from remit_server.transports.addresses import OutboundClient, OutboundHosts, looked_up

log = logging.getLogger("remit")

# A client that wants more receivers can forward notifications itself.
MOST = 10
# How often one event is sent before it is given up, and the first pause; each further pause is twice as long.
ATTEMPTS = 6
PAUSE_S = 0.5
# The specification recommends 10 to 30 seconds.
PATIENCE_S = 15.0
# A server that has not renewed its claim on a task for this long is gone, and another takes over.
LEASE_MS = 30_000
KEEP_S = 10.0

TOKEN_HEADER = "x-a2a-notification-token"

_INDEX = "a2a/push"


class PushRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored push notifications of one task."""

    run: str = ""
    """The run by which the task continues."""
    context: str = ""
    configs: tuple[PushConfig, ...] = ()
    own: frozenset[str] = frozenset()
    """The ids of the configurations whose client asked for the task: only they get personal values in clear."""


class PushIndexEntry(Struct, frozen=True, kw_only=True):
    """A task with notifications to send."""

    by: str
    until_ms: int


_read_kept = msgspec.json.Decoder(PushRecord).decode
_read_index = msgspec.json.Decoder(dict[str, PushIndexEntry]).decode


class Push:
    """The push notifications of one server. They are in the store, so they survive the server."""

    def __init__(self, hub: Hub, wall_ms: Callable[[], int], reach: OutboundHosts) -> None:
        from aiohttp import ClientTimeout

        self._hub = hub
        self._wall_ms = wall_ms
        self._reach = reach
        self._outbound = OutboundClient(reach, ClientTimeout(total=PATIENCE_S))
        self._me = secrets.token_hex(8)
        self._telling: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Stop sending; another server, or this one after a restart, continues."""
        tasks = [self._keeper, *self._telling.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._outbound.close()

    # ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def of(self, task: str) -> tuple[PushConfig, ...]:
        """Return the push notification configurations of a task."""
        return (await self._kept(task))[1].configs

    async def judge(self, config: PushConfig) -> None:
        """Raise a `RemitError` for an address that notifications may not be sent to.

        A name that nobody knows now may be known when there is something to send; then it is judged again.
        """
        await looked_up(config.url, self._reach, unknown=True)

    async def add(
        self,
        telling: TaskPresentation,
        run: str,
        config: PushConfig,
        *,
        own: bool = True,
        ended: StreamResponse | None = None,
        since_ms: int | None = None,
    ) -> PushConfig:
        """Store where to send notifications of a task that continues as *run*, and start, from now or from *since_ms*.

        If the task has *ended*, that is sent, once. It is the client's *own* if it asked for the task.
        """
        await self.judge(config)
        config = replace(config, id=config.id or secrets.token_hex(8), task_id=telling.task, tenant="")
        while True:
            revision, kept = await self._kept(telling.task)
            others = tuple(each for each in kept.configs if each.id != config.id)
            if len(others) >= MOST:
                raise Declined(Error.INVALID_PARAMS, f"a task can have at most {MOST} push notification configurations")
            owned = kept.own | {config.id} if own else kept.own - {config.id}
            new = PushRecord(run=run, context=telling.context, configs=(*others, config), own=owned)
            if await self._keep_as(telling.task, revision, new):
                break
        if ended is not None:
            self._start(telling.task, config.id, self._post(config, ended))
        else:
            await self._claim(telling.task)
            self._follow(telling.task, new, config, self._wall_ms() if since_ms is None else since_ms)
        return config

    async def remove(self, task: str, id: str) -> None:
        """Delete one; it is not an error if it does not exist."""
        while True:
            revision, kept = await self._kept(task)
            left = tuple(each for each in kept.configs if each.id != id)
            if left == kept.configs or await self._keep_as(task, revision, replace(kept, configs=left)):
                break
        if (telling := self._telling.pop((task, id), None)) is not None:
            telling.cancel()

    async def forget(self, task: str) -> None:
        """Send no more notifications of a task: it has ended."""
        for config in await self.of(task):
            await self.remove(task, config.id)

    async def resume(self, task: str, run: str) -> None:
        """Resume the notifications of a task that had stopped for its user, and continues as *run*."""
        revision, kept = await self._kept(task)
        if not kept.configs:
            return
        await self._keep_as(task, revision, replace(kept, run=run))
        await self._claim(task)
        for config in kept.configs:
            self._follow(task, replace(kept, run=run), config, 0)

    async def _kept(self, task: str) -> tuple[int, PushRecord]:
        row = await self._hub.store.get(f"{_INDEX}/{task}")
        if row is None:
            return 0, PushRecord()
        # They hold the tokens by which clients authenticate notifications.
        opened = HubKeys(self._hub.store.secret()).unlock(row[1], f"{_INDEX}/{task}")
        return row[0], PushRecord() if opened is None else _read_kept(opened)

    async def _keep_as(self, task: str, revision: int, kept: PushRecord) -> bool:
        key = f"{_INDEX}/{task}"
        locked = HubKeys(self._hub.store.secret()).lock(encode(kept), key)
        return await self._hub.store.cas(key, revision, locked) is not None

    # ── who tells ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, *tasks: str) -> None:
        entry = PushIndexEntry(by=self._me, until_ms=self._wall_ms() + LEASE_MS)
        await self._index(lambda index: index | dict.fromkeys(tasks, entry))

    async def _index(
        self, change: Callable[[dict[str, PushIndexEntry]], dict[str, PushIndexEntry]]
    ) -> dict[str, PushIndexEntry]:
        """Change the list of tasks with notifications, although other processes may change it, too."""
        store = self._hub.store
        while True:
            row = await store.get(_INDEX)
            revision, index = (0, dict[str, PushIndexEntry]()) if row is None else (row[0], _read_index(row[1]))
            new = change(index)
            if new == index or await store.cas(_INDEX, revision, encode(new)) is not None:
                return new

    async def _keep(self) -> None:
        """Renew the claims of this server regularly, and take over tasks that no server notifies of."""
        while True:
            try:
                await self._take_up()
                mine = {task for task, _ in self._telling}
                if mine:
                    await self._claim(*mine)
            except StoreError as error:
                log.warning("push notifications are waiting for the store: %s", error.fault.message)
            await asyncio.sleep(KEEP_S)

    async def _take_up(self) -> None:
        now_ms, taken = self._wall_ms(), set[str]()

        def take(index: dict[str, PushIndexEntry]) -> dict[str, PushIndexEntry]:
            taken.clear()
            taken.update(task for task, entry in index.items() if entry.until_ms <= now_ms)
            return index | dict.fromkeys(taken, PushIndexEntry(by=self._me, until_ms=now_ms + LEASE_MS))

        await self._index(take)
        for task in taken:
            _, kept = await self._kept(task)
            for config in kept.configs:
                # It is unknown what was sent before; the outcome is sent at least once.
                self._follow(task, kept, config, now_ms)
            if not kept.configs:
                await self._remove_from_index(task)

    async def _remove_from_index(self, task: str) -> None:
        await self._index(lambda index: {name: entry for name, entry in index.items() if name != task})

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, task: str, kept: PushRecord, config: PushConfig, since_ms: int) -> None:
        telling = TaskPresentation(task=task, context=kept.context)
        self._start(task, config.id, self._tell(telling, kept.run, config, since_ms, own=config.id in kept.own))

    def _start(self, task: str, id: str, work: Coroutine[Any, Any, None]) -> None:
        if (old := self._telling.pop((task, id), None)) is not None:
            old.cancel()
        started = self._telling[task, id] = asyncio.create_task(work)

        def gone(done: asyncio.Task[None]) -> None:
            if self._telling.get((task, id)) is done:
                del self._telling[task, id]
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("push notifications of %s stopped (%s)", task, type(error).__name__)

        started.add_done_callback(gone)

    async def _tell(self, telling: TaskPresentation, run: str, config: PushConfig, since_ms: int, *, own: bool) -> None:
        stream = Stream(telling, run, hidden_names(self._hub.cards.values()))
        following = Following(run=run, outcome=partial(self._hub.outcome, run, raw=own))
        with self._hub.follow(run, raw=own) as events:
            async for records in follow_records(self._hub, following, events):
                for event in stream.of(worth_telling(records, since_ms)):
                    await self._post(config, event)
        if all(task != telling.task or id == config.id for task, id in self._telling):
            await self._remove_from_index(telling.task)

    async def _post(self, config: PushConfig, event: StreamResponse) -> None:
        headers = {"content-type": MEDIA_TYPE}
        if config.token:
            headers[TOKEN_HEADER] = config.token
        if config.authentication is not None and config.authentication.credentials:
            headers["authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        body, pause_s, why = encode(event), PAUSE_S, ""
        for attempt in range(1, ATTEMPTS + 1):
            why = await self._sent(config.url, headers, body)
            if not why:
                return
            if attempt < ATTEMPTS:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s *= 2
        log.warning("gave up a push notification of %s: %s", config.task_id, why)

    async def _sent(self, url: str, headers: dict[str, str], body: bytes) -> str:
        """Send a notification once, and return why it did not arrive; empty if it did."""
        from aiohttp import ClientError

        try:
            async with self._outbound.request("POST", url, headers=headers, data=body) as reply:
                return "" if 200 <= reply.status < 300 else f"the receiver answered with status {reply.status}"
        except (ClientError, OSError, TimeoutError) as error:
            return f"the receiver cannot be reached ({type(error).__name__})"
        except RemitError as error:
            return error.fault.message


def worth_telling(records: list[Record], since_ms: int) -> list[Record]:
    """Return the records to notify of: none from before the request, except the outcome, and no text deltas."""
    return [
        record for record in records if record.kind is not Kind.DELTA and (record.at_ms >= since_ms or ends(record))
    ]
