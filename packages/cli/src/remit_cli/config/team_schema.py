"""The JSON Schema of the team file, for editors."""

from typing import Any, cast

import msgspec
from msgspec import Struct, defstruct

from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.sections.orchestration import StepSection, WorkflowSection
from remit_cli.config.team import TeamFile
from remit_cli.config.team_section import file_keys, file_type, sections
from remit_cli.config.values import Section


def team_schema() -> dict[str, Any]:
    """Return the JSON Schema of a team file (draft 2020-12), for completion and checks in editors."""
    schema = cast("dict[str, Any]", _as_editors_read(msgspec.json.schema(_in_order())))
    definitions = schema["$defs"]
    kinds = ("run", "model", "peer", "card", "device")
    definitions[AgentSection.__name__]["oneOf"] = [{"required": [kind]} for kind in kinds]
    definitions[StepSection.__name__]["anyOf"] = [{"required": ["agent"]}, {"required": ["capability"]}]
    definitions[WorkflowSection.__name__]["required"] = ["steps"]
    for each in sections():
        if each.one_of:
            table = schema["$defs"][TeamFile.__name__]["properties"][each.key]["additionalProperties"]["$ref"]
            definitions[table.rpartition("/")[2]]["oneOf"] = [{"required": [key]} for key in each.one_of]
    # Some editors do not follow a reference at the top level.
    file = definitions.pop(TeamFile.__name__) | {"title": "remit.toml"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file, "$defs": definitions}


def _in_order() -> type[Struct]:
    """Return the type of a file with its keys in the order of the reference."""
    kinds = {each.name: each.type for each in msgspec.structs.fields(file_type())}
    empty = file_type()()
    fields = [(key, kinds[key], getattr(empty, key)) for key in file_keys()]
    about = {"__doc__": TeamFile.__doc__}
    return defstruct(TeamFile.__name__, fields, bases=(Section,), namespace=about, kw_only=True)


def _as_editors_read(schema: object) -> object:
    r"""Return a schema without null, which TOML does not have, and with `$` in patterns: ECMA-262 has no `\Z`."""
    from inspect import cleandoc  # not needed to read a team file, and large

    if isinstance(schema, list):
        return [_as_editors_read(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _as_editors_read(each) for name, each in cast("dict[str, object]", schema).items()}
    if isinstance(pattern := plain.get("pattern"), str):
        plain["pattern"] = pattern.replace(r"\Z", "$")
    if isinstance(said := plain.get("description"), str):
        plain["description"] = cleandoc(said)  # Python 3.13 does so by itself
    if "default" in plain and (plain["default"] is None or isinstance(plain["default"], dict)):
        del plain["default"]
    options = plain.get("anyOf")
    if isinstance(options, list):
        left = [each for each in cast("list[dict[str, object]]", options) if each != {"type": "null"}]
        if len(left) == 1:
            del plain["anyOf"]
            return {**left[0], **plain}
        plain["anyOf"] = left
    return plain
