"""Loads a team file: finds, reads, overrides and checks it, and reports all errors at once."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from remit.policy.restoring import can_be_used, fields_asking, key_to_add
from remit.protocol.card import AgentCard, Schema, Sees, ToolCard
from remit.protocol.codec import MAX_NESTING
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import WrongPart, did_you_mean, metas, options, wrong_fields
from remit.runtime.schemas import check_schema
from remit_cli.config import checks, peers
from remit_cli.config.code import IMPORTING, parameters_of
from remit_cli.config.origins import (
    Override,
    Place,
    TomlLines,
    Unusable,
    apply,
    dotted,
    fields_at,
    from_environment,
    from_flags,
    is_struct,
    kind_at,
    value_at,
)
from remit_cli.config.peers import unencrypted
from remit_cli.config.resources import uncallable
from remit_cli.config.team import Inspection, Team, TeamFile, file_type, sections, team_type
from remit_cli.config.values import meanings
from remit_cli.extras import section_needs
from remit_redaction.pipeline import KINDS


def load_team(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    secrets: bool = True,
    serving: bool = True,
    code: bool = True,
    thorough: bool = False,
    draft: str | None = None,
) -> Team:
    """Return the team in a file, or raise a `RemitError` with all errors.

    Precedence: *overrides* (`limits.max_depth=3`), *environ* (`REMIT_LIMITS__MAX_DEPTH`), the file. Without *secrets*,
    secrets may be missing from the environment. Without *serving*, those that running an agent does not need may be
    missing, and programs of MCP servers too. Without *code*, code that the file names is not imported; with *thorough*
    it is still looked up. With *secrets* and one of the others, models are checked as well, as far as possible without
    calling them. A *draft* is checked in place of the text of the file, and no file that it names is opened.
    """
    path = Path(path).absolute()
    text = read_text(path) if draft is None else draft
    values, lines = parse_text(text, path)
    source = ValueSource(path.name, lines, {})
    wrong = list(_secrets_in(values))
    unusable = _override(values, source, from_environment(environ, values))
    unusable += _override(values, source, from_flags(overrides))
    shown = {each.place for each in wrong}
    wrong += [_plainer(each) for each in wrong_fields(values, file_type()) if each.place not in shown]
    names = checks.names_in(values)
    if (team := _sound_part(values, wrong)) is not None:
        findings: list[Iterable[WrongPart]] = [
            checks.undecided(values, team),
            checks.misnamed(team, names),
            checks.other_currencies(team),
            checks.unredactable(team),
        ]
        if draft is None:
            findings.append(checks.unplaced(team, path.parent))
            findings.append(read_schemas(values, team, path.parent))
        findings.append(peers.mistaken(values, team, names))
        if secrets:
            findings.append(checks.unset(team, environ, serving=serving))
            findings.append(peers.unprovable(values, team, path.parent, environ))
        inspection = Inspection(
            values=values,
            team=team,
            names=names,
            folder=path.parent,
            environ=environ,
            secrets=secrets,
            opens_files=draft is None,
            starts_programs=serving and (code or thorough),
        )
        findings += [each.problems(inspection) for each in sections()]
        if code:
            findings.append(checks.unfound_code(team, path.parent))
        elif thorough:
            findings.append(checks.unseen_code(team, path.parent))
        findings += [checks.unconfinable(team)] if code or thorough else []
        amiss = {each.place for each in wrong}
        if secrets and (code or thorough):  # without its URL, a model of a server looks like an unknown one
            models = chain(uncallable(team, environ), *(each.uncallable(inspection) for each in sections()))
            findings.append(each for each in models if (*each.place[:-1], "base_url") not in amiss)
        wrong += [each for each in chain(*findings) if each.place not in amiss]
    if wrong or unusable:
        problems = [Problem(each.source, each.message) for each in unusable] + source.problems(values, wrong)
        raise _invalid(path, problems)
    checked = msgspec.convert(values, file_type())
    return team_type()(
        **{name: getattr(checked, name) for name in checked.__struct_fields__}, file=path, overrides=tuple(overrides)
    )


def located(team: Team, remarks: Iterable[WrongPart]) -> list[Problem]:
    """Return remarks about a loaded team with their places in its file."""
    values, lines = parse_text(read_text(team.file), team.file)
    return ValueSource(team.file.name, lines, {}).problems(values, list(remarks))


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_TOO_DEEP = "values are nested too deep"
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_text(path: Path) -> str:
    """Return the text of a team file, or raise a `RemitError` if it cannot be read."""
    try:
        # Some editors write a byte order mark before the text.
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise _cannot_read(path, "there is no such file") from error
    except OSError as error:
        raise _cannot_read(path, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _invalid(path, [Problem(f"{path.name}:{line}", "this is not text in UTF-8")]) from error


def parse_text(text: str, path: Path, suggestion: str | None = None) -> tuple[dict[str, Any], TomlLines]:
    """Return the values in a text and the lines of its keys, or raise a `RemitError` that names the invalid lines."""
    try:
        values = tomllib.loads(text)
        lines = TomlLines(text)
    except tomllib.TOMLDecodeError as error:
        lines = TomlLines(text)
        problems = [
            Problem(f"{path.name}:{line} {dotted(place)}", f"duplicate key; the first is in line {first}")
            for place, first, line in lines.twice
        ]
        message = str(error)
        if not problems or not message.startswith("Cannot"):
            position = _POSITION.search(message)
            line, column = (position[1], position[2]) if position and position[1] else (str(text.count("\n") + 1), None)
            where = f" (column {column})" if column else " (at the end of the file)"
            problems.append(Problem(f"{path.name}:{line}", f"not TOML: {_POSITION.sub('', message)}{where}"))
        raise _invalid(path, problems, suggestion) from error
    except RecursionError as error:
        raise _invalid(path, [Problem(path.name, _TOO_DEEP)], suggestion) from error
    if deep := [line for place, line in lines.of.items() if len(place) > MAX_NESTING]:
        raise _invalid(path, [Problem(f"{path.name}:{deep[0]}", _TOO_DEEP)], suggestion)
    return values, lines


def _override(
    values: dict[str, Any], source: "ValueSource", overrides: Iterable[Override | Unusable]
) -> list[Unusable]:
    unusable: list[Unusable] = []
    for override in list(overrides):
        if isinstance(override, Unusable):
            unusable.append(override)
        elif (why := apply(override, values)) is not None:
            unusable.append(why)
        else:
            source.overrides[override.place] = override.source
    return unusable


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class ValueSource(NamedTuple):
    """The origin of each value: a line of the file, a variable, or a flag."""

    file: str
    lines: TomlLines
    overrides: dict[Place, str]

    def problems(self, values: dict[str, Any], wrong: Iterable[WrongPart]) -> list[Problem]:
        """Return errors with their places, in the order of the file."""
        located = [(*self._where(_indexed(place, values)), place, message) for place, message in wrong]
        return [
            Problem(_joined(where, dotted(_without_index(place, values))), message)
            for _, where, place, message in sorted(located, key=lambda each: each[0])
        ]

    def _where(self, place: Place) -> tuple[int, str]:
        for end in range(len(place), 0, -1):
            part = place[:end]
            covering = [each for each in self.overrides if part[: len(each)] == each]
            if covering:
                return 0, self.overrides[max(covering, key=len)]
            if part in self.lines.of:
                return self.lines.of[part], f"{self.file}:{self.lines.of[part]}"
            # An override created this part; it is not in the file.
            if made := [each for each in self.overrides if each[:end] == part]:
                return 0, self.overrides[made[0]]
        return 0, self.file


def _joined(where: str, key: str) -> str:
    return where if where.endswith(f" {key}") else f"{where} {key}"


def _indexed(place: Place, values: Any) -> Place:
    """Return the place of a list item that is identified by its value."""
    within = value_at(values, place[:-1])
    items = cast("list[object]", within) if isinstance(within, list) else []
    return (*place[:-1], items.index(place[-1])) if place[-1] in items else place


def _without_index(place: Place, values: dict[str, Any]) -> Place:
    """Return the key that *place* belongs to: an error in a list item is reported for the list."""
    place = _indexed(place, values)
    return place[:-1] if isinstance(place[-1], int) else place


def _plainer(wrong: WrongPart) -> WrongPart:
    """Return an error in terms of TOML; a missing key is described."""
    message = wrong.message.replace("unknown field", "unknown key").replace("known fields:", "known keys:")
    message = message.replace(" | null`", "`")  # which TOML does not have
    for word, plain in _TYPES.items():
        message = message.replace(f"Expected {word}", f"expected {plain}").replace(f"got {word}", f"got {plain}")
    if message == "required field is missing":
        tables = [option for option in options(kind_at(wrong.place[:-1])) if is_struct(option)]
        described = (meta.description for meta in metas(kind_at(wrong.place)) if meta.description)
        described_keys = (meanings(table).get(str(wrong.place[-1]), "") for table in tables)
        message = " ".join(filter(None, [_MISSING, *described, *described_keys]))
    if len(wrong.place) == 1 and message.startswith("unknown key"):
        message = section_needs(wrong.place[0]) or message
    if len(wrong.place) == 3 and (wrong.place[0], wrong.place[2]) in _REPLACED:
        message = _REPLACED[wrong.place[0], wrong.place[2]]
    return WrongPart(wrong.place, message)


# Keys of earlier versions, and what replaced them.
_REPLACED: dict[tuple[object, object], str] = {
    (
        "clients",
        "operator",
    ): '`operator` was replaced by `permissions`: `permissions = ["metrics"]` reads the metrics, `"read"` '
    "everyone's runs and the record, `\"control\"` cancels everyone's runs; name what it needs"
}
_MISSING = "required key is missing."
_TYPES = {
    "`str`": "a text",
    "`int`": "an integer",
    "`float`": "a number",
    "`bool`": "true or false",
    "`object`": "a table",
    "`array`": "an array",
}


def _sound_part(values: dict[str, Any], wrong: Iterable[WrongPart]) -> TeamFile | None:
    """Return a file without its invalid keys, so that the rest is checked as well."""
    sound = deepcopy(values)
    for place, message in wrong:
        # An item cannot be removed from a list without moving the items after it. So the whole list is removed, unless
        # the item is a table that is valid without the invalid key.
        keys = place if _can_be_left_out(place) else tuple(takewhile(lambda step: isinstance(step, str), place))
        if keys == place and message.startswith(_MISSING):
            if place[-1] == "run":
                value_at(sound, place[:-1])["run"] = "missing:missing"
                continue
            keys = keys[:-1]
        table = value_at(sound, keys[:-1])
        if isinstance(table, dict):
            cast("dict[Any, Any]", table).pop(keys[-1], None)
    try:
        return msgspec.convert(sound, file_type())
    except msgspec.ValidationError:
        return None


def _can_be_left_out(place: Place) -> bool:
    fields = fields_at(place[:-1])
    return fields is not None and not any(each.required for each in fields if each.encode_name == place[-1])


def _secrets_in(value: Any, place: Place = ()) -> Iterator[WrongPart]:
    if isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            yield from _secrets_in(each, (*place, name))
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[Any]", value)):
            yield from _secrets_in(each, (*place, index))
    elif isinstance(value, str) and checks.looks_secret(value):
        yield WrongPart(
            place,
            "this looks like a secret, which does not stand in a team file: take it out, change it where it is valid, "
            'put it into an environment variable, and where a key takes a secret, write "$NAME"',
        )


def _invalid(path: Path, problems: Sequence[Problem], suggestion: str | None = None) -> RemitError:
    count = "one thing is" if len(problems) == 1 else f"{len(problems)} things are"
    # Errors in code show when it is imported, which the plain check does not do.
    imported = any(each.message.startswith(IMPORTING) for each in problems)
    check = "`remit validate --code` imports it" if imported else "`remit validate` checks the file"
    return RemitError(
        fault(
            Code.TEAM_INVALID,
            f"{count} wrong in {path}",
            problems=tuple(problems),
            suggestion=suggestion or f"Correct what is named; {check} without running an agent.",
        )
    )


def _cannot_read(path: Path, why: str) -> RemitError:
    return RemitError(
        fault(Code.TEAM_INVALID, f"{path}: {why}", suggestion="`remit init` writes a team file to begin with.")
    )


# The sections that are needed to read the records.
_SECTIONS = ("store", "redaction")
_HEADER = re.compile(r"^(?=\[)", re.MULTILINE)


def salvaged(path: Path, *, overrides: Sequence[str]) -> Team | None:
    """Return a team with only the sections about its store; None if those are invalid."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return None
    values = _sections(text)
    for override in (*from_environment(os.environ, values), *from_flags(overrides)):
        if isinstance(override, Override) and override.place[0] in _SECTIONS:
            apply(override, values)
    if any(wrong_fields(values, file_type())):
        return None
    team = msgspec.convert(values, file_type())
    return team_type()(store=team.store, redaction=team.redaction, file=path.absolute())


def _sections(text: str) -> dict[str, Any]:
    """Return the needed sections, each parsed separately, because another may be invalid TOML."""
    values: dict[str, Any] = {}
    for part in _HEADER.split(text):
        try:
            read = tomllib.loads(part)
        except tomllib.TOMLDecodeError:
            continue
        for name in _SECTIONS:
            if isinstance(read.get(name), dict):
                values.setdefault(name, {}).update(cast("dict[str, Any]", read[name]))
    return values


def read_schemas(values: dict[str, Any], team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Replace paths of schema files by their content in *values*; return those that are missing or invalid."""
    for code, capability in team.capabilities.items():
        for field in ("input_schema", "result_schema"):
            given: Schema | str | None = getattr(capability, field)
            if given is None:
                continue
            schema, wrong = (given, None) if isinstance(given, dict) else read_schema(folder / given)
            if schema is not None:
                wrong = check_schema(schema)
                wrong = wrong and f"this is not a JSON Schema: {wrong}"
                values["capabilities"][code][field] = schema
            if wrong:
                yield WrongPart(("capabilities", code, field), wrong)


def read_schema(file: Path) -> tuple[Schema | None, str | None]:
    """Return the JSON Schema in a file, or why it cannot be read."""
    try:
        schema = json.loads(file.read_bytes())
    except OSError as error:
        return None, f"{file} cannot be read: {error.strerror}"
    except ValueError as error:
        return None, f"{file} is not JSON: {error}"
    if not isinstance(schema, dict):
        return None, f"{file} is not a JSON Schema: it holds no object"
    return cast("Schema", schema), None


def warnings_about(team: TeamFile, tools: Mapping[str, ToolCard] | None = None) -> Iterator[WrongPart]:
    """Return warnings; *tools* are those of the team's hub, or those that the source shows."""
    yield from unencrypted(team)
    yield from _unused_prices(team)
    yield from chain.from_iterable(each.warnings(team) for each in sections())
    if team.redaction.enabled:
        yield from _blind_tools(team, tools or {})
        yield from _blind_capabilities(team, tools or {})


def _unused_prices(team: TeamFile) -> Iterator[WrongPart]:
    """Warn about prices of models whose names are nearly those of the team's models: they are probably mistyped."""
    section = team.orchestrator
    named = [each.model or each.priced_as for each in team.agents.values()]
    named += [] if section is None else [section.model]
    used = {model for model in named if model is not None}
    known = used | {model.partition(":")[2] or model for model in used}
    for model in team.prices.keys() - known:
        if near := did_you_mean(model, sorted(known)):
            yield WrongPart(("prices", model), f"no agent of the team has this model{near}")


def tools_in_source(team: Team) -> dict[str, ToolCard]:
    """Return the tools of a team with the parameters in the source of their functions; nothing is imported."""
    return {
        name: ToolCard(
            name=name,
            input_schema={
                "properties": {
                    parameter: {"type": "boolean"} if kind == "bool" else {}
                    for parameter, kind in parameters_of(tool.run, team.folder).items()
                }
            },
            sees=tool.sees,
        )
        for name, tool in team.tools.items()
    }


def _blind_tools(team: TeamFile, tools: Mapping[str, ToolCard]) -> Iterator[WrongPart]:
    """Warn about tools with a parameter for a value that they will not see."""
    for name, section in team.tools.items():
        if section.sees or name not in tools:
            continue
        users = [agent for agent in team.agents.values() if name in agent.tools]
        for field, kind in fields_asking(tools[name].input_schema).items():
            if _is_found(team, kind) and not (users and all(kind in agent.sees for agent in users)):
                yield WrongPart(("tools", name), _caution_text("the tool", field, kind, key_to_add("tool", name, kind)))


def _blind_capabilities(team: TeamFile, tools: Mapping[str, ToolCard]) -> Iterator[WrongPart]:
    """Warn about capabilities with such a field, if no agent that has them can use a placeholder."""
    cards = _cards(team)
    known = {**_tools_of(team), **tools}
    for code, capability in team.capabilities.items():
        if not isinstance(capability.input_schema, dict):
            continue
        offering = [card for card in cards if code in team.agents[card.name].capabilities]
        for field, kind in fields_asking(capability.input_schema).items():
            if kind in capability.sees or field in capability.sees_fields or not _is_found(team, kind):
                continue
            if any(kind not in card.sees and not can_be_used(kind, card, cards, known) for card in offering):
                key = key_to_add("capability", code, kind)
                yield WrongPart(
                    ("capabilities", code), _caution_text("the agent that is asked for it", field, kind, key)
                )


def _caution_text(who: str, field: str, kind: str, key: str) -> str:
    return (
        f"`{field}` asks for a value of the kind {kind}, and {who} gets a token, because redaction is on. "
        f"If it needs the value, let it see that kind: {key}"
    )


def _is_found(team: TeamFile, kind: str) -> bool:
    looked_for = KINDS if team.redaction.kinds is None else team.redaction.kinds
    return kind in looked_for or kind in team.redaction.patterns


def _cards(team: TeamFile) -> list[AgentCard]:
    """Return the agents' cards as far as they are known without importing code."""
    return [
        AgentCard(
            name=name,
            tools=agent.tools,
            may_call=agent.may_call,
            allow_sub_agent_calls=agent.allow_sub_agent_calls,
            sees=agent.sees,
            capabilities=tuple(
                team.capabilities[code].capability(code) for code in agent.capabilities if code in team.capabilities
            ),
        )
        for name, agent in team.agents.items()
    ]


def _tools_of(team: TeamFile) -> dict[str, ToolCard]:
    """Return the kinds of personal data that each tool sees, as in the file."""
    seen: dict[str, Sees] = {name: tool.sees for name, tool in team.tools.items()}
    for each in sections():
        seen |= each.tools_see(team)
    return {name: ToolCard(name=name, input_schema={}, sees=sees) for name, sees in seen.items()}
