"""The page of events, from the structs that are recorded and sent."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from page_outputs import kind_text
from page_python import TOPICS, read_fields
from remit.protocol.records import BODIES, Kind, PlannedStep, Record, SharedFile, StepPlan
from remit_server.event_endpoints import RunChange, StreamGap, StreamStart

HEAD = """\
# Events

A run is a sequence of records, and each record is an event: it is committed first, then sent. The same events come from

- `hub.stream(…)`, `hub.events()` and `hub.follow(…)` in Python, as [`Record`](python-records.md#record),
- `remit run --jsonl` and `remit runs watch --jsonl`, one on each line,
- `GET /v1/delegations/{id}/events` and `GET /v1/events` as server-sent events
  ([The HTTP API](http-api.md#streams)).

Over HTTP an event has the kind as `event`, the number as `id`, and the record as `data`:

```text
id: 17
event: progress
data: {"seq":17,"kind":"progress","at_ms":1767225600000,"run":"01a1…","session":"01a1…","body":{…}}
```

A client that lost the connection goes on after the number that it has, with the header `Last-Event-ID`. All texts are
redacted. A field that has its default is left out. A later version may add fields and kinds: leave out of account what
you do not know. [Audit](../explanation/audit.md) says what each record proves. This page is made from the code;
`make docs` makes it anew.

| field | is | meaning |
|---|---|---|
"""

STREAM = """
## Of the stream of all runs

`GET /v1/events` begins with `ready`. With `?form=runs` it says which runs changed, instead of how.
"""

SENT = {"ready": StreamStart, "run": RunChange, "gap": StreamGap}
PARTS = (StepPlan, PlannedStep, SharedFile)

# What the body is depends on the kind, which a schema of the whole record cannot say.
OUTER = {
    "seq": "integer",
    "kind": "string",
    "at_ms": "integer",
    "run": "string",
    "session": "string",
    "body": "object, by kind",
}

SHARED = """
## Of runs with other devices

The local API has events of its own: [The local API](relay-api.md).
"""


def events_page() -> str:
    """Return the page of events."""
    structs = (*dict.fromkeys(BODIES.values()), *SENT.values(), *PARTS)
    _, definitions = msgspec.json.schema_components(structs)
    parts = [HEAD, *(f"| `{each.name}` | {OUTER[each.name]} | {each.meaning} |\n" for each in read_fields(Record))]
    kinds = {each.name: each for each in read_fields(Kind)}
    shown: dict[type, Kind] = {}
    for kind, body in BODIES.items():
        meaning, name = kinds[kind.name].meaning, f"[`{body.__name__}`]({_page(body.__name__)})"
        if body in shown:
            parts.append(f"\n## {kind}\n\n{meaning} `body` is a {name}, as of [{shown[body]}](#{shown[body]}).\n")
            continue
        shown[body] = kind
        parts.append(f"\n## {kind}\n\n{meaning} `body` is a {name}:\n\n")
        parts += ["| field | is | meaning |\n|---|---|---|\n", *_rows(body, definitions)]
    for struct in PARTS:
        parts.append(f"\n### {struct.__name__}\n\n{_first_line(struct)}\n\n| field | is | meaning |\n|---|---|---|\n")
        parts += _rows(struct, definitions)
    parts.append(STREAM)
    for event, struct in SENT.items():
        parts.append(f"\n### {event}\n\n{_first_line(struct)}\n\n| field | is | meaning |\n|---|---|---|\n")
        parts += _rows(struct, definitions)
    return "".join(parts) + SHARED


def _first_line(struct: type) -> str:
    return (struct.__doc__ or "").split("\n")[0]


def _rows(struct: type, definitions: dict[str, Any]) -> Sequence[str]:
    kinds = definitions[struct.__name__]["properties"]
    return [
        f"| `{each.name}` | {kind_text(kinds[each.name], _link)} | {_in_json(each.meaning)} |\n"
        for each in read_fields(struct)
    ]


def _in_json(meaning: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(meaning.split()))


def _link(name: str) -> str:
    if name in {each.__name__ for each in PARTS}:
        return f"[{name}](#{name.lower()})"
    page = _page(name)
    return f"[{name}]({page})" if page else f"`{name}`"


def _page(name: str) -> str:
    """Return the address of a public name; empty for any other."""
    pages = (page for page, topic in TOPICS.items() if name in topic.names.split())
    return next((f"{page}.md#{name.lower()}" for page in pages), "")
