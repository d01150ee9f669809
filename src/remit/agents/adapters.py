"""Turns objects into agents: functions as they are, agents of other frameworks by an adapter chosen by class name.

No framework is imported to find out whether an object belongs to it.
"""

import inspect
from importlib import import_module
from typing import cast

from remit.agents.function import AgentFunction
from remit.runtime.registry import team_invalid

# Where a class is defined, and what it is called there: the module of `remit.agents.frameworks` that adapts it.
FRAMEWORKS: dict[tuple[str, str], str] = {
    ("pydantic_ai.agent.abstract", "AbstractAgent"): "pydantic_ai",
    ("agents.agent", "Agent"): "openai_agents",
    ("langgraph.pregel.main", "Pregel"): "langgraph",
    ("google.adk.agents.base_agent", "BaseAgent"): "google_adk",
    ("agent_framework._agents", "BaseAgent"): "agent_framework",
    ("autogen_agentchat.base._task", "TaskRunner"): "autogen",
    ("crewai.crew", "Crew"): "crewai",
    ("crewai.agents.agent_builder.base_agent", "BaseAgent"): "crewai",
}
# A package may have a name that anyone could choose: what its agents have, and another's hardly would.
TELLTALES = {"openai_agents": ("handoffs", "mcp_servers", "model_settings")}


def function_of(thing: object) -> AgentFunction:
    """Return the function that answers a brief: *thing* itself, or the adapter of its framework."""
    for kind in type(thing).__mro__:
        framework = FRAMEWORKS.get((kind.__module__, kind.__qualname__))
        if framework is not None and all(hasattr(thing, name) for name in TELLTALES.get(framework, ())):
            adapter = import_module(f"remit.agents.frameworks.{framework}")
            return cast("AgentFunction", adapter.adapt(thing))
    if inspect.isclass(thing) or not callable(thing):
        named = f"the class `{thing.__qualname__}`" if inspect.isclass(thing) else f"a `{type(thing).__qualname__}`"
        raise team_invalid(
            f"{named} cannot be an agent: give a function that takes a brief, a `ModelAgent`, "
            "or an agent of a framework that Remit knows (docs/frameworks.md)"
        )
    return thing


def described(thing: object, function: AgentFunction) -> str:
    """Return an agent's description: its adapter's, or the docstring of its function."""
    said = getattr(function, "description", None)
    if isinstance(said, str):
        return said
    return inspect.cleandoc(thing.__doc__ or "") if inspect.isroutine(thing) else ""
