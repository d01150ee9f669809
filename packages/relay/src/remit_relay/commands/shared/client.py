"""A client of the local API of a device, which runs in another process or in this one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from remit.protocol.codec import encode
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_relay.bridge.ports import Mode
from remit_relay.local_api.device_endpoints import News, OwnDeviceStatus
from remit_relay.local_api.run_commands import ACTS
from remit_relay.local_api.views import (
    DeviceList,
    DeviceView,
    FileList,
    FileView,
    Profiles,
    ProfileView,
    SharedRunLine,
    SharedRunList,
    SharedRunView,
)
from remit_relay.session.moves import Approve, Event, Reject
from remit_relay.session.run import Person
from remit_relay.team.device_process import DeviceProcess, find_process
from remit_server.access import token_in
from remit_server.console.hosts import TOKEN_FILE
from remit_server.documents.api import LINKS, OneTimeLink
from remit_server.documents.api_values import FailureBody
from remit_server.documents.shared import SharedDraft
from remit_server.streams import KEEP_ALIVE_S

# A start waits for the list of shared agents for two seconds; the rest is the work of a busy machine.
ANSWER_S = 30.0
# Two missed lines of a stream: its process stands still, or is gone without a word.
SILENT_S = 2.5 * KEEP_ALIVE_S
AGAIN_S = 0.2
# A system starts a process of `remit up` again within a few seconds of its end.
RETURN_S = 8.0

T = TypeVar("T")


class DeviceGone(Exception):
    """The process that ran the device has ended, and no other runs it."""


class DeviceEvent(NamedTuple):
    """One event of a stream."""

    id: str
    event: str
    data: bytes


class DeviceClient:
    """Speaks to the process that runs a device.

    *folder* is the folder of the device. *lost* is called when the process does not answer, and with None once it does.
    """

    def __init__(
        self, folder: Path, process: DeviceProcess, *, lost: Callable[[DeviceProcess | None], None] = lambda _: None
    ) -> None:
        self._folder = folder
        self.process = process
        self._lost = lost
        self._is_lost = False
        self._headers = _headers_in(folder)

    async def __aenter__(self) -> "DeviceClient":
        self._session = ClientSession(timeout=ClientTimeout(total=ANSWER_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self) -> OwnDeviceStatus:
        """Return the state of the device."""
        return await self._get("/v1/shared/device", OwnDeviceStatus)

    async def link(self) -> str:
        """Return a link that signs in a browser, once."""
        return msgspec.json.decode(await self._ask("POST", LINKS.path), type=OneTimeLink).url

    async def profiles(self) -> dict[str, ProfileView]:
        """Return the profiles by name."""
        return {each.id: each for each in (await self._get("/v1/shared/profiles", Profiles)).profiles}

    async def devices(self) -> tuple[DeviceView, ...]:
        """Return the known devices."""
        return (await self._get("/v1/shared/devices", DeviceList)).devices

    async def runs(self) -> list[SharedRunLine]:
        """Return the newest runs, the oldest of them first."""
        return list((await self._get("/v1/shared/runs", SharedRunList)).runs)[::-1]

    async def run(self, run: str) -> SharedRunView:
        """Return a run."""
        return await self._get(f"/v1/shared/runs/{run}", SharedRunView)

    async def start(
        self, profile: str, device: str, objective: str, *, mode: Mode | None, agent: str, by: Person
    ) -> SharedRunView:
        """Start a run."""
        request: dict[str, Any] = {"profile": profile, "device": device, "objective": objective}
        request |= {name: value for name, value in (("mode", mode), ("agent", agent)) if value}
        return await self._post("/v1/shared/runs", {**request, "by": by.name, "via": by.via})

    async def act(self, run: str, event: Event, *, by: Person) -> SharedRunView:
        """Apply an action of a person to a run; raise a `RemitError` if it is not possible now."""
        name = next(name for name, (_, kind) in ACTS.items() if isinstance(event, kind))
        fields = {field: getattr(event, field) for field in event.__struct_fields__}
        # A text is sent even if it is empty, so that it is refused: without one a draft is sent as it is.
        given = {field: value for field, value in fields.items() if value or (field == "text" and value is not None)}
        return await self._post(f"/v1/shared/runs/{run}/{name}", {**given, "by": by.name, "via": by.via})

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def files(self, run: str) -> FileList:
        """Return the files of a run."""
        return await self._get(f"/v1/shared/runs/{run}/files", FileList)

    async def attach(self, run: str, name: str, data: bytes, *, by: Person) -> tuple[FileView, ...]:
        """Add a file to the next message of a run; return what it carries, or carried if it was sent at once."""
        query = urlencode({"name": name, "by": by.name, "via": by.via})
        headers = {"Content-Type": "application/octet-stream"}
        added = await self._ask("POST", f"/v1/shared/runs/{run}/files?{query}", data, headers)
        return (await self.files(run)).attached or (msgspec.json.decode(added, type=FileView),)

    async def detach(self, run: str, file: str, *, by: Person) -> None:
        """Remove a file, by id or name, from the next message of a run."""
        query = urlencode({"by": by.name, "via": by.via})
        await self._ask("DELETE", f"/v1/shared/runs/{run}/files/{quote(file, safe='')}?{query}")

    async def file(self, run: str, file: str) -> tuple[FileView, bytes]:
        """Return a file of a run, by its id or the name of the newest, with its content."""
        files = await self.files(run)
        path = f"/v1/shared/runs/{run}/files/{quote(file, safe='')}"
        content = await self._ask("GET", path)
        known = (*files.received, *files.sent, *files.attached)
        return next(each for each in reversed(known) if file in (each.id, each.name)), content

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, path: str, kind: type[T]) -> T:
        return msgspec.json.decode(await self._ask("GET", path), type=kind)

    async def _post(self, path: str, body: dict[str, Any]) -> SharedRunView:
        answer = await self._ask("POST", path, encode(body), {"Content-Type": "application/json"})
        return msgspec.json.decode(answer, type=SharedRunView)

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Return the body of the answer; raise a `RemitError` if it is a refusal, or none comes."""
        url, headers = self.process.address + path, {**self._headers, **(headers or {})}
        try:
            async with self._session.request(method, url, data=body, headers=headers) as reply:
                answer = await reply.read()
                if reply.status >= 400:
                    raise RemitError(_fault_in(answer, reply.status))
                return answer
        except (ClientError, TimeoutError) as error:
            raise self._silent(error) from error

    def _silent(self, error: Exception) -> RemitError:
        why = f"{self.process.title} does not answer ({type(error).__name__})"
        return RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion="See: remit up --status"))

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def follow_run(self, run: str) -> AsyncGenerator[SharedRunView]:
        """Yield the state of a run, and each new one; raise `DeviceGone` once no process runs the device."""
        async for event in self._follow(f"/v1/shared/events?run={run}"):
            if event.event == "run":
                yield msgspec.json.decode(event.data, type=SharedRunView)

    async def follow_device(self) -> AsyncGenerator[OwnDeviceStatus | News]:
        """Yield the state of the device, and what happens to it; raise `DeviceGone` once no process runs it."""
        async for event in self._follow("/v1/shared/device/events"):
            if event.event == "status":
                yield msgspec.json.decode(event.data, type=OwnDeviceStatus)
            elif event.event == "news":
                yield msgspec.json.decode(event.data, type=News)

    async def _follow(self, path: str) -> AsyncGenerator[DeviceEvent]:
        """Yield the events of a stream; after an interruption, continue after the last one."""
        last = ""
        while True:
            headers = {**self._headers, **({"Last-Event-ID": last} if last else {})}
            timeout = ClientTimeout(total=None, sock_connect=ANSWER_S, sock_read=SILENT_S)
            try:
                async with self._session.get(self.process.address + path, headers=headers, timeout=timeout) as reply:
                    if reply.status >= 400:
                        raise RemitError(_fault_in(await reply.read(), reply.status))
                    async for event in events_in(reply):
                        self._note_answer()
                        last = event.id or last
                        yield event
            except (ClientError, TimeoutError):
                pass
            await self._return()

    def _note_answer(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._lost(None)

    async def _return(self) -> None:
        """Wait until a process runs the device, perhaps another one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (RETURN_S if self.process.command == "up" else 0)
        while True:
            process = find_process(self._folder)
            if process is None and loop.time() > until:
                raise DeviceGone
            if not self._is_lost:
                self._is_lost = True
                self._lost(self.process)
            await asyncio.sleep(AGAIN_S)
            if process is not None:
                self.process, self._headers = process, _headers_in(self._folder)
                return


async def events_in(reply: ClientResponse) -> AsyncGenerator[DeviceEvent]:
    """Yield the events of a stream; an event of any size is read."""
    buffer = bytearray()
    async for part in reply.content.iter_any():
        buffer += part
        while (end := buffer.find(b"\n\n")) >= 0:
            frame, buffer = bytes(buffer[:end]), buffer[end + 2 :]
            fields: dict[bytes, bytes] = {}
            for line in frame.split(b"\n"):
                name, _, value = line.partition(b": ")
                fields[name] = value
            if b"event" in fields:
                yield DeviceEvent(fields.get(b"id", b"").decode(), fields[b"event"].decode(), fields.get(b"data", b""))


def _headers_in(folder: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_in(folder / TOKEN_FILE)}"}


def _fault_in(body: bytes, status: int) -> Fault:
    try:
        return msgspec.json.decode(body, type=FailureBody).fault
    except msgspec.DecodeError:
        return fault(Code.DELEGATION_FAILED, f"the process of the device answered with status {status}")


def came_too_late(why: str) -> RemitError:
    """Return the error for an answer to a draft that is gone."""
    why = f"the answer came too late and had no effect: {why}"
    return RemitError(fault(Code.STATE_CONFLICT, why, suggestion="List pending drafts: remit pending list"))


def answer_draft(
    folder: Path, process: DeviceProcess, draft: SharedDraft, event: Approve | Reject, *, by: str
) -> Literal[True]:
    """Answer a draft of a running device; raise a `RemitError` if it is too late: the draft is gone."""

    async def answer() -> None:
        async with DeviceClient(folder, process) as client:
            await client.act(draft.run, event, by=Person(by, "pending"))

    try:
        asyncio.run(answer())
    except RemitError as error:
        if error.fault.code is not Code.STATE_CONFLICT:
            raise
        raise came_too_late(error.fault.message) from error
    return True
