"""The files of a device's runs: attached by a person to the next message, or received with an answer."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.errors import Code, RemitError, fault
from remit.words.components import cut
from remit.words.file_types import guessed
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.state import DeviceFile
from remit_relay.messages.types import QuestionMessage, latest_offers
from remit_relay.session import moves
from remit_relay.session.moves import ENDED
from remit_relay.session.profile import (
    KEEP_FILES_MS,
    MAX_FILES,
    AttachedFile,
    Attachment,
    FileRules,
    Profile,
    refused_file,
    refused_files,
)
from remit_relay.session.run import Overlay, Person

# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#     file/RUN/ID           the content of one file
#
# A file is stored before its run names it, and is deleted after its run no longer does: `sweep_contents` finds what
# a crash left between the two.


class StoredFile(Struct, frozen=True):
    """The content of a file."""

    data: bytes


def store_contents(file: DeviceFile, run: str, contents: Iterable[bytes]) -> list[str]:
    """Store the contents of files for a run, together or not at all; return their ids."""
    ids: list[str] = []
    with file.writing():
        for data in contents:
            ids.append(secrets.token_hex(8))
            file.keep(_name_of(run, ids[-1]), StoredFile(data))
    return ids


def load_content(file: DeviceFile, run: str, id: str) -> bytes | None:
    """Return the content of a file; None if it is not kept any more."""
    stored = file.fact(_name_of(run, id), StoredFile)
    return None if stored is None else stored.data


def delete_contents(file: DeviceFile, run: str, ids: Iterable[str]) -> None:
    """Delete files of a run."""
    with file.writing():
        for each in ids:
            file.execute("DELETE FROM facts WHERE name = ?", _name_of(run, each))


def sweep_contents(
    file: DeviceFile, runs: Mapping[str, Overlay], keep_ms: Mapping[str, int], now_ms: int, *, orphans: bool
) -> None:
    """Delete files of ended runs after the time of their profile; and *orphans*, which no run names.

    Orphans are deleted only while no file is being stored: between the two commits of a file it is one.
    """
    with file.writing():
        for (name,) in file.rows("SELECT name FROM facts WHERE name >= 'file/' AND name < 'file0'"):
            _, run_id, id = name.split("/")
            run = runs.get(run_id)
            named = None if run is None else next((each for each in files_of(run) if each.id == id), None)
            if orphans if run is None or named is None else not _is_kept(run, named, keep_ms, now_ms):
                file.execute("DELETE FROM facts WHERE name = ?", name)


def _is_kept(run: Overlay, named: Attachment, keep_ms: Mapping[str, int], now_ms: int) -> bool:
    return run.state not in ENDED or now_ms - named.at_ms < keep_ms.get(run.profile, KEEP_FILES_MS)


def files_of(run: Overlay) -> tuple[Attachment, ...]:
    """Return all files of a run: those that wait for the next message, and those of its messages."""
    return (*run.attached, *(file for entry in (*run.timeline, *run.kept) for file in entry.files))


def _name_of(run: str, id: str) -> str:
    return f"file/{run}/{id}"


# ── files of runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


SWEEP_MS = 3_600_000
_LONGEST_SHOWN = 200


class Acts(Protocol):
    """Applies an action of a person to a run."""

    def __call__(self, run: str, event: moves.Event, *, by: Person | None) -> Awaitable[Overlay]: ...


class RunFiles:
    """Attaches, checks and returns files. Their contents are in the device's file, and runs name them."""

    def __init__(
        self,
        file: DeviceFile,
        delivery: MessageDelivery,
        runs: Mapping[str, Overlay],
        profiles: Mapping[str, Profile],
        act: Acts,
        now_ms: Callable[[], int],
    ) -> None:
        self._file = file
        self._delivery = delivery
        self._runs = runs
        self._profiles = profiles
        self._act = act
        self._now_ms = now_ms
        self._attaching = asyncio.Lock()
        self._swept_ms = 0

    async def attach(
        self, run_id: str, name: str, data: bytes, *, media_type: str = "", by: Person | None = None
    ) -> Overlay:
        """Add a file to the next message of a run, or raise a `RemitError` that names the file and the rule."""
        file = AttachedFile(name=name, media_type=media_type or guessed(name, data), data=data)
        async with self._attaching:
            run = self._run(run_id)
            for rules, who in await self._delivery.do(self._rules, run):
                if (why := refused_file(rules, file, run.attached, who=who)) is not None:
                    raise RemitError(why)
            (id,) = await self._delivery.do(store_contents, self._file, run.id, [data])
            attached = Attachment(id=id, name=name, media_type=file.media_type, size=len(data), at_ms=self._now_ms())
            try:
                return await self._act(run.id, moves.Attach(attached), by=by)
            except RemitError:
                await self._delivery.do(delete_contents, self._file, run.id, [id])
                raise

    async def detach(self, run_id: str, file: str, *, by: Person | None = None) -> Overlay:
        """Remove a file, by id or name, from the next message of a run."""
        attachment = _find(self._run(run_id).attached, file)
        if attachment is None:
            raise RemitError(fault(Code.NOT_FOUND, f"no file `{file[:100]}` waits for the next message"))
        run = await self._act(run_id, moves.Detach(attachment.id), by=by)
        # A message that got lost may name it too.
        if _find(files_of(run), attachment.id) is None:
            await self._delivery.do(delete_contents, self._file, run_id, [attachment.id])
        return run

    async def content(self, run_id: str, file: str) -> tuple[Attachment, bytes]:
        """Return a file of a run, by its id or the name of the newest, or raise a `RemitError`."""
        attachment = _find(files_of(self._run(run_id)), file)
        if attachment is None:
            raise RemitError(fault(Code.NOT_FOUND, f"the run has no file `{file[:100]}`"))
        data = None if attachment.refused else await self._delivery.do(load_content, self._file, run_id, attachment.id)
        if data is None:
            why = attachment.refused or "it is not kept any more"
            raise RemitError(fault(Code.NOT_FOUND, f"the file {attachment.name[:100]!r} is not here: {why}"))
        return attachment, data

    def with_files(self, run: Overlay, message: QuestionMessage, files: Sequence[Attachment]) -> QuestionMessage:
        """Return a message with its files, in the caller's transaction.

        Raises a `RemitError` if one of them is not allowed: rules may have changed since it was attached.
        """
        loaded: list[AttachedFile] = []
        for each in files:
            data = load_content(self._file, run.id, each.id)
            if data is None:
                raise RemitError(fault(Code.NOT_FOUND, f"the file {each.name[:100]!r} is not here any more"))
            loaded.append(AttachedFile(name=each.name, media_type=each.media_type, data=data))
        for rules, who in self._rules(run) if loaded else ():
            if (why := refused_files(rules, loaded, who=who)) is not None:
                raise RemitError(why)
        return replace(message, files=tuple(loaded))

    async def accept(self, run: Overlay, files: Sequence[AttachedFile]) -> tuple[Attachment, ...]:
        """Store the files of an answer that the profile allows; return all of them, the others with the reason."""
        if not files:
            return ()
        rules, who = self._own_rules(run)
        now_ms, kept = self._now_ms(), list[AttachedFile]()
        whys: list[str] = []
        for each in files[:MAX_FILES]:
            why = refused_file(rules, each, kept, who=who)
            whys.append("" if why is None else why.message)
            if why is None:
                kept.append(each)
        ids = iter(await self._delivery.do(store_contents, self._file, run.id, [each.data for each in kept]))
        return tuple(
            Attachment(
                id="" if why else next(ids),
                name=cut(each.name, _LONGEST_SHOWN) if why else each.name,
                media_type="" if why else each.media_type,
                size=len(each.data),
                at_ms=now_ms,
                refused=why,
            )
            for each, why in zip(files[:MAX_FILES], whys, strict=True)
        )

    async def drop(self, run: Overlay, files: Sequence[Attachment]) -> None:
        """Delete files of an answer that the run did not take."""
        if files:
            await self._delivery.do(delete_contents, self._file, run.id, [each.id for each in files])

    async def sweep(self, *, orphans: bool = False) -> None:
        """Once an hour, delete files of runs that ended long ago; at a start also *orphans*, which no run names."""
        now_ms = self._now_ms()
        if not orphans and 0 <= now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        keep_ms = {name: profile.keep_files_ms for name, profile in self._profiles.items()}
        await self._delivery.do(sweep_contents, self._file, dict(self._runs), keep_ms, now_ms, orphans=orphans)

    def _run(self, id: str) -> Overlay:
        if id not in self._runs:
            raise RemitError(fault(Code.NOT_FOUND, f"run `{id[:100]}` not found on this device"))
        return self._runs[id]

    def _own_rules(self, run: Overlay) -> tuple[FileRules, str]:
        profile = self._profiles.get(run.profile)
        return (FileRules() if profile is None else profile.files), f"the profile {run.profile}"

    def _rules(self, run: Overlay) -> list[tuple[FileRules, str]]:
        """Return the rules for files to another device: the profile's, and what the other agent says it takes."""
        offer = latest_offers(self._file, run.device)
        if offer is None:
            return [self._own_rules(run)]
        name = run.agent or (offer[0].name if len(offer) == 1 else "")
        theirs = next((each.files for each in offer if each.name == name), None) or FileRules()
        return [self._own_rules(run), (theirs, f"the shared agent {run.agent}".rstrip())]


def _find(files: Sequence[Attachment], named: str) -> Attachment | None:
    """Return the file with an id, or else the newest with a name."""
    by_id = next((each for each in files if each.id and each.id == named), None)
    return by_id or next((each for each in reversed(files) if each.name == named), None)
