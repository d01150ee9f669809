"""The audit chain and its verification."""

from remit.runtime.audit.chain import GENESIS, ChainRow, Unsigned, follows, leaf, link
from remit.runtime.audit.findings import AuditFinding, AuditVerdict, Tampering
from remit.runtime.audit.removal import RemovedRow
from remit.runtime.audit.verification import verify

__all__ = [
    "GENESIS",
    "AuditFinding",
    "AuditVerdict",
    "ChainRow",
    "RemovedRow",
    "Tampering",
    "Unsigned",
    "follows",
    "leaf",
    "link",
    "verify",
]
