"""The findings of a verification, and its verdict."""

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

# The most findings reported for a chain that is broken everywhere; the first ones show where to look.
MAX_FINDINGS = 100


class Tampering(StrEnum):
    """What was done to the record."""

    EDITED = "edited"
    DELETED = "deleted"
    INSERTED = "inserted"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"
    """Rows were changed and everything after them was hashed again: the chain holds, a checkpoint does not."""
    UNSIGNED = "unsigned"
    """Rows stay after the last checkpoint for longer than a working hub leaves them there."""
    DATED_AHEAD = "dated ahead"
    """Rows that no checkpoint signed are dated later than now."""
    CHECKPOINT_FORGED = "checkpoint forged"
    CHECKPOINT_MISSING = "checkpoint missing"
    CHECKPOINT_ROW_MISSING = "checkpoint row missing"
    """The database's own row about its last checkpoint was deleted."""
    CHECKPOINTS_DISAGREE = "checkpoints disagree"
    """The database and the checkpoint file disagree about the last checkpoint."""
    KEY_SIGNED_NOTHING = "key signed nothing"
    """A known key signed no checkpoint of this record, though it is older than the rows."""
    KEY_CHANGED = "key changed"
    """A break that the hub announced: it found another key, or none and made a new one."""
    BREAK_ANNOUNCED = "break announced"
    """A break that the hub announced: rows and checkpoints did not match when it opened the store."""
    ROLLED_BACK = "rolled back"
    """The record ends before a row that an anchor kept elsewhere has signed."""
    ANCHOR_MISMATCH = "anchor mismatch"
    """The record does not match what an anchor kept elsewhere has signed."""
    ANCHOR_FORGED = "anchor forged"
    """An anchor was not signed by the key of this record."""
    REMOVAL_FORGED = "removal forged"
    """A statement that rows were removed on purpose was not signed by the key of this record, or does not match it."""


# Findings whose numbers are checkpoint numbers.
_OF_CHECKPOINTS = frozenset(
    {Tampering.CHECKPOINT_FORGED, Tampering.CHECKPOINT_MISSING, Tampering.CHECKPOINTS_DISAGREE, Tampering.ANCHOR_FORGED}
)

# Findings about the record as a whole.
_OF_NOTHING = frozenset({Tampering.CHECKPOINT_ROW_MISSING, Tampering.KEY_SIGNED_NOTHING})

SIGNED_OTHERWISE = "is signed by another key"

_ANNOUNCED = frozenset({Tampering.KEY_CHANGED, Tampering.BREAK_ANNOUNCED})


class AuditFinding(Struct, frozen=True, kw_only=True):
    """One place where the record was changed: rows *first* to *last*, or checkpoints of those numbers.

    Both are 0 where the finding has no place.
    """

    tampering: Tampering
    first: int
    last: int
    message: str

    def __str__(self) -> str:
        if self.tampering in _OF_NOTHING:
            return f"{self.tampering}: {self.message}"
        what = "" if self.tampering in _OF_CHECKPOINTS else "row "
        where = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"{self.tampering}: {what}{where}: {self.message}"


class AuditVerdict(Struct, frozen=True, kw_only=True):
    """The result of verification; *unprotected* rows follow the last checkpoint, where a cut would not be noticed."""

    rows: int
    """How many rows were read."""
    checkpoints: int
    """How many signed checkpoints were checked."""
    unprotected: int
    """How many rows no checkpoint protects yet: no signature covers them."""
    findings: tuple[AuditFinding, ...] = ()
    """What is wrong; none: nothing is."""
    keys: tuple[str, ...] = ()
    """The signer: compare it with a note kept elsewhere if the key file itself may have been replaced."""
    anchors: int = 0
    """How many anchors the record agrees with."""
    removed: int = 0
    """How many rows were removed, at least their texts, as signed statements in the record say."""
    since: int = 0
    """The row up to which the record was verified before; 0: all of it was verified now."""
    unchained: int = 0
    """How many records are durable and not in the chain yet: several hubs share the store."""
    unprotected_since_ms: int = 0
    """The time of the first row that no signature covers, in milliseconds since 1970; 0: there is none."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def announced(self) -> bool:
        """Whether all findings are breaks that a hub announced."""
        return not self.ok and all(finding.tampering in _ANNOUNCED for finding in self.findings)

    @property
    def other_key(self) -> bool:
        """Whether the only problem is that all checkpoints were validly signed by another key than the known one.

        This happens if the key was lost or replaced, and also if all checkpoints were forged.
        """
        return not self.ok and not self.keys and all(SIGNED_OTHERWISE in each.message for each in self.findings)

    def __str__(self) -> str:
        found = _many(len(self.findings), "finding")
        if self.ok:
            state = "the record is whole"
        elif self.announced:
            state = f"the hub announced a break in the record ({found})"
        elif self.other_key:
            state = f"the record is consistent, but the known key did not sign it ({found})"
        else:
            state = f"the record was tampered with ({found})"
        counts = f"{_many(self.rows, 'row')}, {_many(self.checkpoints, 'checkpoint')}"
        lines = [f"{state}: {counts}, {_many(self.unprotected, 'row')} after the last"]
        if self.unprotected:
            since = datetime.fromtimestamp(self.unprotected_since_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(f"  no signature covers the last {_many(self.unprotected, 'row')}, since {since} UTC")
        lines += [f"  rows 1 to {self.since} were verified before, and only those after them now"] if self.since else []
        lines += [f"  {_many(self.removed, 'row')} pruned or erased, as the record says"] if self.removed else []
        lines += [f"  {_many(self.unchained, 'record')} not in the chain yet"] if self.unchained else []
        lines += [f"  agrees with {_many(self.anchors, 'anchor')}"] if self.anchors else []
        lines += [f"  {finding}" for finding in self.findings]
        lines += [f"  signed by {key}" for key in self.keys]
        return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
