"""The audit chain and its verification."""

from remit.runtime.audit.findings import AuditFinding, AuditVerdict, Tampering
from remit.runtime.audit.verification import verify
from remit.runtime.audit.walk import GENESIS, ChainRow, Unsigned, link

__all__ = ["GENESIS", "AuditFinding", "AuditVerdict", "ChainRow", "Tampering", "Unsigned", "link", "verify"]
