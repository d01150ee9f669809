"""Builds an agent's card from the options that a program gives, and checks the arguments of a hub.

An option of an agent is declared once for Python programs, in the classes here: `Hub.agent` and `Hub.add` take
`AgentOptions`, `connect` takes `RemoteOptions`. An option with the name of a field of `AgentCard` reaches the card
without further code.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypedDict, cast

from msgspec import Struct

from remit.agents.typed import with_schemas
from remit.policy.reception import Permission
from remit.policy.redaction import KIND
from remit.protocol.card import CONCURRENCY, AgentCard, Authority, Capability, Rate, Sees
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import Names
from remit.runtime.registry import team_invalid
from remit.runtime.schemas import check_schema


def permissions_of(client: str, given: Collection[str]) -> frozenset[Permission]:
    """Return the permissions of a client; raise a `RemitError` for one that does not exist."""
    known = [str(each) for each in Permission]
    for each in names_of(given, client, "permissions"):
        if each not in known:
            hint = did_you_mean(each, known) or f"; there are: {', '.join(known)}"
            raise team_invalid(f"`{client}` may not `{each}`: there is no such permission{hint}")
    return frozenset(map(Permission, given))


def refuse_unknown(options: Mapping[str, object], known: Collection[str]) -> None:
    """Raise a `TypeError` for an option that does not exist, as Python does for an unknown keyword argument."""
    for option in options:
        if option not in known:
            raise TypeError(f"got an unexpected keyword argument {option!r}")


def names_of(given: Collection[str], agent: str, field: str) -> frozenset[str]:
    """Return names as a card holds them; a single text is refused, because its letters would be taken for names."""
    if isinstance(given, str):
        raise team_invalid(f"agent `{agent}`: {field} takes several names, not one text: [{given!r}]")
    return frozenset(given)


def seen_by(given: Collection[str] | Mapping[str, Collection[str]], who: str) -> Sees:
    """Return the kinds of personal data that a tool is given in clear, for all parameters or by parameter."""
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Collection[str]]", given)
        return {name: _kinds(kinds, who, f"sees.{name}") for name, kinds in named.items()}
    return _kinds(given, who, "sees")


def seen_by_server(
    given: Collection[str] | Mapping[str, Collection[str] | Mapping[str, Collection[str]]], who: str
) -> Names | dict[str, Sees]:
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Collection[str] | Mapping[str, Collection[str]]]", given)
        return {tool: seen_by(sees, f"{who}, tool `{tool}`") for tool, sees in named.items()}
    return _kinds(given, who, "sees")


def _kinds(given: Collection[str], who: str, field: str) -> frozenset[str]:
    if isinstance(given, str):
        raise team_invalid(f"{who}: {field} takes several kinds, not one text: [{given!r}]")
    for kind in given:
        if not KIND.fullmatch(kind):
            raise team_invalid(f"{who}: {field} names `{kind}`, which is not a kind of data such as EMAIL or IBAN")
    return frozenset(given)


def listed(given: Collection[str], server: str, field: str) -> Collection[str]:
    if isinstance(given, str):
        raise team_invalid(f"MCP server `{server}`: {field} takes several names, not one text: [{given!r}]")
    return given


# A process takes some 20 MB, and more of them than this only share the processors.
PROCESSES = 2 * (os.cpu_count() or 1)

# Two lookups, and an agent called twice: real work seldom takes more, and a model that runs in circles is stopped
# before it costs much. The shared agents of document S stop after three; a team file can set that.
TOOL_ROUNDS = 8


Arguments = Literal["short", "relay", "full"]
"""Which arguments of `sub_agent` a model is told of: those that every model can fill in, these and `relay`, or all."""

# Options of how an agent is run; its card does not have them.
_NOT_ON_CARDS = ("env", "sandbox", "route")
_NAMES = ("tools", "may_call", "hands_over_to", "sees")


class CardOptions(TypedDict, total=False):
    """Options of every agent, local or remote."""

    version: str
    capabilities: Iterable[Capability | str]
    authority: Authority | None
    queue: int
    rate: Rate | None
    time_ms: int | None
    tokens: int | None
    cost: int | None
    draws: bool
    sees: Collection[str]
    clear: bool


class Sandbox(Struct, frozen=True, kw_only=True):
    """What a sandboxed agent can access besides its own folder, its code and the files that Python needs.

    *reads* and *writes* are files and folders, *network* hosts with their port: `api.example.com:443`.
    """

    reads: tuple[str, ...] = ()
    """Files and folders that it may read."""
    writes: tuple[str, ...] = ()
    """Files and folders that it may write."""
    network: tuple[str, ...] = ()
    """Hosts that it may reach."""


class AgentOptions(CardOptions, total=False):
    """Options of an agent that runs in this hub."""

    description: str | None
    """What it is for; None: the docstring of its code."""
    tools: Collection[str]
    tool_rates: Mapping[str, Rate]
    """How often it may use each tool of its own, by name."""
    may_call: Collection[str]
    allow_sub_agent_calls: bool | None
    hands_over_to: Collection[str]
    """Agents to which its model may hand the conversation with the user over."""
    max_sub_agent_depth: int | None
    recursive: bool
    concurrency: int | None
    resumable: bool
    route: bool
    """Whether it is decided for each request if it answers itself, or another agent that it may call."""
    isolation: Literal["task", "process"]
    env: Collection[str]
    """Variables of the environment that its process gets, besides `PATH` and the like."""
    sandbox: Sandbox | bool
    """What its process can access; True: nothing but its own folder."""
    prompt: str
    """Instructions, which its code finds in the brief."""


class RemoteOptions(CardOptions, total=False):
    """Options of an agent that runs elsewhere."""

    description: str
    concurrency: int


def local_card(name: str, agent: object, function: Callable[..., object] | None, options: AgentOptions) -> AgentCard:
    """Return the card of an agent in this hub; *function* is its code, None if only its process imports it."""
    capabilities = with_schemas(options.get("capabilities", ()), function)
    fields = _fields(name, options, AgentOptions.__optional_keys__, capabilities)
    for each in _NOT_ON_CARDS:
        fields.pop(each, None)
    description = options.get("description")
    if description is None and function is not None:
        from remit.agents.function import described  # a team file is read without the event loop

        description = described(agent, function)
    fields["description"] = description or ""
    if fields.get("concurrency") is None:
        fields["concurrency"] = PROCESSES if options.get("isolation") == "process" else CONCURRENCY
    return AgentCard(name=name, **fields)


def remote_card(name: str, options: RemoteOptions) -> AgentCard:
    """Return the card of an agent that runs elsewhere.

    It is resumable: the other side recognises a request that is repeated after a restart, and does not execute it
    twice.
    """
    fields = _fields(name, options, RemoteOptions.__optional_keys__, options.get("capabilities", ()))
    return AgentCard(name=name, resumable=True, **fields)


def _fields(
    name: str, options: CardOptions, known: Collection[str], capabilities: Iterable[Capability | str]
) -> dict[str, Any]:
    fields = dict(cast("Mapping[str, Any]", options))
    refuse_unknown(fields, known)
    fields["capabilities"] = tuple(_capability(each, name) for each in capabilities)
    for field in _NAMES:
        if field in fields:
            fields[field] = names_of(fields[field], name, field)
    return fields


def _capability(capability: Capability | str, agent: str) -> Capability:
    if isinstance(capability, str):
        return Capability(code=capability)
    if not isinstance(capability, Capability):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise team_invalid(f"agent `{agent}`: a `{type(capability).__qualname__}` is not a capability: give its code")
    for field, schema in (("input_schema", capability.input_schema), ("result_schema", capability.result_schema)):
        if schema is not None and (wrong := check_schema(schema)):
            raise team_invalid(
                f"agent `{agent}`, capability `{capability.code}`: {field} is not a JSON Schema: {wrong}"
            )
    return capability
