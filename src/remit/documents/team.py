"""A team and its agents."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs
from remit.policy.plan import Workflow
from remit.protocol.card import AgentCard, Authority


class Written(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.init/1"):
    """What was written. Printed by `remit init --json`."""

    folder: Annotated[str, Meta(description="Where the team is.")]
    files: Annotated[tuple[str, ...], Meta(description="The files that were written or, of .gitignore, added to.")]
    next: Annotated[tuple[str, ...], Meta(description="What to type next.")]


class TeamProblem(Struct, frozen=True, kw_only=True):
    """Something that is wrong in a team file, or with what overrides it."""

    where: Annotated[
        str, Meta(description="For people: `remit.toml:12 agents.clerk.run`, or the variable or flag that is wrong.")
    ]
    line: Annotated[int | None, Meta(description="The line of the file; null if it is not there.")] = None
    key: Annotated[str, Meta(description="The key, dotted.")] = ""
    message: Annotated[str, Meta(description="What is wrong, and what was expected.")]


class Validation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.validation/1"):
    """Whether a team file can be used. Printed by `remit validate --json`."""

    ok: Annotated[bool, Meta(description="Whether it can be used.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[int, Meta(description="How many agents there are, if it can be used.")] = 0
    workflows: Annotated[int, Meta(description="How many workflows.")] = 0
    tools: Annotated[int, Meta(description="How many tools.")] = 0
    capabilities: Annotated[int, Meta(description="How many capabilities.")] = 0
    rules: Annotated[int, Meta(description="How many rules.")] = 0
    profiles: Annotated[int, Meta(description="How many profiles, which work with shared agents.")] = 0
    shared: Annotated[int, Meta(description="How many agents it shares with other devices.")] = 0
    imported: Annotated[bool, Meta(description="Whether the agents' code was imported too.")] = True
    problems: Annotated[tuple[TeamProblem, ...], Meta(description="Everything that is wrong.")] = ()
    warnings: Annotated[
        tuple[TeamProblem, ...], Meta(description="What can be used as it is, and may not do what it should.")
    ] = ()


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    state: Annotated[Literal["ok", "warning", "problem"], Meta(description="How it is.")]
    about: Annotated[str, Meta(description="What was looked at.")]
    says: Annotated[str, Meta(description="What was found.")]
    todo: Annotated[str, Meta(description="What to do about it.")] = ""


class Checkup(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.doctor/1"):
    """How this machine and this folder are. Printed by `remit doctor --json`."""

    ok: Annotated[bool, Meta(description="Whether there is no problem; there may be warnings.")]
    checks: Annotated[tuple[Check, ...], Meta(description="Everything that was looked at.")]


class AgentLine(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    name: Annotated[str, Meta(description="Its name.")]
    description: Annotated[str, Meta(description="What it is for.")]
    capabilities: Annotated[tuple[str, ...], Meta(description="What it can do, by code.")]
    may_call: Annotated[tuple[str, ...], Meta(description="Whom it may call; `*` is everyone.")]
    tools: Annotated[tuple[str, ...], Meta(description="The tools that it may use.")]
    steps: Annotated[
        tuple[str, ...], Meta(description="Of a workflow, the names of its steps; of any other agent, none.")
    ] = ()
    lives_at: Annotated[
        str,
        Meta(
            description="The hub or the device that it lives on, or the address of its A2A card; empty: it lives here."
        ),
    ] = ""


class Agents(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agents/1"):
    """The agents of a team. Printed by `remit agents list --json`."""

    team: Annotated[str, Meta(description="The team's name.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[tuple[AgentLine, ...], Meta(description="The agents as the file has them, then the workflows.")]


class AgentDetails(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agent/1"):
    """All that a team says of one agent. Printed by `remit agents show --json`."""

    card: Annotated[AgentCard, Meta(description="Its card; what is not there is as the defaults say.")]
    run: Annotated[str | None, Meta(description="Its code, as the team file names it; null: it is none.")] = None
    model: Annotated[str | None, Meta(description="The model that it is; null: it is none.")] = None
    workflow: Annotated[Workflow | None, Meta(description="The workflow that it is, with its steps.")] = None
    peer: Annotated[str | None, Meta(description="The hub at which it lives; null: at none that is a peer.")] = None
    remote: Annotated[str | None, Meta(description="What it is called there; null: the same.")] = None
    address: Annotated[
        str | None, Meta(description="Where that hub, or its A2A card, is; null: it lives here, or on a `device`.")
    ] = None
    device: Annotated[str | None, Meta(description="The device that shares it; null: none does.")] = None
    called_by: Annotated[tuple[str, ...], Meta(description="Who may call it; `user` is whoever asks from outside.")]
    authority: Annotated[
        Authority, Meta(description="Whose tools and targets it has when an agent asks it: its own, or its caller's.")
    ] = "own"
    time_ms: Annotated[int, Meta(description="How long one request may take whose caller says nothing.")]
    tokens: Annotated[int, Meta(description="How many tokens one request may take whose caller says nothing.")]


class RankedAgent(Struct, frozen=True, kw_only=True):
    """How an agent stands at a capability."""

    agent: Annotated[str, Meta(description="Its name.")]
    quality: Annotated[
        float, Meta(description="How probable a success is, from 0 to 1, by what happened lately; 0.5: not known.")
    ]
    latency_ms: Annotated[int, Meta(description="How long it takes, as it was at its worst lately; 0: not known.")]
    tokens: Annotated[int, Meta(description="How many tokens a success takes; 0: none, or not known.")]
    in_flight: Annotated[int, Meta(description="How many calls it is at work on.")]
    last_seen_ms: Annotated[
        int | None,
        Meta(description="When it last answered or failed, in milliseconds since 1970; null: not in what was read."),
    ]
    why: Annotated[str, Meta(description="Why it stands where it does.")]


class Ranking(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.ranking/1"):
    """Who is asked first for a capability, and why. Printed by `remit agents show --capability CODE --json`."""

    capability: Annotated[str, Meta(description="The capability.")]
    at_ms: AtMs
    agents: Annotated[
        tuple[RankedAgent, ...], Meta(description="Those who offer it: who is asked first, then whom to fall back on.")
    ]
    store: Annotated[str, Meta(description="The file that holds the record from which this follows.")]


class Reloading(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.reload/1"):
    """Running hubs have been told to take over the team file. Printed by `remit reload --json`."""

    file: Annotated[str, Meta(description="The team file.")]
    store: Annotated[str, Meta(description="The store over which the hubs were told.")]
    number: Annotated[int, Meta(description="The number of the row that tells them.")]
