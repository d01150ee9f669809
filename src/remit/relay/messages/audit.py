"""What is to be recorded of a device's dealings with others: kept with the step itself, until the team's record has it.

An entry is committed in the device's file together with what it tells of. From there it is brought to the record, which
takes each number of a device once: killed at any moment, no step is missing there and none stands there twice.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from remit.policy.verdict import Detector
from remit.protocol.errors import Fault
from remit.protocol.records import Kind, SharedStep
from remit.relay.device.state import DeviceFile
from remit.relay.session.moves import AskPerson, Send
from remit.relay.session.run import Transition
from remit.runtime.ports import NumberedRecord, Recorder, StoreError

# A reason is a sentence or two; more would be what somebody wanted to have on record.
LONGEST_REASON = 500
LONGEST_NAME = 256

# So many are brought at once, and so many that were brought are left in the device's file before they are taken out:
# that is one commit for all of them.
TOGETHER = 100
# After trouble with one of the two files.
AGAIN_S = 1.0
# What is noted by somebody who does not say so is found so soon.
LOOK_S = 2.0

_log = logging.getLogger("remit.relay")


class Person(Struct, frozen=True):
    """Who does something with a run, and by what."""

    name: str
    via: Literal["chat", "pending", "api"]


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A step that is to be recorded."""

    at_ms: int
    run: str
    session: str
    step: SharedStep


def struck(text: str, detect: Detector) -> str:
    """Return a reason, not too long, with the kind of everything that was found in it in place of what was found."""
    text = printable(text, LONGEST_REASON)
    parts: list[str] = []
    end = 0
    for found in detect(text) if text else ():
        parts += [text[end : found.start], f"[{found.kind}]"]
        end = found.end
    return "".join([*parts, text[end:]])


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text as it can be written anywhere; the name of a user may hold bytes that are no text."""
    return text[:longest].encode(errors="replace").decode()


def of_step(
    taken: Transition,
    event: str,
    by: Person | None,
    why: Fault | None,
    *,
    requester: str,
    detect: Detector,
    now_ms: int,
) -> AuditEntry:
    """Return what is recorded of a step of a run: not a word of what was said, and of a reason nothing that is secret.

    *by* is who did it, if a person did; *why*, what it was refused for.
    """
    run = taken.overlay
    label = next((each.label for each in taken.effects if isinstance(each, Send)), "")
    asked = next((each.reviews for each in taken.effects if isinstance(each, AskPerson)), ())
    step = SharedStep(
        side="asks",
        profile=run.profile,
        device=run.device,
        requester=requester,
        turn=run.turn,
        mode=run.mode,
        event=event,
        state=run.state,
        active_ms=run.active_ms,
        label=label,
        rules=tuple(each.rule for each in asked),
        by="" if by is None else printable(by.name),
        via="" if by is None else by.via,
        code="" if why is None else why.code,
        failure=struck(run.failure if why is None else why.message, detect),
    )
    return AuditEntry(at_ms=now_ms, run=run.id, session=run.session, step=step)


# ── in the device's file ──────────────────────────────────────────────────────────────────────────────────────────────


def keep(file: DeviceFile, entry: AuditEntry) -> None:
    """Keep an entry, in the transaction with what it tells of if there is one."""
    with file.writing():
        number = _last(file) + 1
        file.keep("notes", number)
        file.keep(_name(number), entry)


def left(file: DeviceFile, after: int, limit: int = TOGETHER) -> list[NumberedRecord]:
    """Return the entries that are kept, beginning after that number."""
    rows = file.rows(
        "SELECT name, value FROM facts WHERE name > ? AND name < 'note0' ORDER BY name LIMIT ?", _name(after), limit
    )
    found = [(int(name[5:], 16), file.unlock(value, f"facts/{name}", AuditEntry)) for name, value in rows]
    return [
        NumberedRecord(number, Kind.SHARED, entry.at_ms, entry.run, entry.session, entry.step)
        for number, entry in found
    ]


def forget(file: DeviceFile, until: int) -> None:
    """Forget the entries up to that number."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name > 'note/' AND name <= ?", _name(until))


def go_on_after(file: DeviceFile, number: int) -> None:
    """Number what is noted from now on higher than that: a file that was put back from a backup has fallen behind."""
    with file.writing():
        if _last(file) < number:
            file.keep("notes", number)


def _last(file: DeviceFile) -> int:
    return file.fact("notes", int) or 0


def _name(number: int) -> str:
    return f"note/{number:016x}"


# ── from there to the record ──────────────────────────────────────────────────────────────────────────────────────────


class Recording:
    """Brings what is noted in a device's file to the record, while the block lasts."""

    def __init__(self, file: DeviceFile, recorder: Recorder, *, device: str) -> None:
        self._file = file
        self._recorder = recorder
        self._source = f"device/{device}"
        self._brought = 0
        """The highest number that the record has."""
        self._forgotten = 0
        self._troubled = False
        self._news = asyncio.Event()

    async def __aenter__(self) -> "Recording":
        self._brought = await self._recorder.transfer(self._source, ())
        await asyncio.to_thread(go_on_after, self._file, self._brought)
        self._news.set()
        self._task = asyncio.create_task(self._keep_at())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        try:
            await self._bring()
            # One killed before this keeps what the record passes over.
            await self._forget()
        except StoreError as error:
            _log.warning("steps with other devices are recorded when this device is back: %s", error.fault.message)

    def wake(self) -> None:
        """Something was noted."""
        self._news.set()

    async def _keep_at(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._bring()
                if self._brought - self._forgotten >= TOGETHER:
                    await self._forget()
                self._troubled = False
            except StoreError as error:
                if not self._troubled:
                    _log.warning("steps with other devices are not recorded yet: %s", error.fault.message)
                self._troubled = True
                await asyncio.sleep(AGAIN_S)
                self._news.set()
            except Exception:  # noqa: BLE001 - where a task ends, and it is logged
                _log.exception("steps with other devices are recorded no more")
                return

    async def _bring(self) -> None:
        while found := await asyncio.to_thread(left, self._file, self._brought):
            self._brought = await self._recorder.transfer(self._source, found)

    async def _forget(self) -> None:
        await asyncio.to_thread(forget, self._file, self._brought)
        self._forgotten = self._brought
