"""Checks that the parts of a team file agree with each other and with the files, code and secrets that they name."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from remit.installed import install_command
from remit.policy.verdict import Detector
from remit.protocol.envelope import USER
from remit.protocol.problems import WrongPart, did_you_mean, metas
from remit.runtime.registry import team_invalid
from remit_cli.config.code import CodeError, agent_at, code_at, seen, tool_at, unseen
from remit_cli.config.origins import Place, kind_at
from remit_cli.config.team import Names, TeamFile, hosted, is_hosted, remotes, sections
from remit_redaction.pipeline import KINDS, detector_pipeline

# Secrets that are recognisable anywhere. A password is known only by the words around it, which a prompt may also use.
SECRET_KINDS = ("API_KEY", "BEARER_TOKEN", "URL_CREDENTIALS", "PRIVATE_KEY")


def names_in(file: dict[str, Any]) -> Names:
    """Return the names of the agents, tools, capabilities and workflows in a file."""
    names = {
        section: tuple(cast("dict[str, Any]", file.get(section, {}))) if isinstance(file.get(section, {}), dict) else ()
        for section in ("agents", "tools", "capabilities", "workflows")
    }
    return {**names, "tools": (*names["tools"], *(tool for each in sections() for tool in each.tools_in(file)))}


# ── within the file ───────────────────────────────────────────────────────────────────────────────────────────────────


def other_currencies(team: TeamFile) -> Iterator[WrongPart]:
    """Return amounts of money in another currency than the team's: costs in two of them cannot be compared."""
    steps = {
        ("workflows", name, "steps", index, "cost"): step.cost
        for name, workflow in team.workflows.items()
        for index, step in enumerate(workflow.steps)
    }
    named = {("agents", name, "cost"): each.cost for name, each in team.agents.items()}
    named |= {("capabilities", code, "cost"): each.cost for code, each in team.capabilities.items()}
    keys = ("run_cost", "delegation_cost", "cost_per_user_per_day")
    budgets = {("budgets", key): getattr(team.budgets, key) for key in keys}
    yield from in_other_currency({**budgets, **named, **steps}, team.currency)


def in_other_currency(amounts: Mapping[Place, str | None], currency: str) -> Iterator[WrongPart]:
    """Return those of some amounts of money that are in another currency than a team's."""
    for place, amount in amounts.items():
        if amount is not None and not amount.endswith(currency):
            change = f'write it in {currency}, or set `currency = "{amount[-3:]}"` and all prices in it'
            yield WrongPart(place, f"the team's currency is {currency}: {change}")


def misnamed(team: TeamFile, names: Names) -> Iterator[WrongPart]:
    """Return references to names that the file does not define."""
    kinds = known_kinds(team)
    callees = (*names["agents"], *names["workflows"])
    for name, agent in team.agents.items():
        place = ("agents", name)
        if name == USER:
            yield WrongPart(place, f"`{USER}` is the name of the user; give the agent another name")
        yield from unknown((*place, "may_call"), "agent", agent.may_call - {"*"}, callees)
        yield from unknown((*place, "tools"), "tool", agent.tools, names["tools"])
        yield from unknown((*place, "capabilities"), "capability", agent.capabilities, names["capabilities"])
        yield from unknown((*place, "sees"), "kind of data", agent.sees, kinds)
    yield from _unserved(team, callees)
    for code, capability in team.capabilities.items():
        yield from unknown(("capabilities", code, "sees"), "kind of data", capability.sees, kinds)
        for key, message in capability.contradictions().items():
            yield WrongPart(("capabilities", code, key), message)
    for name, tool in team.tools.items():
        yield from unknown_kinds(("tools", name, "sees"), tool.sees, kinds)
    for index, rule in enumerate(team.rules):
        place = ("rules", index)
        yield from _nobody((*place, "from"), rule.from_, (*callees, USER))
        if rule.on == "answer":
            yield from _nobody((*place, "to"), rule.to, (*callees, USER))
            yield from unknown((*place, "finds"), "kind of data", {*rule.finds} - {"*"}, kinds)
        elif rule.to in names["tools"] and rule.to not in callees:
            yield WrongPart((*place, "to"), f"there is no agent `{rule.to}`; write `tool` for the tool of that name")
        else:
            yield from _nobody((*place, "to"), rule.to, callees)
        # An agent in code may bring tools of its own, whose names are known only when it runs.
        brought = any(agent.run is not None for agent in team.agents.values())
        if rule.tool is not None and not (brought and not did_you_mean(rule.tool, names["tools"])):
            yield from _nobody((*place, "tool"), rule.tool, names["tools"], "tool")
        if rule.capability is not None:
            yield from _nobody((*place, "capability"), rule.capability, names["capabilities"], "capability")
    for index, entry in enumerate(team.approvals.allow):
        caller, arrow, callee = entry.rpartition("->")
        place = ("approvals", "allow", index)
        if arrow:
            yield from _nobody(place, caller.strip(), (*callees, USER))
        yield from _nobody(place, callee.strip(), callees)


def unknown_kinds(place: Place, sees: object, kinds: Collection[str] | None) -> Iterator[WrongPart]:
    """Return unknown kinds of personal data in `sees` of a tool, for all its parameters."""
    if isinstance(sees, dict):
        for name, each in cast("dict[str, object]", sees).items():
            yield from unknown_kinds((*place, name), each, kinds)
    else:
        yield from unknown(place, "kind of data", cast("frozenset[str]", sees), kinds)


def _unserved(team: TeamFile, callees: Collection[str]) -> Iterator[WrongPart]:
    """Return agents in `[a2a]` that do not exist or are not served, and gRPC that cannot be."""
    if team.a2a is None:
        return
    if team.orchestrator is not None:
        callees = (*callees, team.orchestrator.name)
    yield from unknown(("a2a", "agents"), "agent", team.a2a.agents - {"*"}, callees)
    if team.a2a.grpc_port is not None:
        from remit_server.a2a.grpc_messages import has_grpc

        if not has_grpc():
            yield WrongPart(("a2a", "grpc_port"), f"A2A over gRPC needs the extra `a2a`: {install_command('a2a')}")
    if team.a2a.grpc_address is not None and team.a2a.grpc_port is None:
        yield WrongPart(("a2a", "grpc_address"), "there is no gRPC without `grpc_port`")
    named = [(("a2a", "public"), each) for each in sorted(team.a2a.public)]
    if team.a2a.default is not None:
        named.append((("a2a", "default"), team.a2a.default))
    for place, each in named:
        if each not in callees:
            yield from _nobody(place, each, callees)
        elif not team.a2a.agents & {each, "*"}:
            yield WrongPart(place, f"`{each}` is not among the `agents` that speak A2A")
        elif not team.serve.agents & {each, "*"}:
            yield WrongPart(place, f"`{each}` is not among the `agents` of `[serve]`")


def unknown(place: Place, what: str, named: Collection[str], known: Collection[str] | None) -> Iterator[WrongPart]:
    """Return names that are unknown."""
    if known is None:
        return
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known)
            if what == "capability":
                hint = hint or f"; define it in `[capabilities.{name}]`, which may be empty"
            # The last part finds the line of an item; it is the text itself, because a set has no order.
            yield WrongPart((*place, name), f"there is no {what} `{name}`{hint or _all(known)}")


def _nobody(place: Place, pattern: str, known: Collection[str], what: str = "agent") -> Iterator[WrongPart]:
    if any(fnmatchcase(name, pattern) for name in known):
        return
    if any(letter in pattern for letter in "*?["):
        yield WrongPart(place, f"there is no {what} that `{pattern}` would fit{_all(known)}")
    else:
        yield WrongPart(place, f"there is no {what} `{pattern}`{did_you_mean(pattern, known) or _all(known)}")


def _all(known: Collection[str]) -> str:
    return f"; there are: {', '.join(sorted(known))}" if known else ""


OF_MODELS = {
    "base_url",
    "api_key",
    "max_tool_rounds",
    "max_output_tokens",
    "history_tokens",
    "sub_agent_arguments",
    "structured_answers",
    "settings",
}
# The hub of a remote agent sets these, not this one.
_OF_CODE = {
    "prompt",
    "tools",
    "tool_rates",
    "may_call",
    "allow_sub_agent_calls",
    "hands_over_to",
    "max_sub_agent_depth",
    "recursive",
    "resumable",
    "route",
    "isolation",
}
_OF_PROCESSES, _OF_SANDBOXES = {"env", "sandbox"}, {"reads", "writes", "network"}
_OF_CARDS = {
    *("card_token", "card_keys", "card_hosts", "card_binding", "card_streaming"),
    *("card_notify", "card_notify_token"),
}
_OF_SUMMARIES = {"summary_base_url", "summary_api_key"}


def undecided(values: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return agents that do not have exactly one of code, model or remote location, and keys that do not apply."""
    for name, agent in team.agents.items():
        place, keys = ("agents", name), values["agents"][name]
        kinds = [kind for kind in ("run", "model", "peer", "card", "device", "address") if kind in keys]
        if not kinds:
            needs = 'an agent needs `run`, its code as "module:function", or `model`, as in "openai:gpt-5"'
            where = (
                "`peer`, the hub where it runs, or `card`, the URL of its A2A card, or `device`, which shares it, or "
                "`address`, for a plugin that reaches it"
            )
            yield WrongPart(place, f"{needs}, or {where}")
            continue
        if len(kinds) > 1:
            why = "; its code can call models itself" if kinds == ["run", "model"] else ""
            yield WrongPart((*place, kinds[1]), f"an agent has `{kinds[0]}` or `{kinds[1]}`, not both{why}")
            continue
        if kinds != ["model"]:
            for key in OF_MODELS & keys.keys():
                yield WrongPart((*place, key), f"`{key}` is for an agent that has a `model`")
        if kinds[0] not in ("peer", "device") and "remote" in keys:
            yield WrongPart((*place, "remote"), "`remote` is for an agent that has a `peer` or a `device`")
        if kinds != ["device"] and "max_hop_count" in keys:
            yield WrongPart((*place, "max_hop_count"), "`max_hop_count` is for an agent that has a `device`")
        if kinds != ["card"]:
            for key in _OF_CARDS & keys.keys():
                yield WrongPart((*place, key), f"`{key}` is for an agent that has a `card`")
        if agent.address is not None and (scheme := agent.address.partition(":")[0]) not in (known := remotes()):
            those = ", ".join(f"`{each}:`" for each in sorted(known)) or "no others"
            why = f"no installed plugin reaches agents at `{scheme}:`; there are some for {those}"
            yield WrongPart((*place, "address"), why)
        if kinds[0] in ("peer", "card", "device", "address"):
            for key in _OF_CODE & keys.keys():
                yield WrongPart((*place, key), f"`{key}` is for an agent that runs here; its own hub sets it")
        if kinds == ["device"] and "authority" in keys:
            why = "tools and targets are not sent to another device; set `authority` where the agent runs"
            yield WrongPart((*place, "authority"), why)
        if kinds == ["model"] and agent.isolation == "process":
            yield WrongPart((*place, "isolation"), "a model runs in the hub: only code can run in its own process")
        if agent.isolation != "process":
            for key in _OF_PROCESSES & keys.keys():
                yield WrongPart((*place, key), f'`{key}` is for an agent with `isolation = "process"`')
        if not agent.sandbox:
            for key in _OF_SANDBOXES & keys.keys():
                yield WrongPart((*place, key), f"`{key}` is for an agent with `sandbox = true`")
    context = values.get("context", {})
    if isinstance(context, dict) and "summary_model" not in context:
        for key in _OF_SUMMARIES & context.keys():
            yield WrongPart(("context", key), f"`{key}` is for a `summary_model`")


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def known_kinds(team: TeamFile) -> Collection[str] | None:
    """Return the kinds that can be found; None if the team has detectors of its own, which may find any."""
    if team.redaction.detectors:
        return None
    return (*KINDS, *team.redaction.patterns)


def unredactable(team: TeamFile) -> Iterator[WrongPart]:
    """Return unknown kinds and invalid patterns."""
    place = ("redaction", "kinds")
    yield from unknown(place, "built-in kind of data", team.redaction.kinds or (), KINDS)
    for kind, pattern in team.redaction.patterns.items():
        try:
            detector_pipeline(kinds=(), patterns={kind: pattern})
        except ValueError as error:
            yield WrongPart(("redaction", "patterns", kind), str(error))


# ── outside the file ──────────────────────────────────────────────────────────────────────────────────────────────────


def unset(team: TeamFile, environ: Mapping[str, str], *, serving: bool = True) -> Iterator[WrongPart]:
    """Return secrets that are missing from the environment or invalid.

    Without *serving*, secrets that only a server needs may be missing, and those of MCP servers, which start when one
    of their tools is used.
    """
    for place, reference in secrets_of(team):
        if not serving and not _needed_to_run(team, place):
            continue
        try:
            _ = key_of(reference, environ) if place == _REDACTION_KEY else secret_of(reference, environ)
        except ValueError as error:
            yield WrongPart(place, str(error))


def _needed_to_run(team: TeamFile, place: Place) -> bool:
    """Return whether agents cannot run without a secret."""
    if place[0] == "peers":
        return any(agent.peer == place[1] for agent in team.agents.values())
    return place[0] != "clients" and all(each.needs_secrets(team) for each in sections() if each.key == place[0])


_REDACTION_KEY = ("redaction", "key")


def secrets_of(team: TeamFile) -> Iterator[tuple[Place, str]]:
    """Return the places in a file that refer to secrets, with the names of the variables."""
    for place, text in _references_in(team, ()):
        is_called = place[0] == "agents" and place[-1] == "api_key" and not is_hosted(team, str(place[1]))
        if not is_called and any(meta.extra and meta.extra.get("secret") for meta in metas(kind_at(place))):
            yield place, text


def _references_in(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the texts within a value that begin like references to secrets."""
    if isinstance(value, str):
        if value.startswith("$"):
            yield place, value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _references_in(getattr(value, name), (*place, name))
    elif isinstance(value, dict):
        for name, each in cast("dict[str, object]", value).items():
            yield from _references_in(each, (*place, name))


def secret_of(reference: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the secret for a reference `$NAME`, or raise a ValueError that names the missing variable."""
    name = reference.removeprefix("$")
    text = environ.get(name, "").strip()
    if not text:
        raise ValueError(f"the environment variable {name} is not set")
    return text


def known_secret(reference: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the secret for a reference, if there is one, or raise a `RemitError` about an invalid team."""
    try:
        return None if reference is None else secret_of(reference, environ)
    except ValueError as error:
        raise team_invalid(str(error)) from error


def key_of(reference: str, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the 32 bytes of a key for a reference `$NAME`, or raise a ValueError that does not show them."""
    from base64 import b64decode

    name, text = reference.removeprefix("$"), secret_of(reference, environ)
    try:
        key = bytes.fromhex(text) if len(text) == 64 else b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError(
            f"{name} is not a key of 32 bytes in hexadecimal or Base64; `openssl rand -hex 32` would make one"
        )
    return key


def _code_in(team: TeamFile) -> Iterator[tuple[Place, str, Callable[[str, Path], object]]]:
    """Yield each place of a file that names code, the code, and what finds it."""
    for name, agent in hosted(team).items():
        if agent.run is not None:
            # An isolated agent is imported only in its own process.
            yield ("agents", name, "run"), agent.run, agent_at if agent.isolation == "task" else seen
    for name, tool in team.tools.items():
        yield ("tools", name, "run"), tool.run, tool_at
    for index, rule in enumerate(team.rules):
        if rule.check is not None:
            yield ("rules", index, "check"), rule.check, code_at
    for index, run in enumerate(team.redaction.detectors):
        yield ("redaction", "detectors", index), run, code_at


def unfound_code(team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Return agents, tools and detectors that cannot be imported or have the wrong type."""
    for place, run, find in _code_in(team):
        try:
            find(run, folder)
        except CodeError as error:
            yield WrongPart(place, str(error))


def unseen_code(team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Return agents, tools and detectors that do not exist, without importing anything."""
    for place, run, _ in _code_in(team):
        if why := unseen(run, folder):
            yield WrongPart(place, why)


def unconfinable(team: TeamFile) -> Iterator[WrongPart]:
    """Return agents that need a sandbox which this system does not have."""
    confined = {name: each for name, each in hosted(team).items() if each.sandbox and each.isolation == "process"}
    if not confined:
        return
    from remit.agents.cards import Sandbox
    from remit_cli.processes.sandbox import missing

    for name, agent in confined.items():
        if why := missing(Sandbox(network=agent.network)):
            yield WrongPart(("agents", name, "sandbox"), f"{why}; the agent does not run without its sandbox")


def unplaced(team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Return missing folders and invalid hosts."""
    for name, agent in team.agents.items():
        for key in ("reads", "writes"):
            for index, each in enumerate(getattr(agent, key)):
                if not (folder / each).exists():
                    yield WrongPart(("agents", name, key, index), f"{folder / each} does not exist")
        for index, each in enumerate(agent.network):
            from remit_cli.processes.sandbox import destination  # few agents are confined

            if destination(each) is None:
                why = f'"{each}" is not a host and a port, such as "api.example.com:443"'
                yield WrongPart(("agents", name, "network", index), why)
    workspace = team.context.workspace
    if workspace is not None and not (folder / workspace).is_dir():
        yield WrongPart(("context", "workspace"), f"{folder / workspace} is no folder")


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def looks_secret(text: str) -> bool:
    """Return whether a text contains a secret: a key, a token, or a URL with a password."""
    return any(True for _ in _secret_detector()(text))


def without_secrets(text: str) -> str:
    """Return a text, such as that of a team file with its comments, in which nothing looks like a secret."""
    for secret in sorted(_secret_detector()(text), reverse=True):
        text = f"{text[: secret.start]}[removed]{text[secret.end :]}"
    return text


@cache
def _secret_detector() -> Detector:
    return detector_pipeline(kinds=SECRET_KINDS)
