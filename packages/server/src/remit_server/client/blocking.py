"""The client of a hub for programs without an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from remit_server.client.client import HubClient
from remit_server.client.connection import DEFAULT_TIMEOUT_S
from remit_server.client.streams import RunEvent

P = ParamSpec("P")
T = TypeVar("T")


class SyncHubClient:
    """`HubClient` without await: also in notebooks, where an event loop is running already.

    It has an event loop in a thread of its own, which ends with `close` or the `with` block.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._client = HubClient(url, token=token, timeout_s=timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="remit-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> "SyncHubClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        if self._loop.is_closed():
            return
        self._finish(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @staticmethod
    def _blocking(
        method: Callable[Concatenate[HubClient, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate["SyncHubClient", P], T]:
        """Return a method of `HubClient` as one that waits for its result."""

        @wraps(method)
        def wait_for(self: "SyncHubClient", *args: P.args, **options: P.kwargs) -> T:
            return self._finish(method(self._client, *args, **options))

        return wait_for

    @staticmethod
    def _iterated(
        method: Callable[Concatenate[HubClient, P], AsyncGenerator[RunEvent]],
    ) -> Callable[Concatenate["SyncHubClient", P], Generator[RunEvent]]:
        """Return a method of `HubClient` that yields events as one that waits for each."""

        @wraps(method)
        def read(self: "SyncHubClient", *args: P.args, **options: P.kwargs) -> Generator[RunEvent]:
            events = method(self._client, *args, **options)
            try:
                while (event := self._finish(_next(events))) is not None:
                    yield event
            finally:
                if not self._loop.is_closed():
                    self._finish(_closed(events))

        return read

    ask = _blocking(HubClient.ask)
    begin = _blocking(HubClient.begin)
    stream = _iterated(HubClient.stream)
    look = _blocking(HubClient.look)
    wait = _blocking(HubClient.wait)
    cancel = _blocking(HubClient.cancel)
    events = _iterated(HubClient.events)

    agents = _blocking(HubClient.agents)
    agent = _blocking(HubClient.agent)
    runs = _blocking(HubClient.runs)
    run = _blocking(HubClient.run)
    cancel_run = _blocking(HubClient.cancel_run)
    retry_run = _blocking(HubClient.retry_run)
    resume_run = _blocking(HubClient.resume_run)
    all_events = _iterated(HubClient.all_events)

    approvals = _blocking(HubClient.approvals)
    approval = _blocking(HubClient.approval)
    answer = _blocking(HubClient.answer)
    answer_several = _blocking(HubClient.answer_several)
    sessions = _blocking(HubClient.sessions)
    session = _blocking(HubClient.session)


async def _next(events: AsyncGenerator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[RunEvent]) -> None:
    await events.aclose()
