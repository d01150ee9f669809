"""Documents about the upkeep of a store, its copies, and users."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.runtime.audit import AuditFinding

_Refused = Annotated[
    tuple[str, ...], Meta(description="Parts of the record that were left as they are because they do not verify.")
]


class PruneResult(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.prune/1"):
    """What was removed by age. Printed by `remit store prune --json`."""

    dry_run: Annotated[bool, Meta(description="Whether nothing was removed, and this is what would be.")]
    records: Annotated[int, Meta(description="Records that were removed whole.")]
    texts: Annotated[int, Meta(description="Records of which only the texts were removed.")]
    values: Annotated[int, Meta(description="Redacted values.")]
    facts: Annotated[int, Meta(description="Facts about users, and notes of conversations.")]
    bytes: Annotated[int, Meta(description="About how many bytes the removed records take.")]
    returned: Annotated[int, Meta(description="By how many bytes the store has shrunk.")]
    refused: _Refused


class ArchiveResult(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.archive/1"):
    """What was archived. Printed by `remit store archive --json`."""

    folder: Annotated[str, Meta(description="The folder of the archive.")]
    written: Annotated[int, Meta(description="Segments that were written.")]
    known: Annotated[int, Meta(description="Segments that were there already.")]


class ArchiveCheck(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.archive-check/1"):
    """Whether an archive is intact. Printed by `remit store verify-archive --json`."""

    ok: Annotated[bool, Meta(description="Whether nothing is wrong.")]
    compared: Annotated[bool, Meta(description="Whether it was compared with the store.")]
    segments: Annotated[int, Meta(description="Segments in it.")]
    first: Annotated[int, Meta(description="The first row in it.")]
    last: Annotated[int, Meta(description="The last row in it.")]
    removed: Annotated[int, Meta(description="Rows that had been removed when they were archived.")]
    keys: Annotated[tuple[str, ...], Meta(description="The public keys that signed it.")]
    findings: Annotated[tuple[str, ...], Meta(description="What is wrong.")]


class BackupResult(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.backup/1"):
    """What a backup holds. Printed by `remit store backup --json`."""

    file: Annotated[str, Meta(description="The file.")]
    rows: Annotated[int, Meta(description="Rows of the record.")]
    bytes: Annotated[int, Meta(description="The size of the file.")]
    keys: Annotated[tuple[str, ...], Meta(description="The keys in it.")]
    missing: Annotated[tuple[str, ...], Meta(description="Files beside the store that are not in it.")]


class RestoreResult(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.restore/1"):
    """What was restored. Printed by `remit store restore --json`."""

    store: Annotated[str, Meta(description="The store.")]
    rows: Annotated[int, Meta(description="The last row of the backup.")]
    made_ms: Annotated[int, Meta(description="When the backup was made.")]
    ended: Annotated[int, Meta(description="Open runs that ended with OUTCOME_UNKNOWN.")]
    aside: Annotated[str | None, Meta(description="Where the store that was there before is kept.")]
    lost: Annotated[tuple[str, ...], Meta(description="What is lost because a key is missing.")]
    ok: Annotated[bool, Meta(description="Whether the restored record verifies.")]


class EraseResult(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.erase/1"):
    """What was erased of a user. Printed by `remit users erase --json`."""

    user: Annotated[str, Meta(description="The user.")]
    subject: Annotated[str, Meta(description="The digest of the name under which the erasure is recorded.")]
    records: Annotated[int, Meta(description="Records.")]
    facts: Annotated[int, Meta(description="Facts.")]
    values: Annotated[int, Meta(description="Redacted values.")]
    refused: _Refused


class StoreCopy(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.store-copy/1"):
    """A copy of a store that is complete. Printed by `remit store copy --json`."""

    ok: Annotated[bool, Meta(description="Whether the record of the copy is intact.")]
    source: Annotated[str, Meta(description="The store that was copied, without its password.")]
    target: Annotated[str, Meta(description="The copy, without its password.")]
    rows: Annotated[
        dict[str, int], Meta(description="Number of rows in each table of the copy. Each of them was compared.")
    ]
    head: Annotated[int, Meta(description="Number of the last row of the record, the same in both.")]
    digest: Annotated[str, Meta(description="Digest of that row, the same in both.")]
    checkpoints: Annotated[int, Meta(description="Number of valid checkpoints.")]
    findings: Annotated[tuple[AuditFinding, ...], Meta(description="Each place where the record was changed before.")]
    keys: Annotated[tuple[str, ...], Meta(description="Public keys that signed it.")]
    key: Annotated[str, Meta(description="The file with the key of the copy; empty if the source has no key.")]
    open_runs: Annotated[int, Meta(description="Runs that are not over: a hub that opens the copy takes them up.")]
    resumed: Annotated[bool, Meta(description="Whether this went on with an unfinished copy.")]
    written: Annotated[int, Meta(description="Number of rows that were written this time.")]
    seconds: Annotated[float, Meta(description="How long it took this time.")]
    notices: Annotated[tuple[str, ...], Meta(description="What is worth knowing about it.")] = ()
