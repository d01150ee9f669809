"""Brings agents of other frameworks, and those backed by language models, as a plugin."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.ports import AgentFunction
    from remit_models.model import ModelAgent


def agent(value: object) -> "AgentFunction | None":
    """Return the function that answers for an agent of a framework."""
    from remit_models.frameworks import adapted

    return adapted(value)


def model_agent(model: str, **settings: Any) -> "ModelAgent":
    """Return an agent backed by the language model of a name."""
    from remit_models.model import ModelAgent

    return ModelAgent(model, **settings)
