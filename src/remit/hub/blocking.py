"""Runs a hub in a thread of its own, for programs that do not await."""

import asyncio
import os
import threading
from concurrent.futures import Future
from contextlib import suppress

from remit.protocol.envelope import Response
from remit.protocol.submission import AskOptions
from remit.runtime.engine import Engine


class Background:
    """A thread with an event loop in which a hub is open, also between calls.

    If the loop ran only during calls, leases would expire and records would wait. The caller's own loop, as in a
    notebook, cannot be used: a blocking wait in it would stop it.
    """

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._closing = asyncio.Event()
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        """The loop once the hub is open, or the error that kept it from opening."""
        self._ended: Future[None] = Future()
        threading.Thread(target=self._run, name="remit-hub", daemon=True).start()

    def wait_until_open(self) -> None:
        """Return once the hub is open, or raise the error that kept it from opening."""
        self._loop.result()

    def close(self) -> None:
        """Close the hub and return once it is closed, or raise the error of its thread.

        In a process that was forked from the one that opened the hub there is nothing to close.
        """
        if self._hub.process != os.getpid():
            return
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.result().call_soon_threadsafe(self._closing.set)
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opened or closes the hub
            if not self._loop.done():
                self._loop.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        async with self._hub:
            self._loop.set_result(asyncio.get_running_loop())
            await self._closing.wait()


def ask(hub: Engine, agent: str, text: str, user: str, options: AskOptions) -> Response:
    """Ask an agent of a hub that is open in another thread; the run is cancelled if the wait is interrupted."""
    loop = hub.loop
    if loop is None:
        raise RuntimeError("the hub is not open: ask within `with hub:`")
    hub.refuse_if_forked()
    if loop is _running():
        raise RuntimeError("ask_sync would block the event loop that the hub runs in: use `await hub.ask(...)` here")
    future = asyncio.run_coroutine_threadsafe(hub.ask(agent, text, user=user, **options), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
