"""Tells waiting callers of outcomes that any hub wrote: by LISTEN and NOTIFY, with a poll as fallback.

A notification inside a commit would make all commits of the database wait for each other. So it is sent afterwards, on
the connection that also listens. It may be lost: whoever waits asks the database now and then.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from remit.ports import StoreError
from remit.protocol.envelope import Response
from remit.runtime.clock import end_tasks
from remit.stores.group_commit import resolve
from remit.stores.sql_store import OutcomeWaits
from remit_cluster.postgres.connection import TROUBLE, DatabaseAddress, PgConnection, close_quietly

CHANNEL = "remit_ended"
# How often a wait asks the database where notifications arrive, and where they do not.
POLL_SECONDS = 2.0
DEAF_POLL_SECONDS = 0.1
# A notification that the hub sends to itself comes back within milliseconds, unless a pooler swallows it.
ECHO_SECONDS = 2.0
RETRY_SECONDS = 1.0
# A notification has at most 8,000 bytes.
MOST_BYTES = 7_000

_log = logging.getLogger("remit.store")

Outcomes = Callable[[Sequence[str]], Awaitable[dict[str, Response | None]]]


class Waiting:
    """The callers that wait for outcomes, and the connection that listens for them."""

    def __init__(self, address: DatabaseAddress, outcomes: Outcomes) -> None:
        self._address = address
        self._outcomes = outcomes
        self.waits = OutcomeWaits(self._read_outcome)
        self._unsent: deque[str] = deque()
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._requested: dict[str, asyncio.Future[tuple[bool, Response | None]]] = {}
        """Runs whose outcome is read next."""
        self._reading: asyncio.Task[None] | None = None
        self._set_hears(False)
        self._echo = ""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="remit-postgres-listener")

    def _set_hears(self, hears: bool) -> None:
        """Note whether notifications arrive."""
        self.hears = hears
        self.waits.poll_seconds = POLL_SECONDS if hears else DEAF_POLL_SECONDS

    async def stop(self) -> None:
        await end_tasks(task for task in (self._task, self._reading) if task is not None)
        self._task = self._reading = None
        self._set_hears(False)

    # ── callers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_outcome(self, run: str) -> tuple[bool, Response | None]:
        """Return whether a run was submitted, and its outcome; callers that ask at the same time share a statement.

        The statement is not the caller's: a caller that stops waiting would close the connection in the middle of it.
        """
        loop = asyncio.get_running_loop()
        answer = self._requested.setdefault(run, loop.create_future())
        if self._reading is None:
            self._reading = loop.create_task(self._read_all(), name="remit-postgres-outcomes")
        return await asyncio.shield(answer)

    async def _read_all(self) -> None:
        requested: dict[str, asyncio.Future[tuple[bool, Response | None]]] = {}
        try:
            while self._requested:
                requested, self._requested = self._requested, {}
                try:
                    outcomes = await self._outcomes(list(requested))
                except StoreError as error:
                    for answer in requested.values():
                        resolve(answer, None, error)
                        answer.exception()  # its callers may have gone
                else:
                    for run, answer in requested.items():
                        resolve(answer, (run in outcomes, outcomes.get(run)))
        finally:
            self._reading = None
            for answer in (*requested.values(), *self._requested.values()):
                answer.cancel()
            self._requested.clear()

    def ended(self, outcomes: Sequence[tuple[str, Response]]) -> None:
        """Tell the callers of this hub at once, and those of other hubs soon."""
        for run, response in outcomes:
            self.waits.tell(run, response)
            self._unsent.append(run)
        if outcomes:
            self._something.set()

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            connection: PgConnection | None = None
            try:
                connection = await self._address.connect()
                await connection.add_listener(CHANNEL, self._note_ended)
                await self._test(connection)
                while True:
                    await self._something.wait()
                    self._something.clear()
                    await self._send(connection)
            except (*TROUBLE, StoreError) as error:
                _log.debug("%s: no notifications: %s", self._address.name, type(error).__name__)
            except Exception as error:  # noqa: BLE001 - waiting goes on by polling
                _log.warning("%s: no notifications: %s", self._address.name, type(error).__name__)
            finally:
                self._set_hears(False)
                if connection is not None:
                    await close_quietly(connection)
            await asyncio.sleep(RETRY_SECONDS)

    async def _test(self, connection: PgConnection) -> None:
        """Find out whether notifications arrive: a pooler in transaction mode swallows them."""
        self._echo = f"echo {secrets.token_hex(8)}"
        self._echoed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, self._echo)
        await asyncio.wait([self._echoed], timeout=ECHO_SECONDS)
        if not self.hears:
            _log.warning(
                "%s: notifications do not arrive, so outcomes of other hubs are polled; is there a pooler in between?",
                self._address.name,
            )

    async def _send(self, connection: PgConnection) -> None:
        """Send what has ended; several runs share a notification."""
        while self._unsent:
            payload = self._unsent.popleft()
            while self._unsent and len(payload) + len(self._unsent[0]) < MOST_BYTES // 4:
                payload += "\n" + self._unsent.popleft()
            if len(payload.encode(errors="replace")) <= MOST_BYTES:
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    def _note_ended(self, connection: object, pid: int, channel: str, payload: object) -> None:  # noqa: ARG002 - asyncpg's
        if payload == self._echo:
            self._set_hears(True)
            resolve(self._echoed, None)
            return
        for run in str(payload).split("\n"):
            # Read by whoever waits: the notification itself proves nothing.
            self.waits.tell(run, None)
