"""The record, as it is checked and exported."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.documents.common import AtMs, RunId
from remit.runtime.audit import AuditFinding


class Verification(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.verification/1"):
    """Whether a record is what was written. Printed by `remit audit verify --json`."""

    ok: Annotated[bool, Meta(description="Whether it is whole.")]
    file: Annotated[str, Meta(description="The record.")]
    rows: Annotated[int, Meta(description="How many rows it has.")]
    checkpoints: Annotated[int, Meta(description="How many checkpoints can be relied on.")]
    unprotected: Annotated[int, Meta(description="Rows after the last checkpoint, where a cut would not be seen.")]
    findings: Annotated[tuple[AuditFinding, ...], Meta(description="Each place where it is not what was written.")]
    keys: Annotated[tuple[str, ...], Meta(description="Who signed, to be compared with a note kept elsewhere.")]
    anchors: Annotated[int, Meta(description="How many of the given anchors it agrees with.")] = 0


class AuditRow(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-row/1"):
    """A row as it was hashed; docs/audit.md says how to check it. Printed by `remit audit export`."""

    seq: Annotated[int, Meta(description="Its number.")]
    kind: Annotated[str, Meta(description="What it tells.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session in whose conversation it stands.")]
    body: Annotated[str, Meta(description="The JSON text whose bytes in UTF-8 were hashed.")]
    previous: Annotated[str, Meta(description="The digest of the row before; 64 zeros for the first.")]
    digest: Annotated[str, Meta(description="Its own digest.")]


class AuditCheckpoint(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-checkpoint/1"):
    """A signed statement about the chain. Printed by `remit audit anchor` and, after its row, `remit audit export`."""

    number: Annotated[int, Meta(description="Its number: they are counted, so that none can be taken out unseen.")]
    seq: Annotated[int, Meta(description="The row up to which the chain is signed.")]
    digest: Annotated[str, Meta(description="The digest of that row.")]
    at_ms: AtMs
    key: Annotated[str, Meta(description="The public key (Ed25519).")]
    signature: Annotated[str, Meta(description="The signature.")]
