"""The audit chain and its verification."""

from remit.runtime.audit.chain import GENESIS, ChainRow, Unsigned, link
from remit.runtime.audit.findings import AuditFinding, AuditVerdict, Tampering
from remit.runtime.audit.verification import verify

__all__ = ["GENESIS", "AuditFinding", "AuditVerdict", "ChainRow", "Tampering", "Unsigned", "link", "verify"]
