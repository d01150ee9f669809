"""Files with the JSON Schemas of capabilities, which a team file names by their paths."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from remit.config.team import TeamFile
from remit.protocol.card import Schema
from remit.protocol.problems import WrongPart
from remit.runtime.schemas import check_schema


def read_schemas(said: dict[str, Any], team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Replace paths of schema files by their content in *said*; return those that are missing or invalid."""
    for code, capability in team.capabilities.items():
        for field in ("input_schema", "result_schema"):
            given: Schema | str | None = getattr(capability, field)
            if given is None:
                continue
            schema, wrong = (given, None) if isinstance(given, dict) else _schema_in(folder / given)
            if schema is not None:
                wrong = check_schema(schema)
                wrong = wrong and f"this is not a JSON Schema: {wrong}"
                said["capabilities"][code][field] = schema
            if wrong:
                yield WrongPart(("capabilities", code, field), wrong)


def _schema_in(file: Path) -> tuple[Schema | None, str | None]:
    try:
        schema = json.loads(file.read_bytes())
    except OSError as error:
        return None, f"{file} cannot be read: {error.strerror}"
    except ValueError as error:
        return None, f"{file} is not JSON: {error}"
    if not isinstance(schema, dict):
        return None, f"{file} is not a JSON Schema: it holds no object"
    return cast("Schema", schema), None
