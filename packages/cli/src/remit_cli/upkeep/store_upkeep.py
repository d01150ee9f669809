"""The steps of upkeep, which are the same for both engines."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.ports.upkeep import Erased, Pruned, Retention
from remit.protocol.codec import encode
from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit import ChainRow, RemovedRow
from remit.runtime.signing import Checkpoint, CheckpointKey, read_key
from remit.stores.audit import StoredChain
from remit.stores.database import FORGOTTEN, KEPT, SqlConnection
from remit.stores.messages import MessageIndex
from remit.stores.opening import STORE
from remit.stores.schema import KINDS
from remit.stores.user_keys import PREFIX_BYTES, UserCipher, key_id_of
from remit_cli.upkeep import user_data
from remit_cli.upkeep.removal import (
    HAVING_TEXTS,
    NEVER_REMOVED,
    ExpiredRows,
    OfUser,
    RemovedPart,
    SealedSegment,
    SegmentChanges,
    Selection,
    VerifiedRow,
    outline_of,
    plan,
    segments,
    verified,
)
from remit_cli.upkeep.user_data import OPEN_SESSIONS, Ageing, Deleted, Kept, UserBelongings, kept_record

T = TypeVar("T")

# Between two segments, hubs get the store for half as long as they waited, and at least for this long.
REST_SHARE = 0.5
REST_SECONDS = 0.01
# How many rows are searched at once for what belongs to a user.
_STEP = 10_000

# A run whose outcome is still given to whoever asks again stays whole; so does one that may be resumed.
_UNUSED = f"""
    AND NOT EXISTS (SELECT 1 FROM remit.request WHERE request.run = record.run AND {KEPT})
    AND record.session NOT IN ({OPEN_SESSIONS})
"""
_NEVER = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))
_TEXTUAL = ", ".join(str(KINDS[kind]) for kind in HAVING_TEXTS)

# Where a body of each kind names its user. Other records belong to whoever's run it is.
_USER_IN_BODY: dict[int, tuple[str, ...]] = {
    KINDS[Kind.STARTED]: ("remit", "user"),
    KINDS[Kind.DELEGATION]: ("remit", "user"),
    KINDS[Kind.REFUSED]: ("request", "remit", "user"),
    KINDS[Kind.SHARED]: ("requester",),
}
# Bodies in which the name of a user stands: not every server can parse all of them, so `_names_user` confirms it.
_HINT = (
    f"(kind IN ({', '.join(map(str, _USER_IN_BODY))}) AND (position({{}}::bytea IN body) > 0"
    " OR position({}::bytea IN body) > 0))"
)
# Bodies that are encrypted under the key of a user, and are read as they are stored.
_ENCRYPTED = f"coalesce(substr(body, 1, {PREFIX_BYTES}) = {{}}::bytea, FALSE)"
_OWN = f"(run = ANY ($5::text[]) OR {_ENCRYPTED.format('$6')})"


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
    _messages: MessageIndex
    _accepted: set[str]
    """The keys that may have signed."""
    _seq: str
    """The number of a record, in a query of `_segment`."""
    _segment: str
    """The records from $1 to $2 of the chain, as the end of a query that further conditions may follow."""

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
    async def _outlined(self, segment: SealedSegment) -> Collection[int]:
        """Return the rows of a segment of which only an outline, or the digest, is kept."""

    @abstractmethod
    async def _key_prefix(self, user: str) -> bytes | None:
        """Return how the texts of a user begin that this connection does not read decrypted; None: there are none."""

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

    # ── everything that is too old ────────────────────────────────────────────────────────────────────────────────────

    def prune(
        self,
        keep: Retention,
        *,
        dry: bool = False,
        archived: Callable[[SealedSegment], object] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Pruned:
        """Remove what *keep* no longer keeps; each step is a transaction of its own, so that it can be killed anywhere.

        *archived* is called with each segment before rows of it are removed. It ends early once *stopped* returns true.
        """
        now_ms = self.now_ms()
        rows = texts = size = 0
        refused: list[str] = []
        for segment in self.segments():
            if stopped() or not _is_due(segment, keep, now_ms):
                break
            whole = keep.records is not None and segment.sealed_ms <= now_ms - keep.records
            expired = ExpiredRows(keep.rule(), whole)
            if not self._run(self._choose_rows(segment, expired)):
                continue
            if not dry:
                archived(segment)
            began = time.monotonic()
            part = self._run_again(lambda: self._remove(segment, expired, dry=dry))  # noqa: B023 - called at once
            rows, texts, size = rows + part.rows, texts + part.texts, size + part.bytes
            refused += [part.refused] if part.refused else []
            if not dry:
                time.sleep(max(REST_SECONDS, REST_SHARE * (time.monotonic() - began)))

        def forget(what: Ageing, age_ms: int | None) -> int:
            return 0 if age_ms is None else self._run_again(lambda: self._forget(what, now_ms - age_ms, dry=dry))

        values = forget("values", keep.vault)
        facts = forget("facts", keep.facts) + forget("notes", keep.messages)
        # Whose they are is known only to whoever holds the key; so they go when no fact can need them any more.
        forget("fact_values", keep.facts)
        returned = 0
        if not dry:
            if rows or texts:
                self.seal()
            returned = self.give_back()
        return Pruned(rows, texts, values, facts, size, returned, tuple(refused))

    async def _forget(self, what: Ageing, before_ms: int, *, dry: bool) -> int:
        async with self._transaction(dry=dry):
            act = user_data.count_aged if dry else user_data.delete_aged
            return await act(self._database, what, before_ms)

    # ── everything of a user ──────────────────────────────────────────────────────────────────────────────────────────

    def erase(self, user: str, keys: HubKeys) -> Erased:
        """Remove everything of a user, and record that it was done; doing it again completes what was interrupted.

        *keys* are those with which redacted values are encrypted. Raises `StoreError` while runs of the user are open.
        """
        self._run(user_data.check_no_open_run(self._database, user))
        subject = subject_of(self.key, user)
        self.seal()  # so that everything of theirs is in a segment
        belongings = self._run(self._belongings(user, keys))
        selection = OfUser(user, belongings.runs, subject)
        parts = [
            self._run_again(lambda: self._remove(segment, selection))  # noqa: B023 - called at once
            for segment in self.segments()
        ]
        rows = sum(part.rows for part in parts)
        values, facts = self._run_again(lambda: self._delete(belongings, rows, subject))
        self.seal()
        self.give_back()
        return Erased(subject, rows, facts, values, tuple(part.refused for part in parts if part.refused))

    async def _delete(self, of: UserBelongings, rows: int, subject: str) -> Deleted:
        """Delete what is kept about a user besides records, and record the erasure of *rows* records."""
        async with self._transaction():
            # What was submitted meanwhile would be lost with the rest.
            await self._lock_requests()
            await user_data.check_no_open_run(self._database, of.user)
            await self._messages.forget_conversations(self._database, of.sessions)
            deleted = await user_data.delete(self._database, of)
            text = (
                f"erased the user with the digest {subject}: {rows} records, {deleted.facts} facts,"
                f" {deleted.values} redacted values"
            )
            await self._record(Kind.NOTICE, Notice(delegation=STORE, agent="remit", text=text))
            return deleted

    def kept_about(self, user: str, keys: HubKeys) -> Iterator[Kept]:
        """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
        of = self._run(self._belongings(user, keys))
        for kept in self._kept_records(of), user_data.kept_besides(self._database, of, keys):
            while (each := self._run(anext(kept, None))) is not None:
                yield each

    async def _kept_records(self, of: UserBelongings) -> AsyncIterator[Kept]:
        columns = f"{self._seq} AS seq, kind, at_ms, run, session, body"
        sql = f"SELECT {columns} {self._segment} AND {self._seq} = ANY ($3::bigint[])"
        head, _ = await self._chain.head()
        for first in range(1, head + 1, _STEP):
            last = min(first + _STEP - 1, head)
            numbers = await self._rows_of_user(first, last, of.user, of.runs)
            for row in await self._database.fetch(f"{sql} ORDER BY 1", first, last, numbers) if numbers else ():
                yield kept_record(*row)

    async def _belongings(self, user: str, keys: HubKeys) -> UserBelongings:
        rows = await self._database.fetch(
            "SELECT run, kind, body FROM remit.record"
            f" WHERE kind = $1 AND ({_HINT.format('$2', '$3')} OR {_ENCRYPTED.format('$4')})",
            *(KINDS[Kind.STARTED], *_mentions(user), await self._key_prefix(user)),
        )
        started = [run for run, kind, body in rows if _names_user(kind, body, user)]
        return await user_data.belongings(self._database, user, started, keys)

    # ── one segment ───────────────────────────────────────────────────────────────────────────────────────────────────

    def now_ms(self) -> int:
        """Return the time by which ages are judged."""
        return self._run(self._now())

    def segments(self) -> list[SealedSegment]:
        """Return the sealed segments, oldest first."""

        async def read_segments() -> list[SealedSegment]:
            return segments(await self._chain.checkpoints(), [each for _, each in await self._chain.removals()])

        return self._run(read_segments())

    async def _choose_rows(self, segment: SealedSegment, selection: Selection) -> list[int]:
        if isinstance(selection, OfUser):
            return await self._rows_of_user(segment.first, segment.last, selection.user, selection.runs)
        chosen = f"kind NOT IN ({_NEVER})" if selection.whole else f"kind IN ({_TEXTUAL})"
        sql = f"SELECT {self._seq} {self._segment} AND {chosen} {_UNUSED}"
        rows = await self._database.fetch(sql, segment.first, segment.last)
        outlined = () if selection.whole or not rows else await self._outlined(segment)
        return sorted({seq for (seq,) in rows}.difference(outlined))

    async def _rows_of_user(self, first: int, last: int, user: str, runs: tuple[str, ...]) -> list[int]:
        sql = f"""
            SELECT {self._seq}, kind, CASE WHEN NOT {_OWN} THEN body END AS body {self._segment}
            AND kind NOT IN ({_NEVER}) AND ({_OWN} OR {_HINT.format("$3", "$4")})
        """
        prefix = await self._key_prefix(user)
        rows = await self._database.fetch(sql, first, last, *_mentions(user), list(runs), prefix)
        return sorted(seq for seq, kind, body in rows if body is None or _names_user(kind, body, user))

    async def _remove(self, segment: SealedSegment, selection: Selection, *, dry: bool = False) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        async with self._transaction(dry=dry):
            chosen = await self._choose_rows(segment, selection)
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
        await self._messages.forget_conversations(self._database, [session for (session,) in over])

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


def key_for_removal(name: str, file: Path) -> CheckpointKey:
    """Return the key of a store, with which removals are signed."""
    try:
        return read_key(file)
    except FileNotFoundError as error:
        message = f"the key of {name} is gone: there is no {file}"
        advice = "Put it back from a backup: without it, nothing can be removed so that the record still verifies."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error


def subject_of(key: CheckpointKey, user: str) -> str:
    """Return the digest under which an erasure is recorded: whoever holds the key can check a name against it."""
    return blake2b(user.encode(), key=key.seed, digest_size=16, person=b"remit subject").hexdigest()


def _is_due(segment: SealedSegment, keep: Retention, now_ms: int) -> bool:
    ages = [age for age in (keep.records, keep.messages) if age is not None]
    return bool(ages) and segment.sealed_ms <= now_ms - min(ages)


def _mentions(user: str) -> tuple[bytes, bytes]:
    """Return how a user is named in bodies."""
    name = encode(user)
    return b'"user":' + name, b'"requester":' + name


def _names_user(kind: int, body: bytes, user: str) -> bool:
    value: Any = msgspec.json.decode(body)
    for step in _USER_IN_BODY[kind]:
        value = value.get(step, {})
    return bool(value == user)
