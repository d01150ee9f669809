"""Documents about stores."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.runtime.audit import AuditFinding


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
