"""The JSON Schema of a team file, for completion and checks in editors."""

from typing import Any, cast

import msgspec

from remit.config.sections.agents import AgentSection, McpSection
from remit.config.sections.orchestration import StepSection, WorkflowSection
from remit.config.sections.relay import ProfileSection
from remit.config.team import TeamFile


def team_schema() -> dict[str, Any]:
    """Return the JSON Schema of a team file (draft 2020-12), for completion and checks in editors."""
    schema = cast("dict[str, Any]", _as_editors_read(msgspec.json.schema(TeamFile)))
    definitions = schema["$defs"]
    kinds = ("run", "model", "peer", "card", "device")
    definitions[AgentSection.__name__]["oneOf"] = [{"required": [kind]} for kind in kinds]
    definitions[StepSection.__name__]["anyOf"] = [{"required": ["agent"]}, {"required": ["capability"]}]
    definitions[WorkflowSection.__name__]["required"] = ["steps"]
    definitions[McpSection.__name__]["oneOf"] = [{"required": ["command"]}, {"required": ["url"]}]
    definitions[ProfileSection.__name__]["oneOf"] = [{"required": [kind]} for kind in ("agent", "run", "acp")]
    # Some editors do not follow a reference at the top level.
    file = definitions.pop(TeamFile.__name__) | {"title": "remit.toml"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file, "$defs": definitions}


def _as_editors_read(schema: object) -> object:
    r"""Return a schema without null, which TOML does not have, and with `$` in patterns: ECMA-262 has no `\Z`."""
    if isinstance(schema, list):
        return [_as_editors_read(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _as_editors_read(each) for name, each in cast("dict[str, object]", schema).items()}
    if isinstance(pattern := plain.get("pattern"), str):
        plain["pattern"] = pattern.replace(r"\Z", "$")
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
