"""The audit chain and its verification."""

from remit.runtime.audit.chain import (
    GENESIS,
    AuditFinding,
    AuditVerdict,
    ChainRow,
    RemovedRow,
    Tampering,
    Unsigned,
    follows,
    leaf,
    link,
)
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
