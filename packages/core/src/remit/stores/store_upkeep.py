"""The steps of upkeep, which are the same for both engines."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit import ChainRow, RemovedRow
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.runtime.signing import Checkpoint, CheckpointKey, read_key
from remit.stores import user_data
from remit.stores.audit import StoredChain
from remit.stores.database import FORGOTTEN, KEPT, SqlConnection
from remit.stores.opening import STORE
from remit.stores.removal import (
    ExpiredRows,
    OfUser,
    RemovedPart,
    SealedSegment,
    SegmentChanges,
    Selection,
    VerifiedRow,
    plan,
    segments,
    verified,
)
from remit.stores.retention import HAVING_TEXTS, NEVER_REMOVED, Erased, Retention, outline_of
from remit.stores.schema import KINDS
from remit.stores.user_data import OPEN_SESSIONS, Ageing, Belongings, Deleted, Kept
from remit.stores.user_keys import UserCipher, key_id_of

T = TypeVar("T")


class SegmentRows(NamedTuple):
    """What an archive holds of a segment."""

    rows: list[tuple[ChainRow | RemovedRow, bytes]]
    """The rows, each with its digest."""
    before: bytes
    """The digest of the row before them."""
    checkpoints: list[Checkpoint | None]


class StoreUpkeep(ABC):
    """A connection that removes rows, beside the hubs that write."""

    key: CheckpointKey
    _chain: StoredChain
    _accepted: set[str]
    """The keys that may have signed."""

    # ── what each engine does ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def _database(self) -> SqlConnection: ...

    @abstractmethod
    def _run(self, work: Awaitable[T]) -> T:
        """Return the result of some work on the connection."""

    @abstractmethod
    def _run_again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of some work, which is tried again if it was rolled back for the sake of another's."""

    @abstractmethod
    def _transaction(self, *, dry: bool = False) -> AbstractAsyncContextManager[None]:
        """Hold one state of the store; unless it is *dry*, nobody else removes anything meanwhile."""

    @abstractmethod
    async def _now(self) -> int: ...

    @abstractmethod
    async def _expired_rows(self, segment: SealedSegment, expired: ExpiredRows) -> list[int]: ...

    @abstractmethod
    async def _rows_of(self, segment: SealedSegment, of: OfUser) -> list[int]: ...

    @abstractmethod
    async def _load_ciphers(self, ids: Collection[int]) -> None: ...

    @abstractmethod
    def _cipher(self, id: int) -> UserCipher: ...

    @abstractmethod
    async def _write(self, changes: SegmentChanges) -> None:
        """Write what a removal changes, and the record that says so; `_forget_places` of what is gone then."""

    @abstractmethod
    async def _record(self, kind: Kind, body: Removal | Notice) -> None:
        """Append a record about the store itself, in an open transaction."""

    @abstractmethod
    async def _lock_requests(self) -> None:
        """Have nobody submit a request before the transaction ends."""

    @abstractmethod
    async def _started_by(self, user: str) -> list[str]: ...

    @abstractmethod
    def _kept_records(self, runs: tuple[str, ...], user: str) -> AsyncIterator[Kept]: ...

    @abstractmethod
    async def _forget_conversations(self, sessions: Sequence[str]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def seal(self) -> None:
        """Sign everything that is committed."""

    @abstractmethod
    def give_back(self) -> int:
        """Free the space of removed rows, without making hubs wait; return by how many bytes the store has shrunk."""

    @property
    @abstractmethod
    def gives_back(self) -> bool:
        """Whether the space of removed rows is given back to the file system without `rebuild`."""

    @abstractmethod
    def rebuild(self) -> int:
        """Write everything anew, without free space; hubs wait meanwhile. Return as `give_back` does."""

    # ── one segment ───────────────────────────────────────────────────────────────────────────────────────────────────

    def now_ms(self) -> int:
        """Return the time by which ages are judged."""
        return self._run(self._now())

    def segments(self) -> list[SealedSegment]:
        """Return the sealed segments, oldest first."""

        async def found() -> list[SealedSegment]:
            return segments(await self._chain.checkpoints(), [each for _, each in await self._chain.removals()])

        return self._run(found())

    def has(self, segment: SealedSegment, selection: Selection) -> bool:
        """Return whether a segment has rows of a selection."""
        return bool(self._run(self._chosen(segment, selection)))

    async def _chosen(self, segment: SealedSegment, selection: Selection) -> list[int]:
        match selection:
            case ExpiredRows():
                return await self._expired_rows(segment, selection)
            case OfUser():
                return await self._rows_of(segment, selection)

    def remove(self, segment: SealedSegment, selection: Selection, *, dry: bool = False) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        return self._run_again(lambda: self._remove(segment, selection, dry=dry))

    async def _remove(self, segment: SealedSegment, selection: Selection, *, dry: bool) -> RemovedPart:
        async with self._transaction(dry=dry):
            chosen = await self._chosen(segment, selection)
            if not chosen:
                return RemovedPart()
            before = await self._chain.digest_at(segment.first - 1)
            try:
                rows = await self._verified(segment, before)
            except ValueError as problem:
                return RemovedPart(refused=f"rows {segment.first} to {segment.last}: {problem}")
            bodies = [row.body for row, _, _ in rows if isinstance(row, ChainRow)]
            await self._load_ciphers({id for body in bodies if (id := key_id_of(body)) is not None})
            part, changes = plan(
                segment,
                selection,
                chosen,
                rows,
                before=before or b"",
                outline=self._outline,
                key=self.key,
                at_ms=await self._now(),
            )
            if not dry and changes.kept:
                await self._write(changes)
            return part

    async def _verified(self, segment: SealedSegment, before: bytes | None) -> list[VerifiedRow]:
        """Return the rows of a segment, or raise `ValueError` where they were tampered with."""
        return list(verified(segment, await self._chain.rows(segment.first, segment.last), before, self._accepted))

    async def _forget_places(self, gone: Sequence[tuple[Any, ...]]) -> None:
        """Delete what is known about the runs and sessions of rows that are *gone*, if no record of them is left."""
        runs, sessions = sorted({run for run, _ in gone}), sorted({session for _, session in gone})
        await self._database.execute(
            f"DELETE FROM remit.request WHERE run = ANY ($1::text[]) AND {FORGOTTEN}"
            " AND NOT EXISTS (SELECT 1 FROM remit.record WHERE record.run = request.run)",
            runs,
        )
        await self._database.execute(
            "DELETE FROM remit.session WHERE id = ANY ($1::text[])"
            " AND NOT EXISTS (SELECT 1 FROM remit.record WHERE record.session = session.id)",
            sessions,
        )
        over = await self._database.fetch(
            "SELECT session FROM remit.conversation WHERE session = ANY ($1::text[])"
            " AND NOT EXISTS (SELECT 1 FROM remit.record WHERE record.session = conversation.session)",
            sessions,
        )
        await self._forget_conversations([session for (session,) in over])

    def _outline(self, kind: Kind, stored: bytes) -> bytes:
        """Return the outline of a body, encrypted like the body itself."""
        id = key_id_of(stored)
        if id is None:
            return outline_of(kind, stored)
        cipher = self._cipher(id)
        return cipher.encrypt(outline_of(kind, cipher.decrypt(stored)))

    def rows_to_archive(self, segment: SealedSegment) -> SegmentRows:
        """Return what an archive holds of a segment; a segment that does not verify is refused."""
        return self._run(self._rows_to_archive(segment))

    async def _rows_to_archive(self, segment: SealedSegment) -> SegmentRows:
        async with self._transaction(dry=True):
            before = await self._chain.digest_at(segment.first - 1)
            try:
                rows = [(row, digest) for row, digest, _ in await self._verified(segment, before)]
            except ValueError as problem:
                message = f"rows {segment.first} to {segment.last} were not archived: {problem}"
                advice = "Check the record with `remit audit verify`."
                raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from problem
            return SegmentRows(rows, before or b"", await self._chain.checkpoints())

    # ── besides records ───────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, what: Ageing, before_ms: int, *, dry: bool) -> int:
        """Delete what is older; return how many there are."""

        async def forgotten() -> int:
            async with self._transaction(dry=dry):
                act = user_data.count_aged if dry else user_data.delete_aged
                return await act(self._database, what, before_ms)

        return self._run_again(forgotten)

    def check_no_open_run(self, user: str) -> None:
        """Raise `StoreError` while a run of a user is open."""
        self._run(user_data.check_no_open_run(self._database, user))

    def belongings(self, user: str, keys: HubKeys) -> Belongings:
        """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""

        async def found() -> Belongings:
            return await user_data.belongings(self._database, user, await self._started_by(user), keys)

        return self._run(found())

    def delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        """Delete what is kept about a user besides records, and record the erasure of *rows* records.

        Raises `StoreError` if a run of the user is open.
        """
        return self._run_again(lambda: self._delete(of, rows, subject))

    async def _delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        async with self._transaction():
            # What was submitted meanwhile would be lost with the rest.
            await self._lock_requests()
            await user_data.check_no_open_run(self._database, of.user)
            await self._forget_conversations(of.sessions)
            found = await user_data.delete(self._database, of)
            await self._record(Kind.NOTICE, _erasure_notice(found, rows, subject))
            return found

    def kept_about(self, user: str, keys: HubKeys) -> Iterator[Kept]:
        """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
        of = self.belongings(user, keys)
        for kept in self._kept_records(of.runs, user), user_data.kept_besides(self._database, of, keys):
            while (each := self._run(anext(kept, None))) is not None:
                yield each


# A run whose outcome is still given to whoever asks again stays whole; so does one that may be resumed.
UNUSED = f"""
    AND NOT EXISTS (SELECT 1 FROM remit.request WHERE request.run = record.run AND {KEPT})
    AND record.session NOT IN ({OPEN_SESSIONS})
"""
NEVER = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))
"""The numbers of the kinds that are never removed."""
TEXTUAL = ", ".join(str(KINDS[kind]) for kind in HAVING_TEXTS)
"""The numbers of the kinds that have texts."""


def key_for_removal(name: str, file: Path) -> CheckpointKey:
    """Return the key of a store, with which removals are signed."""
    try:
        return read_key(file)
    except FileNotFoundError as error:
        message = f"the key of {name} is gone: there is no {file}"
        advice = "Put it back from a backup: without it, nothing can be removed so that the record still verifies."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error


def _erasure_notice(deleted: Deleted, rows: int, subject: str) -> Notice:
    """Return what the record says about an erasure."""
    text = (
        f"erased the user with the digest {subject}: {rows} records, {deleted.facts} facts,"
        f" {deleted.values} redacted values"
    )
    return Notice(delegation=STORE, agent="remit", text=text)


# ── everything that is too old ────────────────────────────────────────────────────────────────────────────────────────


# Between two segments, hubs get the store for half as long as they waited, and at least for this long.
REST_SHARE = 0.5
REST_SECONDS = 0.01


class Pruned(NamedTuple):
    """What was removed, or would be."""

    rows: int = 0
    """Records."""
    texts: int = 0
    """Records of which only the texts were removed."""
    values: int = 0
    """Values behind placeholders."""
    facts: int = 0
    """Facts about users, and notes of conversations."""
    bytes: int = 0
    """About how many bytes all of it takes."""
    returned: int = 0
    """By how many bytes the store has shrunk."""
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.texts or self.values or self.facts)


def prune(
    upkeep: StoreUpkeep,
    keep: Retention,
    *,
    dry: bool = False,
    archived: Callable[[SealedSegment], object] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Remove what *keep* no longer keeps; each step is a transaction of its own, so that it can be killed anywhere.

    *archived* is called with each segment before rows of it are removed. It ends early once *stopped* returns true.
    """
    now_ms = upkeep.now_ms()
    rows = texts = size = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        if stopped() or not _is_due(segment, keep, now_ms):
            break
        whole = keep.records is not None and segment.sealed_ms <= now_ms - keep.records
        expired = ExpiredRows(keep.rule(), whole)
        if not upkeep.has(segment, expired):
            continue
        if not dry:
            archived(segment)
        began = time.monotonic()
        part = upkeep.remove(segment, expired, dry=dry)
        rows, texts, size = rows + part.rows, texts + part.texts, size + part.bytes
        refused += [part.refused] if part.refused else []
        if not dry:
            time.sleep(max(REST_SECONDS, REST_SHARE * (time.monotonic() - began)))

    def forget(what: Ageing, age_ms: int | None) -> int:
        return 0 if age_ms is None else upkeep.forget(what, now_ms - age_ms, dry=dry)

    values = forget("values", keep.vault)
    facts = forget("facts", keep.facts) + forget("notes", keep.messages)
    # Whose they are is known only to whoever holds the key; so they go when no fact can need them any more.
    forget("fact_values", keep.facts)
    returned = 0
    if not dry:
        if rows or texts:
            upkeep.seal()
        returned = upkeep.give_back()
    return Pruned(rows, texts, values, facts, size, returned, tuple(refused))


def _is_due(segment: SealedSegment, keep: Retention, now_ms: int) -> bool:
    ages = [age for age in (keep.records, keep.messages) if age is not None]
    return bool(ages) and segment.sealed_ms <= now_ms - min(ages)


# ── everything of a user ──────────────────────────────────────────────────────────────────────────────────────────────


def subject_of(key: CheckpointKey, user: str) -> str:
    """Return the digest under which an erasure is recorded: whoever holds the key can check a name against it."""
    return blake2b(user.encode(), key=key.seed, digest_size=16, person=b"remit subject").hexdigest()


def erase(upkeep: StoreUpkeep, user: str, keys: HubKeys) -> Erased:
    """Remove everything of a user, and record that it was done; doing it again completes what was interrupted.

    *keys* are those with which redacted values are encrypted. Raises `StoreError` while runs of the user are open.
    """
    upkeep.check_no_open_run(user)
    subject = subject_of(upkeep.key, user)
    upkeep.seal()  # so that everything of theirs is in a segment
    belongings = upkeep.belongings(user, keys)
    rows = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        part = upkeep.remove(segment, OfUser(user, belongings.runs, subject))
        rows += part.rows
        refused += [part.refused] if part.refused else []
    values, facts = upkeep.delete(belongings, rows, subject)
    upkeep.seal()
    upkeep.give_back()
    return Erased(subject, rows, facts, values, tuple(refused))
