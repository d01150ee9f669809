"""Agents of other frameworks, each run within a brief: the remit sets its budget, deadline, tools and delegation."""

from importlib import import_module
from typing import cast

from remit.ports import AgentFunction

# The module and name of each framework's class, and the module of this package that adapts it.
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
# Anyone could choose the name of such a package, so these attributes of its agents are checked, too.
TELLTALES = {"openai_agents": ("handoffs", "mcp_servers", "model_settings")}


def adapted(thing: object) -> AgentFunction | None:
    """Return what answers for an agent of a framework; None if it is none."""
    for kind in type(thing).__mro__:
        framework = FRAMEWORKS.get((kind.__module__, kind.__qualname__))
        if framework is not None and all(hasattr(thing, name) for name in TELLTALES.get(framework, ())):
            adapter = import_module(f"remit_models.frameworks.{framework}")
            return cast("AgentFunction", adapter.adapt(thing))
    return None
