"""The part of the OpenAPI document about figures and the state of agents."""

from typing import Any, get_args

from remit.documents.spend import Series, SeriesOf, SeriesStep, SpendBy, SpendTable
from remit.documents.team_figures import AgentGraph, AgentPage, BudgetState
from remit.server.openapi_parts import Document, in_path, look, query_parameter, reply

TYPES = (SpendTable, Series, BudgetState, AgentPage, AgentGraph)


def figure_paths(ref: dict[Any, Any]) -> Document:
    """Return the operations."""
    period = [
        query_parameter("since_ms", "integer", "Begin of the period, in milliseconds since 1970."),
        query_parameter("until_ms", "integer", "End of the period; without it, now."),
    ]
    filters = [
        query_parameter("user", "string", "Only this user."),
        query_parameter("agent", "string", "Only this agent."),
        query_parameter("capability", "string", "Only this capability."),
        query_parameter("model", "string", "Only this model."),
    ]
    pages = [
        query_parameter("after", "integer", "Skip so many rows."),
        query_parameter("limit", "integer", "Maximum number of rows."),
    ]
    by = _one_of("by", get_args(SpendBy), "What the rows are about (default: `agent`).")
    series = [
        _one_of("what", get_args(SeriesOf), "What is shown (default: `runs`)."),
        _one_of("step", get_args(SeriesStep), "Length of a step (default: `hour`)."),
    ]
    return {
        "/v1/spend": {
            "get": look(
                "spend",
                "What was spent, by user, agent, capability, day or model.",
                reply("A page of rows, and the total.", ref[SpendTable]),
                ref,
                [by, *period, *filters, *pages],
            )
        },
        "/v1/series": {
            "get": look(
                "series",
                "Figures over time.",
                reply("The series.", ref[Series]),
                ref,
                [*series, *period, *filters],
            )
        },
        "/v1/budgets": {
            "get": look(
                "budgets",
                "The limits in force, and what is used of them now.",
                reply("The limits.", ref[BudgetState]),
                ref,
            )
        },
        "/v1/agents/{name}/status": {
            "get": look(
                "agent_status",
                "The state of one agent: load, breaker, ranking, last errors.",
                reply("The state.", ref[AgentPage]),
                ref,
                [in_path("name", "The agent's name.")],
            )
        },
        "/v1/graph": {
            "get": look(
                "graph",
                "The agents with their load, who may call whom, and who did.",
                reply("The graph.", ref[AgentGraph]),
                ref,
                period,
            )
        },
    }


def _one_of(name: str, known: tuple[str, ...], meaning: str) -> Document:
    schema = {"type": "string", "enum": list(known)}
    return {"name": name, "in": "query", "required": False, "description": meaning, "schema": schema}
