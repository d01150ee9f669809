"""Agents that delegate to others: workflows and orchestrators."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {
    "remit_orchestrator.adding": ("add_orchestrator", "add_workflow"),
    "remit_orchestrator.conflict_reader": ("EntailmentModel",),
}

if TYPE_CHECKING:
    from remit_orchestrator.adding import add_orchestrator as add_orchestrator
    from remit_orchestrator.adding import add_workflow as add_workflow
    from remit_orchestrator.conflict_reader import EntailmentModel as EntailmentModel
else:
    __getattr__ = lazy_names(__name__, _HOMES)
