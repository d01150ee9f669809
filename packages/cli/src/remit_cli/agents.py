"""`remit agents`: the agents of the team, their permissions, and their ranking from the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.policy.reception import authority_of
from remit.policy.routing import Candidate, TrackRecord, explain
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import USER
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.orchestration import Step, Workflow
from remit.protocol.problems import did_you_mean
from remit_cli.completion import agent_names, capability_codes
from remit_cli.options import SubcommandGroup, json_option, team_options
from remit_cli.places import cards_of, known_agent, place_of, reading, relative_path, team_hubs, team_of
from remit_cli.show.screen import many, now_ms, print_fields, print_json, print_table, spoken
from remit_server.documents.common import shown_as
from remit_server.documents.team import AgentDetails, AgentLine, Agents, RankedAgent, Ranking

if TYPE_CHECKING:  # whoever has a team has loaded them
    from remit.runtime.delegation.routing import Tracks
    from remit_cli.config.team import Team


@click.group(cls=SubcommandGroup)
def agents() -> None:
    """Show the agents of the team.

    \b
    Example:
      remit agents list
      remit agents show assistant
    """


@agents.command(name="list")
@team_options
@json_option
def list_agents(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List agents and workflows: their purpose, and which agents they may call.

    \b
    Example:
      remit agents list
    """
    print_agents(team_of(team_file, overrides), as_json=as_json)


@agents.command()
@click.argument("agent", required=False, shell_complete=agent_names)
@click.option(
    "--capability",
    metavar="CODE",
    shell_complete=capability_codes,
    help="Rank the agents that offer this capability, with reasons, instead of showing one agent.",
)
@team_options
@json_option
def show(
    agent: str | None, capability: str | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Show the settings of one AGENT (or the steps of a workflow), or rank the agents that offer a capability.

    If several agents offer a capability, Remit asks the one with the better recent results first. `--capability` shows
    that order. It is computed from the newest calls in the record, of all processes. It does not include open circuit
    breakers and used-up rate limits, since only the running hub knows them.

    \b
    Example:
      remit agents show assistant
      remit agents show --capability TAG
    """
    if capability is not None and agent is None:
        print_ranking(capability, team_of(team_file, overrides), as_json=as_json)
    elif agent is not None and capability is None:
        print_agent(agent, team_of(team_file, overrides), as_json=as_json)
    else:
        raise click.UsageError("give an AGENT, or a capability with --capability")


def print_agents(team: Team, *, as_json: bool) -> None:
    """Print one row for each agent and workflow."""
    steps = {name: tuple(step.name for step in each.steps) for name, each in team.workflows.items()}
    elsewhere = {
        name: each.peer or each.card or each.device or each.address or "" for name, each in team.agents.items()
    }
    cards = cards_of(team)
    if (hubs := team_hubs(team)) is not None:
        try:
            elsewhere_by_hub, others = hubs.hosted()
        except RemitError as error:
            click.echo(f"Agents on other hubs are not shown: {error.fault.message}.", err=True)
        else:
            elsewhere |= elsewhere_by_hub
            cards |= {name: card for name, card in others.items() if name not in cards}
    lines = tuple(_line(card, steps.get(card.name, ()), elsewhere.get(card.name, "")) for card in cards.values())
    if as_json:
        print_json(Agents(team=team.name, file=str(relative_path(team.file)), agents=lines))
        return
    if not lines:
        click.echo(
            f"The team {team.name} has no agents.\n→ Add one to {relative_path(team.file)}: [agents.NAME]", err=True
        )
        return
    rows = [
        (
            each.name,
            each.description,
            *(", ".join(names) for names in (each.capabilities, each.may_call, each.tools, each.steps)),
            each.lives_at,
        )
        for each in lines
    ]
    headings = ("agent", "description", "capabilities", "may call", "tools", "workflow steps", "location")
    print_table(headings, rows)


def _line(card: AgentCard, steps: tuple[str, ...], lives_at: str) -> AgentLine:
    return AgentLine(
        name=card.name,
        description=card.description,
        capabilities=tuple(each.code for each in card.capabilities),
        tools=tuple(sorted(card.tools)),
        may_call=tuple(sorted(card.callees)),
        steps=steps,
        lives_at=lives_at,
    )


def print_agent(agent: str, team: Team, *, as_json: bool) -> None:
    """Print the settings of an agent, or the steps of a workflow."""
    cards = cards_of(team)
    card, limits = cards[known_agent(agent, cards)], team.settled_limits()
    section, workflow = team.agents.get(agent), team.workflows.get(agent)
    details = AgentDetails(
        card=card,
        run=section and section.run,
        model=section and section.model,
        workflow=workflow and workflow.workflow(agent),
        peer=section and section.peer,
        remote=section and section.remote,
        address=section and (team.peers[section.peer].url if section.peer else section.card or section.address),
        device=section and section.device,
        called_by=(USER, *(name for name, each in cards.items() if name != agent and each.may_reach(agent))),
        authority=authority_of(card, limits),
        time_ms=limits.delegation_time_ms if card.time_ms is None else card.time_ms,
        tokens=limits.delegation_tokens if card.tokens is None else card.tokens,
    )
    if as_json:
        print_json(details)
    else:
        print_fields(_fields(details))


_DEFAULT = " (default, unless the caller sets another limit)"


def _fields(details: AgentDetails) -> Iterator[tuple[str, str]]:
    card = details.card
    yield "workflow" if details.workflow else "agent", f"{card.name} {card.version}"
    yield "description", card.description
    yield "code", details.run or ""
    yield "model", details.model or ""
    yield "location", ", ".join(each for each in (details.peer, details.address) if each)
    yield "shared by", details.device or ""
    yield "name there", details.remote or ""
    if details.workflow is not None:
        yield "steps", "\n".join(_steps(details.workflow))
        yield "result", details.workflow.result or "the results of all steps, as one text"
    yield "capabilities", "\n".join(map(_capability, card.capabilities))
    # The permissions of a remote agent are known only to its own hub.
    is_here = details.address is None and details.device is None
    yield "tools", ", ".join(sorted(card.tools)) or ("none" if is_here and not details.workflow else "")
    yield "may call", _may_call(card) if is_here else ""
    is_cut = details.authority == "caller" and details.device is None
    yield "authority", "limited to the tools and targets of its caller" if is_cut else ""
    yield "called by", ", ".join(details.called_by)
    yield (
        "sees",
        f"{', '.join(sorted(card.sees))} in clear; tokens for all other personal data" if card.sees else "",
    )
    yield "time", f"{spoken(details.time_ms)} per request{_DEFAULT if card.time_ms is None else ''}"
    share = "a fair share of what its caller has left"
    tokens = share if details.tokens is None else f"{details.tokens:,} per request"
    yield "tokens", f"{tokens}{_DEFAULT if card.tokens is None else ''}"
    at_once = many(card.concurrency, "request")
    yield "concurrency", f"{at_once}; queue of {card.queue}"
    yield "rate", f"{many(card.rate.calls, 'call')} in {card.rate.seconds:g} s" if card.rate else ""
    yield "runs in", ("separate processes" if card.isolation == "process" else "the hub") if is_here else ""
    yield "after a restart", "resumed" if card.resumable else ""
    yield "prompt", card.prompt


def _steps(workflow: Workflow) -> Iterator[str]:
    from remit_cli.config.team import sections

    before = {name: names for each in sections() for name, names in each.step_order(workflow).items()}
    for step in workflow.steps:
        yield _step(step, sorted(before.get(step.name, ())))


def _step(step: Step, before: Sequence[str]) -> str:
    """Return a step in one line: agent, task, the steps before it, condition and error handling."""
    who = " for ".join(each for each in (step.agent, step.capability) if each)
    details = [f"after {', '.join(before)}"] if before else []
    details += [f"when {step.when}"] if step.when else []
    details += [f"else {', '.join(step.fallback)}"] if step.fallback else []
    details += [f"up to {many(step.attempts, 'attempt')}"] if step.attempts > 1 else []
    details += [spoken(step.time_ms)] if step.time_ms is not None else []
    details += [many(step.tokens, "token")] if step.tokens is not None else []
    details += [f"{step.share:.0%} of the tokens"] if step.share is not None else []
    details += ["optional"] if step.optional else []
    return f"{step.name}: {who}" + (f" ({'; '.join(details)})" if details else "")


def _capability(capability: Capability) -> str:
    limits = [spoken(capability.time_ms)] if capability.time_ms is not None else []
    limits += [many(capability.tokens, "token")] if capability.tokens is not None else []
    raw = sorted(capability.sees | capability.sees_fields)
    limits += [f"sees {', '.join(raw)}"] if raw else []
    if capability.read_only and capability.cache_ms:
        alike = " or similar" if capability.cache_similar else ""
        limits.append(f"cached {spoken(capability.cache_ms)} for identical{alike} requests")
    if capability.hedge_ms is not None:
        limits.append(f"hedged with a second agent after {spoken(capability.hedge_ms)}")
    return (
        capability.code
        + (f": {capability.description}" if capability.description else "")
        + (f" ({', '.join(limits)})" if limits else "")
    )


def _may_call(card: AgentCard) -> str:
    if not card.callees:
        return "nobody"
    below = "" if card.max_sub_agent_depth is None else f", {many(card.max_sub_agent_depth, 'level')} deep"
    return ("everyone" if "*" in card.callees else ", ".join(sorted(card.callees))) + below


def print_ranking(capability: str, team: Team, *, as_json: bool) -> None:
    """Print the ranking of agents for a capability."""
    ranking = _ranking(_find_offers(capability, cards_of(team).values()), team)
    if as_json:
        print_json(ranking)
        return
    headings = ("agent", "success", "time", "tokens", "in progress", "last seen", "why")
    folds = ("last seen", "in progress", "tokens", "time", "why")
    print_table(headings, [_row(each, ranking.at_ms) for each in ranking.agents], folds=folds)
    if len(ranking.agents) == 1:
        click.echo(f"Only this agent offers {capability}.", err=True)


def _find_offers(capability: str, cards: Iterable[AgentCard]) -> tuple[str, Sequence[str]]:
    offered: dict[str, list[str]] = {}
    for card in cards:
        for each in card.capabilities:
            offered.setdefault(each.code, []).append(card.name)
    if capability in offered:
        return capability, offered[capability]
    near = did_you_mean(capability, offered) or f"; known capabilities: {', '.join(offered) or 'none'}"
    how = "List the capabilities of all agents with `remit agents list`."
    raise RemitError(fault(Code.CAPABILITY_NOT_FOUND, f"no agent offers `{capability}`{near}", suggestion=how))


def _ranking(known: tuple[str, Sequence[str]], team: Team) -> Ranking:
    from remit.runtime.delegation.routing import NEWEST, tracks

    capability, names = known
    at_ms = now_ms()
    records: Tracks = {}
    place = place_of(team)
    if not isinstance(place, Path) or place.exists():  # otherwise no agent has been called yet
        with reading(place) as view:
            records = tracks(view.recent(NEWEST), lambda ms: ms / 1_000, view.running())
    candidates = [Candidate(name=name, track=records.get((capability, name), TrackRecord())) for name in names]
    return Ranking(
        capability=capability,
        at_ms=at_ms,
        agents=tuple(
            shown_as(
                RankedAgent,
                each,
                agent=each.name,
                quality=round(each.quality, 3),
                last_seen_ms=None if each.ago_ms is None else at_ms - each.ago_ms,
            )
            for each in explain(candidates, at_ms / 1_000)
        ),
        store=str(relative_path(place)),
    )


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
