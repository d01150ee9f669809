"""Documents of the audit record: verification and export."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.documents.common import AtMs, RunId
from remit.runtime.audit import AuditFinding


class Verification(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.verification/1"):
    """Whether a record is intact. Printed by `remit audit verify --json`."""

    ok: Annotated[bool, Meta(description="Whether the record is intact.")]
    file: Annotated[str, Meta(description="The record file.")]
    rows: Annotated[int, Meta(description="Number of rows.")]
    checkpoints: Annotated[int, Meta(description="Number of valid checkpoints.")]
    unprotected: Annotated[
        int, Meta(description="Rows after the last checkpoint. Truncation there would go unnoticed.")
    ]
    findings: Annotated[tuple[AuditFinding, ...], Meta(description="Each place where the record was changed.")]
    keys: Annotated[
        tuple[str, ...], Meta(description="Public keys that signed it. Compare them with a copy kept elsewhere.")
    ]
    anchors: Annotated[int, Meta(description="Number of given anchors that match the record.")] = 0


class AuditRow(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-row/1"):
    """A row as it was hashed; see docs/audit.md for how to verify it. Printed by `remit audit export`."""

    seq: Annotated[int, Meta(description="Row number.")]
    kind: Annotated[str, Meta(description="Kind of record.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session it belongs to.")]
    body: Annotated[str, Meta(description="The JSON text that was hashed, as UTF-8.")]
    previous: Annotated[str, Meta(description="Digest of the previous row; 64 zeros for the first.")]
    digest: Annotated[str, Meta(description="Digest of this row.")]


class AuditCheckpoint(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-checkpoint/1"):
    """A signed checkpoint of the chain. Printed by `remit audit anchor` and, after its row, `remit audit export`."""

    number: Annotated[int, Meta(description="Sequence number. A gap shows that a checkpoint was removed.")]
    seq: Annotated[int, Meta(description="The last row that this checkpoint signs.")]
    digest: Annotated[str, Meta(description="Digest of that row.")]
    at_ms: AtMs
    key: Annotated[str, Meta(description="The public key (Ed25519).")]
    signature: Annotated[str, Meta(description="The signature.")]
