"""Audit entries of a device's work with others: stored with each step, until the team's record has them.

An entry is committed in the device's file together with its step. From there it is copied to the record, which accepts
each number of a device once: after a crash at any moment no step is missing or recorded twice.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.verdict import Detector
from remit.ports import NumberedRecord, Recorder, StoreError
from remit.protocol.errors import Fault
from remit.protocol.records import Kind, SharedFile, SharedStep
from remit.runtime.clock import until_tick
from remit_relay.device.state import DeviceFile, FileChanges
from remit_relay.session.moves import AskPerson, Permit, Send
from remit_relay.session.profile import AttachedFile, Attachment
from remit_relay.session.run import Person, Transition, with_kinds

# A reason is a sentence or two; a longer text could be an attempt to fill the record.
LONGEST_REASON = 500
LONGEST_NAME = 256

# Entries copied at once; and the number of copied entries after which they are deleted from the device's file, in
# one commit.
TOGETHER = 100
# Wait this long after an error of one of the two files.
AGAIN_S = 1.0
# Entries written without `wake` are found within this time.
LOOK_S = 2.0

# An agent can write any text as the kind of a choice; these are those of the protocol.
_CHOICES = {kind: kind for kind in ("allow_once", "allow_always", "reject_once", "reject_always")}

_log = logging.getLogger("remit.relay")


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A step to record."""

    at_ms: int
    run: str
    session: str
    step: SharedStep


def struck(text: str, detect: Detector) -> str:
    """Return a shortened reason in which each finding of the detector is replaced by its kind."""
    text = printable(text, LONGEST_REASON)
    return with_kinds(text, detect(text)) if text else text


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a shortened text without characters that cannot be encoded; a user name may contain invalid bytes."""
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
    """Return the audit entry of a step of a run: no message texts, and reasons without secrets.

    *by* is the person who did it, if any; *why* is the reason of a refusal.
    """
    run = taken.overlay
    label = next((_label(each) for each in taken.effects if isinstance(each, Send | Permit)), "")
    reviews = next((each.reviews for each in taken.effects if isinstance(each, AskPerson)), ())
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
        rules=tuple(each.rule for each in reviews),
        by="" if by is None else printable(by.name),
        via="" if by is None else by.via,
        code="" if why is None else why.code,
        failure=struck(run.recorded_failure if why is None else why.message, detect),
        files=file_notes(_files(taken, event)),
    )
    return AuditEntry(at_ms=now_ms, run=run.id, session=run.session, step=step)


def _label(effect: Send | Permit) -> str:
    """Return how a message was released, or how a permission was answered."""
    return effect.label if isinstance(effect, Send) else _CHOICES.get(effect.kind, "reject_once")


def _files(taken: Transition, event: str) -> Sequence[Attachment]:
    """Return the files of the message that a step sends or that arrived with it."""
    if event == "Arrived":
        run = taken.overlay
        return next((each.files for each in reversed((*run.timeline, *run.kept)) if each.role == "remote_agent"), ())
    return next((each.files for each in taken.effects if isinstance(each, Send)), ())


def file_notes(files: Iterable[Attachment | AttachedFile]) -> tuple[SharedFile, ...]:
    """Return files for the record: their names as digests, their types and sizes."""
    return tuple(
        SharedFile(
            name=blake2b(each.name.encode(errors="replace"), digest_size=16).hexdigest(),
            media_type=each.media_type,
            size=each.size if isinstance(each, Attachment) else len(each.data),
        )
        for each in files
        if isinstance(each, AttachedFile) or not each.refused
    )


def unsent(entry: AuditEntry) -> AuditEntry:
    """Return the entry of a step whose message was refused here: nothing was sent, so it has no label and no files."""
    return replace(entry, step=replace(entry.step, label="", files=()))


# ── in the device's file ──────────────────────────────────────────────────────────────────────────────────────────────


def keep(file: DeviceFile, entry: AuditEntry) -> None:
    """Store an entry, in the current transaction if there is one."""
    with file.writing():
        number = _last(file) + 1
        file.keep("notes", number)
        file.keep(_name(number), entry)


def left(file: DeviceFile, after: int, limit: int = TOGETHER) -> list[NumberedRecord]:
    """Return the stored entries after a number."""
    rows = file.rows(
        "SELECT name, value FROM facts WHERE name > ? AND name < 'note0' ORDER BY name LIMIT ?", _name(after), limit
    )
    entries = [(int(name[5:], 16), file.unlock(value, f"facts/{name}", AuditEntry)) for name, value in rows]
    return [
        NumberedRecord(number, Kind.SHARED, entry.at_ms, entry.run, entry.session, entry.step)
        for number, entry in entries
    ]


def forget(file: DeviceFile, until: int) -> None:
    """Delete the entries up to a number."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name > 'note/' AND name <= ?", _name(until))


def skip_numbers_to(file: DeviceFile, number: int) -> None:
    """Use higher numbers than *number* from now on: a file restored from a backup may have fallen behind."""
    with file.writing():
        if _last(file) < number:
            file.keep("notes", number)


def _last(file: DeviceFile) -> int:
    return file.fact("notes", int) or 0


def _name(number: int) -> str:
    return f"note/{number:016x}"


# ── copying to the record ─────────────────────────────────────────────────────────────────────────────────────────────


class Recording:
    """Copies audit entries from a device's file to the record while the block lasts."""

    def __init__(self, file: DeviceFile, recorder: Recorder, *, device: str) -> None:
        self._file = file
        self._recorder = recorder
        self._source = f"device/{device}"
        self._brought = 0
        """The highest number that the record has."""
        self._forgotten = 0
        self._troubled = False
        self._news = asyncio.Event()
        self._changes = FileChanges(file)

    async def __aenter__(self) -> "Recording":
        self._brought = await self._recorder.transfer(self._source, ())
        await asyncio.to_thread(skip_numbers_to, self._file, self._brought)
        self._news.set()
        self._task = asyncio.create_task(self._keep_at())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        try:
            await self._bring()
            # After a crash before this, the record ignores the repeated entries.
            await self._forget()
        except StoreError as error:
            _log.warning("audit entries of shared work will be recorded at the next start: %s", error.fault.message)

    def wake(self) -> None:
        """Look for new entries now."""
        self._news.set()

    async def _keep_at(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(until_tick(LOOK_S)):
                    await self._news.wait()
            if not (self._changes.look() or self._news.is_set()):
                continue
            self._news.clear()
            try:
                await self._bring()
                if self._brought - self._forgotten >= TOGETHER:
                    await self._forget()
                self._troubled = False
            except StoreError as error:
                if not self._troubled:
                    _log.warning("audit entries of shared work cannot be recorded yet: %s", error.fault.message)
                self._troubled = True
                await asyncio.sleep(AGAIN_S)
                self._news.set()
            except Exception:  # noqa: BLE001 - the end of a task, and it is logged
                _log.exception("recording of audit entries stopped")
                return

    async def _bring(self) -> None:
        while entries := await asyncio.to_thread(left, self._file, self._brought):
            self._brought = await self._recorder.transfer(self._source, entries)

    async def _forget(self) -> None:
        await asyncio.to_thread(forget, self._file, self._brought)
        self._forgotten = self._brought
