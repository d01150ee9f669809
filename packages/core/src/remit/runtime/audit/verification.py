"""Verifies a chain by its digests, its checkpoints and anchors that were kept elsewhere."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from remit.protocol.records import ChainBreak, Removal
from remit.runtime.audit.chain import (
    MAX_FINDINGS,
    SIGNED_OTHERWISE,
    AuditFinding,
    AuditVerdict,
    ChainRow,
    ChainWalk,
    Coverage,
    RemovedRow,
    Tampering,
    Unsigned,
    is_genuine,
)
from remit.runtime.signing import Checkpoint


def verify(
    rows: Iterable[ChainRow | RemovedRow],
    checkpoints: Iterable[Checkpoint | None],
    *,
    remembered: int | None = 0,
    remembered_seq: int | None = None,
    referenced: int = 0,
    public_key: bytes | None = None,
    pinned: Collection[bytes] = (),
    breaks: Sequence[tuple[int, ChainBreak]] = (),
    anchors: Sequence[Checkpoint] = (),
    unsigned: Unsigned | None = None,
    removals: Sequence[tuple[int, Removal]] = (),
    start: Checkpoint | None = None,
    used_ms: int | None = None,
) -> AuditVerdict:
    """Judge a chain, oldest row first, by its digests, its checkpoints and the *anchors* that were kept elsewhere.

    *remembered* is the number of the last checkpoint that the database knows (None: its row about that is lost) and
    *remembered_seq* the row that it signed; *referenced* is the highest row that anything else in the database points
    at. The *pinned* keys, those of the anchors, or the *public_key* must have signed; without any of these, the first
    checkpoint's key is trusted. *breaks* are the rows in which hubs announced that the key changed, or that something
    did not match, and *removals* those in which they stated that rows were removed. *rows* may begin after *start*, the
    checkpoint up to which the record was verified before. *used_ms* is the time of the first row that the *public_key*
    was there for, with the time that a hub takes to sign and more: a record without checkpoints has no later row.
    """
    lines = [each for each in checkpoints if start is None or each is None or each.number > start.number]
    keys = _Keys(pinned, anchors, public_key, lines, breaks)
    seals, findings = _judge_checkpoints(lines, remembered, keys, start.number if start else 0)
    findings.extend(_judge_mark(lines, remembered, remembered_seq))
    findings += keys.findings(seals)
    sealed = max((seal.seq for seal in seals), default=start.seq if start else 0)
    reliable, forged = _judge_anchors(anchors, lines, keys)
    stated, invalid = _judge_removals(removals, keys)
    walk = ChainWalk(seals, reliable, sealed, unsigned, stated, start)
    for row in rows:
        walk.step(row)
    walk.end(max(referenced, sealed))
    if used_ms is not None and not lines and start is None and walk.unsigned_since_ms > used_ms:
        message = "the key beside the store is older than all rows and signed none: the record was replaced"
        findings.append(AuditFinding(tampering=Tampering.KEY_SIGNED_NOTHING, first=0, last=0, message=message))
    return AuditVerdict(
        rows=walk.count,
        checkpoints=len(seals),
        unprotected=max(0, walk.seq - sealed),
        findings=tuple([*findings, *forged, *invalid, *walk.findings][:MAX_FINDINGS]),
        keys=tuple(dict.fromkeys(seal.key for seal in seals)),
        anchors=walk.anchored,
        removed=walk.removed,
        since=start.seq if start else 0,
        unprotected_since_ms=walk.unsigned_since_ms,
    )


def accepted_keys(
    public_key: bytes, checkpoints: Sequence[Checkpoint | None], breaks: Sequence[tuple[int, ChainBreak]]
) -> set[str]:
    """Return the keys that may have signed: the known one, and those whose change a hub announced."""
    return _Keys((), (), public_key, checkpoints, breaks).accepted


class _Keys:
    """The keys that may have signed, and those of them that are only valid because a hub announced the change."""

    def __init__(
        self,
        pinned: Collection[bytes],
        anchors: Sequence[Checkpoint],
        public_key: bytes | None,
        lines: Sequence[Checkpoint | None],
        breaks: Sequence[tuple[int, ChainBreak]],
    ) -> None:
        self._pinned = {key.hex() for key in pinned} or {anchor.key for anchor in anchors if anchor.is_genuine()}
        first = next((line.key for line in lines if line), None)
        trusted = self._pinned or ({public_key.hex()} if public_key else {first} if first else set[str]())
        self._breaks = breaks
        self.accepted = set(trusted)
        changes = [each for _, each in breaks if each.old_key and each.new_key]
        while more := {
            key
            for each in changes
            if {each.old_key, each.new_key} & self.accepted
            for key in (each.old_key, each.new_key)
            if key not in self.accepted
        }:
            self.accepted |= more

    def findings(self, seals: Sequence[Checkpoint]) -> list[AuditFinding]:
        signed = {seal.key for seal in seals}
        findings = [
            AuditFinding(
                tampering=Tampering.KEY_SIGNED_NOTHING, first=0, last=0, message=f"{key} signed no checkpoint here"
            )
            for key in sorted(self._pinned - signed)
        ]
        for seq, each in self._breaks:
            if each.finding == Tampering.KEY_CHANGED:
                if not {each.old_key, each.new_key} <= self._pinned:
                    findings.append(_finding(Tampering.KEY_CHANGED, seq, f"announced by the hub: {each.text}"))
            else:
                message = f"the hub found, when it opened the store: {each.finding}: {each.text}"
                findings.append(_finding(Tampering.BREAK_ANNOUNCED, seq, message))
        return findings


def _judge_checkpoints(
    checkpoints: Iterable[Checkpoint | None], remembered: int | None, keys: _Keys, verified: int
) -> tuple[list[Checkpoint], list[AuditFinding]]:
    """Return the reliable checkpoints after the number *verified*, and what is wrong with the others."""
    genuine: list[Checkpoint] = []
    findings: list[AuditFinding] = []
    expected = verified + 1
    for place, checkpoint in enumerate(checkpoints, start=1):
        if checkpoint is None:
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, expected, f"line {place} is not a valid checkpoint"))
            expected += 1
            continue
        number = checkpoint.number
        if number != expected:
            findings.append(_missing(expected, number - 1, f"checkpoint {number} stands where {expected} should"))
        if not checkpoint.is_genuine():
            findings.append(
                _finding(Tampering.CHECKPOINT_FORGED, number, f"the signature of checkpoint {number} is wrong")
            )
        elif checkpoint.key not in keys.accepted:
            message = f"checkpoint {number} {SIGNED_OTHERWISE}, {checkpoint.key}"
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, number, message))
        else:
            genuine.append(checkpoint)
        expected = number + 1
    if remembered is not None and expected <= remembered:
        findings.append(_missing(expected, remembered, f"the database knows of {remembered} checkpoints"))
    return genuine, findings


def _judge_removals(removals: Sequence[tuple[int, Removal]], keys: _Keys) -> tuple[Coverage, list[AuditFinding]]:
    """Return what the reliable statements cover, and what is wrong with the others."""
    reliable: list[Removal] = []
    findings: list[AuditFinding] = []
    for seq, each in removals:
        if not is_genuine(each):
            message = "the signature of the statement that rows were removed is wrong"
            findings.append(_finding(Tampering.REMOVAL_FORGED, seq, message))
        elif each.key not in keys.accepted:
            message = f"the statement that rows were removed {SIGNED_OTHERWISE}, {each.key}"
            findings.append(_finding(Tampering.REMOVAL_FORGED, seq, message))
        else:
            reliable.append(each)
    return Coverage(reliable), findings


def _judge_mark(
    lines: Sequence[Checkpoint | None], remembered: int | None, remembered_seq: int | None
) -> Iterator[AuditFinding]:
    """Compare the database's note of the last checkpoint with the file."""
    if remembered is None:
        message = "the database's row about its last checkpoint was deleted"
        yield AuditFinding(tampering=Tampering.CHECKPOINT_ROW_MISSING, first=0, last=0, message=message)
        return
    if remembered_seq is None:
        return
    by_number = {line.number: line for line in lines if line}
    last = max(by_number, default=0)
    same = by_number.get(remembered)
    # A process that was killed between the line and the database's row leaves one extra line, never two.
    if last > remembered + 1:
        message = f"the file has {last} checkpoints, the database knows of {remembered}"
        yield AuditFinding(tampering=Tampering.CHECKPOINTS_DISAGREE, first=remembered + 1, last=last, message=message)
    elif same is not None and same.seq != remembered_seq:
        message = f"it signed row {same.seq} in the file, row {remembered_seq} in the database"
        yield _finding(Tampering.CHECKPOINTS_DISAGREE, remembered, message)


def _judge_anchors(
    anchors: Sequence[Checkpoint], lines: Sequence[Checkpoint | None], keys: _Keys
) -> tuple[list[Checkpoint], list[AuditFinding]]:
    """Return the reliable anchors, and the findings that need no look at the rows."""
    last = max((line.number for line in lines if line), default=0)
    reliable: list[Checkpoint] = []
    findings: list[AuditFinding] = []
    for anchor in anchors:
        number = anchor.number
        if not anchor.is_genuine():
            message = f"the signature of the anchor with number {number} is wrong"
            findings.append(_finding(Tampering.ANCHOR_FORGED, number, message))
        elif anchor.key not in keys.accepted:
            message = f"the anchor with number {number} is signed by another key, {anchor.key}"
            findings.append(_finding(Tampering.ANCHOR_FORGED, number, message))
        else:
            reliable.append(anchor)
            if number > last:
                findings.append(_missing(last + 1, number, f"an anchor is checkpoint {number}"))
    return reliable, findings


def _missing(first: int, last: int, why: str) -> AuditFinding:
    return AuditFinding(tampering=Tampering.CHECKPOINT_MISSING, first=first, last=max(first, last), message=why)


def _finding(tampering: Tampering, place: int, message: str) -> AuditFinding:
    return AuditFinding(tampering=tampering, first=place, last=place, message=message)
