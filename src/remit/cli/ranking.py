"""Ranks the agents that offer a capability, from the record."""

from collections.abc import Iterable, Sequence

import click

from remit.cli.places import reading, shorter
from remit.cli.show.screen import now_ms, print_json, print_table, spoken
from remit.config.team import Team
from remit.documents.team import RankedAgent, Ranking
from remit.policy.routing import Candidate, TrackRecord, explain
from remit.protocol.card import AgentCard
from remit.protocol.codec import did_you_mean
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.track_record import NEWEST, Tracks, tracks
from remit.stores.connection import SqliteConnection
from remit.stores.reader import recent, running


def print_ranking(capability: str, team: Team, cards: Iterable[AgentCard], *, as_json: bool) -> None:
    """Print the ranking of agents for a capability."""
    ranking = _ranking(_known(capability, cards), team)
    if as_json:
        print_json(ranking)
        return
    headings = ("agent", "success", "time", "tokens", "in progress", "last seen", "why")
    print_table(headings, [_row(each, ranking.at_ms) for each in ranking.agents])
    if len(ranking.agents) == 1:
        click.echo(f"Only this agent offers {capability}.", err=True)


def _known(capability: str, cards: Iterable[AgentCard]) -> tuple[str, Sequence[str]]:
    offered: dict[str, list[str]] = {}
    for card in cards:
        for each in card.capabilities:
            offered.setdefault(each.code, []).append(card.name)
    if capability in offered:
        return capability, offered[capability]
    near = did_you_mean(capability, offered) or f"; known capabilities: {', '.join(offered) or 'none'}"
    raise RemitError(
        fault(
            Code.CAPABILITY_NOT_FOUND,
            f"no agent offers `{capability}`{near}",
            suggestion="List the capabilities of all agents with `remit agents list`.",
        )
    )


def _ranking(known: tuple[str, Sequence[str]], team: Team) -> Ranking:
    capability, names = known
    at_ms = now_ms()
    found: Tracks = {}
    if team.store_path.exists():  # else nothing has been asked yet
        with reading(team.store_path) as connection:
            found = _tracks(connection, at_ms)
    candidates = [Candidate(name=name, track=found.get((capability, name), TrackRecord())) for name in names]
    return Ranking(
        capability=capability,
        at_ms=at_ms,
        agents=tuple(
            RankedAgent(
                agent=each.name,
                quality=round(each.quality, 3),
                latency_ms=each.latency_ms,
                tokens=each.tokens,
                in_flight=each.in_flight,
                last_seen_ms=None if each.ago_ms is None else at_ms - each.ago_ms,
                why=each.why,
            )
            for each in explain(candidates, at_ms / 1_000)
        ),
        store=str(shorter(team.store_path)),
    )


def _tracks(connection: SqliteConnection, at_ms: int) -> Tracks:
    return tracks(recent(NEWEST)(connection), lambda ms: ms / 1_000, running(at_ms)(connection))


def _row(agent: RankedAgent, at_ms: int) -> tuple[str, ...]:
    if agent.last_seen_ms is None:
        return agent.agent, "?", "?", "?", str(agent.in_flight), "never", agent.why
    return (
        agent.agent,
        f"{agent.quality:.0%}",
        spoken(agent.latency_ms),
        f"{agent.tokens:,}",
        str(agent.in_flight),
        f"{spoken(at_ms - agent.last_seen_ms)} ago",
        agent.why,
    )
