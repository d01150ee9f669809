"""The page about what `--json` prints, from the structs that are printed."""

import json
from typing import Any

from remit.documents.schema import outputs_schema

HEAD = """\
# What --json prints

Each document says of itself what it is: `"schema": "remit.run/1"`. Within a version fields may be added; one that is
renamed, removed or given another meaning makes a new version. Programs should leave out of account what they do not
know.

`remit schema outputs` prints the JSON Schema of all of them. This page is made from the same structs;
`.venv/bin/python docs/generate.py` makes it anew.
"""


def outputs_page() -> str:
    """Return the page about the documents that commands print."""
    definitions: dict[str, Any] = outputs_schema()["$defs"]
    documents = {name: each for name, each in definitions.items() if "schema" in each.get("properties", {})}
    parts = {name: each for name, each in definitions.items() if name not in documents and "properties" in each}
    sections = [
        _section(each["properties"]["schema"]["enum"][0], each)
        for each in sorted(documents.values(), key=lambda each: each["properties"]["schema"]["enum"][0])
    ]
    sections += [_section(name, parts[name]) for name in sorted(parts)]
    return HEAD + "".join(sections)


def _section(title: str, struct: dict[str, Any]) -> str:
    rows = [
        f"| `{name}` | {_takes(field)} | {field.get('description', '')} |"
        for name, field in struct["properties"].items()
        if name != "schema"
    ]
    table = "\n".join(("| field | is | meaning |", "|---|---|---|", *rows))
    return f"\n## {title}\n\n{struct.get('description', '')}\n\n{table}\n"


def _takes(kind: dict[str, Any]) -> str:
    match kind:
        case {"$ref": str(name)}:
            part = name.rpartition("/")[2]
            return f"[{part}](#{part.lower()})"
        case {"enum": values}:
            return ", ".join(f"`{json.dumps(each)}`" for each in values)
        case {"anyOf": options}:
            return " or ".join(_takes(each) for each in options)
        case {"type": "array", "items": items} if items:
            return f"list of {_takes(items)}"
        case {"type": "array"}:
            return "list"
        case {"type": str(name)}:
            return name
        case _:
            return "anything"
