"""The page about what `--json` prints, from the structs that are printed."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from remit_server.documents.schema import outputs_schema

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
    titles = {name: _title(name, each) for name, each in definitions.items()}
    documents = sorted((name for name in definitions if titles[name] != name), key=titles.__getitem__)
    parts = sorted(name for name in definitions if titles[name] == name)
    return HEAD + "".join(_section(titles[name], definitions[name], titles) for name in (*documents, *parts))


def _title(name: str, definition: dict[str, Any]) -> str:
    """Return the heading of a definition: a document's is what it says of itself."""
    schema = definition.get("properties", {}).get("schema")
    return name if schema is None else schema["enum"][0]


def _section(title: str, definition: dict[str, Any], titles: Mapping[str, str]) -> str:
    def link(part: str) -> str:
        return f"[{part}](#{re.sub(r'[^a-z0-9-]', '', titles[part].lower())})"

    head = f"\n## {title}\n\n{definition.get('description', '')}\n\n"
    if "properties" not in definition:
        return f"{head}One of: {kind_text(definition, link)}.\n"
    rows = [
        f"| `{name}` | {kind_text(field, link)} | {field.get('description', '')} |"
        for name, field in definition["properties"].items()
        if name != "schema"
    ]
    return head + "\n".join(("| field | is | meaning |", "|---|---|---|", *rows)) + "\n"


def kind_text(kind: dict[str, Any], link: Callable[[str], str]) -> str:
    """Return what a JSON Schema says of a value, in words; *link* leads to a definition."""
    match kind:
        case {"$ref": str(name)}:
            return link(name.rpartition("/")[2])
        case {"enum": values}:
            return ", ".join(f"`{json.dumps(each)}`" for each in values)
        case {"anyOf": options}:
            return " or ".join(kind_text(each, link) for each in options)
        case {"type": "array", "items": items} if items:
            return f"list of {kind_text(items, link)}"
        case {"type": "array"}:
            return "list"
        case {"type": str(name)}:
            return name
        case _:
            return "anything"
