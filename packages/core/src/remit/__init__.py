"""Remit: the runtime in which AI agents call other agents, safely.

Names are loaded when they are first used, so that importing `remit` costs next to nothing; `__init__.pyi` tells type
checkers what they are.
"""

from remit.protocol.lazy_names import lazy_names

__version__ = "0.1.0"

_HOMES = {
    "remit.agents.cards": ("AgentOptions", "Sandbox"),
    "remit.hub.hub": ("Hub", "HubOptions"),
    "remit.policy.aggregate": ("Blend", "Combined"),
    "remit.policy.breaker": ("BreakerSettings",),
    "remit.words.components": ("Component", "Conflict", "ReportedValue"),
    "remit.policy.limits": ("Limits",),
    "remit.protocol.orchestration": ("Step", "Workflow"),
    "remit.policy.routing": ("Ranked",),
    "remit.policy.verdict": (
        "ALLOW", "Allow", "Ask", "Detector", "Facts", "Finding", "Guard", "Refuse", "Rewrite", "Verdict", "on_answer",
        "refuse",
    ),
    "remit.protocol.card": ("AgentCard", "Capability", "Rate", "ToolCard"),
    "remit.protocol.envelope": (
        "Answer", "Artifact", "Call", "ContextFilter", "Handoff", "Handover", "Message", "Note", "Request", "Response",
        "Source", "Strategy", "Usage", "View",
    ),
    "remit.protocol.errors": ("Code", "Fault", "Origin", "Problem", "RemitError", "SourceLine", "fault"),
    "remit.protocol.files": ("File",),
    "remit.protocol.lifecycle": ("Status",),
    "remit.protocol.records": (
        "Approval", "ChainBreak", "Delegation", "Delta", "Kind", "Notice", "Progress", "Record", "Refusal",
        "Removal", "SharedStep", "ToolUse",
    ),
    "remit.protocol.remit": ("Priority", "Remit"),
    "remit.runtime.approvers": ("AllowList", "InboxApprover", "deny", "first_of"),
    "remit.ports.brief": ("Brief",),
    "remit.runtime.events": ("Events",),
    "remit.runtime.audit": ("AuditVerdict",),
    "remit.ports": ("Approver", "Decision", "Question"),
    "remit.runtime.question_view": ("ShownQuestion", "view_of"),
    "remit.stores.sqlite": ("SqliteStore", "verify_file"),
}  # fmt: skip

__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0605


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
