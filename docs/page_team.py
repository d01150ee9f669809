"""The page about the team file, from the structs that it is checked against."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from remit.protocol.errors import RemitError
from remit_cli.config.load import load_team
from remit_cli.config.origins import variable
from remit_cli.config.team import team_schema
from remit_redaction.pipeline import KINDS

TEAM_EXAMPLE = """\
#:schema ./remit.schema.json
name = "office"

[limits]
max_depth = 3

[budgets]
run_time = "2m"
run_tokens = 20_000

[agents.front-desk]
run = "receipts:front_desk"
may_call = ["tax-ai"]

[agents.tax-ai]
run = "receipts:tax"
capabilities = ["TAX_DEDUCTIBLE"]
tools = ["ledger"]
prompt = "Answer for the year of the receipt, and say which rule you used."
time = "10s"
rate = { calls = 10, seconds = 60 }

[capabilities.TAX_DEDUCTIBLE]
description = "Says how much of a receipt can be deducted."
examples = ["Can I deduct this?"]
input_schema = { type = "object", required = ["amount"], properties = { amount = { type = "number" } } }
sees_fields = ["iban"]

[tools.ledger]
run = "receipts:ledger"
safe_to_repeat = true

[workflows.trip]
description = "Works out what a business trip costs in the end."

[[workflows.trip.steps]]
name = "deductible"
capability = "TAX_DEDUCTIBLE"
input = { amount = "{input.amount}" }
title = "Looking at the receipt…"

[[rules]]
then = "ask"
to = "tax-ai"
mentions = ["refund", "penalty"]
say = "This is about money that was paid already. May tax-ai see it?"
edit = ["objective"]

[approvals]
allow = ["front-desk -> tax-ai"]
otherwise = "inbox"
timeout = "5m"

[redaction.patterns]
STAFF_NUMBER = "ST-[0-9]{6}"
"""

TEAM_CODE = """\
from remit import Answer, Brief


async def front_desk(brief: Brief) -> Answer:
    reply = await brief.delegate("tax-ai", objective=brief.objective, input=brief.input, capability="TAX_DEDUCTIBLE")
    return Answer(f"You can deduct {reply.result}.")


async def tax(brief: Brief) -> float:
    return await brief.use("ledger", amount=brief.input["amount"])


def ledger(amount: float) -> float:
    return amount / 2
"""

BROKEN_TEAM = """\
[limits]
max_dept = 3

[budgets]
run_time = "2 minutes"

[agents.front-desk]
run = "receipts:frontdesk"
may_call = ["tax-a"]

[agents.tax-ai]
prompt = "Answer for the year of the receipt."
isolation = "proces"
sees = ["IBANS"]

[redaction]
key = "a-long-secret"
"""

TEAM_HEAD = """\
# The team file

A team can be written in Python, as in [Agents](../how-to/agents.md), or in a file, `remit.toml`. It says who is
there, who may call whom, and what all of that may cost:

```toml remit.toml
{example}```

The code is plain Python in the same folder, here `receipts.py`:

```python receipts.py
{code}```

A program opens it like this, say `ask.py`; the command line does the same.

```python ask.py
from pathlib import Path

from remit_cli import hub_of, load_team

with hub_of(load_team(Path("remit.toml"))) as hub:
    print(hub.ask_sync("front-desk", "Can I deduct this?", user="u-1", input={{"amount": 80}}).unwrap())
```

```console
$ python ask.py
$ remit run front-desk "Can I deduct this?" --input '{{"amount": 80}}'
```

The file that counts is the one that `--team` or `$REMIT_TEAM` names, else `remit.toml` in the working directory or in
the nearest folder above it. The search ends at your home folder, at the root of a git repository, and below a folder
that others can write to, such as `/tmp`. Paths in the file begin at its own folder, which is also where Python looks
for agents and tools first. What a workflow is, [Workflows](../how-to/workflows.md) says.

The first line of the example is a comment to Remit. Editors that know TOML (Even Better TOML, Taplo) complete and check
the file by the JSON Schema that it names; `remit schema` writes it.

## Whose file it may be

A team file names code that runs as you, so the command line reads it only if nobody else could have written it. The
file and its folder have to belong to you or to root, and be writable by nobody else: not by everyone, also not with the
sticky bit of `/tmp`, and not by a group, unless it is the private group that many Linux systems give each user. This
holds for a file that the search found and for one that you named, since a named path may lead to a stranger's file just
as well.

```text
TEAM_INVALID: /srv/team/remit.toml belongs to build (user 1001), and you are root (user 0); a team file names code to
run, so this one is not read
  → If you know it and trust everyone who can write to it, name it: REMIT_TRUST_TEAM=/srv/team/remit.toml. Otherwise
    change its owner and permissions, or copy the team into a folder of your own.
```

`REMIT_TRUST_TEAM` holds absolute paths of team files, or of folders with a `remit.toml`, separated as in `PATH`. It is
an exact list, like git's `safe.directory`: there is no value that trusts every file. Set it in a container that runs as
root on a checkout of another user, or where a volume is mounted with mode 777, as Kubernetes does with a config map.
Windows has no such owners; nothing is checked there. Neither is anything for `load_team` in a Python program: the
program names the file, and its own code runs already.

`remit validate` and `remit doctor` run none of the code that a team file names: they look for modules in the team's
folder and for functions in the modules' text. `remit validate --code` imports the code, which runs it.

## Overrides

A value can be said elsewhere than in the file. A flag counts more than the environment, that more than the file, and
that more than the default.

| where | how |
|---|---|
| a flag | `--set limits.max_depth=3`: the key as the file would have it, with quotes where TOML needs them |
| the environment | `REMIT_LIMITS__MAX_DEPTH=3`: section and key in capitals, two underscores between them |
| the file | `max_depth = 3` below `[limits]` |

The value is read as TOML: `--set 'agents.front-desk.may_call=["tax-ai"]'`. What is not TOML is text:
`--set budgets.run_time=5m`.

In a variable's name, whatever is neither letter nor figure becomes an underscore, several in a row one: the tokens of
`tax-ai` are `REMIT_AGENTS__TAX_AI__TOKENS`. A variable can change an agent, tool or capability of the file but not add
one, and where two of them would share a variable it is refused; `--set` knows neither limit. Of what stands outside the
sections only `name` has a variable. Rules can be given by `--set 'rules=[…]'` alone, and all at once. A variable that
begins with `REMIT_`, has two underscores further on and means no key is an error.

## Secrets

A secret does not stand in the file. A key that takes one takes only the name of an environment variable, `"$NAME"`,
and that variable must be set where it is used: `remit validate` and `remit serve` ask for all of them, `remit run`,
`remit chat` and `remit runs resume` not for those of clients, profiles and MCP servers (an MCP server is started when
one of its tools is needed, and says then what is not set). A text anywhere in the file that looks like a secret (an
API key, a bearer token, a private key, an address with a password in it) is refused.

## What is checked

Everything is checked before anything runs, and all that is wrong is said at once, with its line; what an override says
is named by its variable or flag:

```text
{broken}```

That was this file:

```toml
{broken_file}```

A file that is broken keeps nobody from the record: `remit runs list`, `show`, `answer`, `tree`, `watch`, `cancel` and
`remit audit` find the store in what can still be read of it, and say so.

## Changes while it runs

A hub that is told to reload takes over what it can at once: `limits`, `budgets`, `breaker`, `rules`, the time for
approvals, and of each agent `may_call`, `allow_sub_agent_calls`, `authority`, `rate`, `time` and `tokens`. No run
is stopped: calls in progress keep the time, tokens and tools that they were granted, and new calls follow the new
settings. Everything else that differs is named and waits for a restart. A file with an error changes nothing.

## Reference

Each key with the variable that overrides it. This part is made from the structs of the sections;
`.venv/bin/python docs/generate.py` makes it anew.
"""

# What stands for the name that a team gives an agent, a capability, a tool or a workflow.
PLACEHOLDERS = {
    "agents": "NAME",
    "capabilities": "CODE",
    "tools": "NAME",
    "mcp": "NAME",
    "workflows": "NAME",
    "peers": "NAME",
    "clients": "NAME",
    "profiles": "NAME",
    "shared": "NAME",
    "prices": "MODEL",
}
# Tables within those, which have a heading of their own.
WITHIN = {
    "relay": ("notify",),
    "profiles": ("limits", "rules", "constraints", "attachments"),
    "shared": ("attachments",),
}
# Tables within a section that a team names, and what stands for the name.
NAMED_WITHIN = {"guard": {"kinds": "KIND", "tools": "TOOL", "projects": "FOLDER"}}
# What a team fills with keys of its own: what stands for one, and what it means.
OPEN = {"glossary": ("VARIANT", "The term that users read in its place.")}


def team_page() -> str:
    """Return the page about the team file."""
    head = TEAM_HEAD.format(
        example=TEAM_EXAMPLE, code=TEAM_CODE, broken_file=BROKEN_TEAM, broken=_complaint(BROKEN_TEAM)
    )
    schema = team_schema()
    plain = {key: each for key, each in schema["properties"].items() if "enum" in each or each.get("type") == "string"}
    pages = [head, "### Outside the sections\n\n" + _table(plain, ())]
    for name, each in schema["properties"].items():
        if name not in plain:
            pages.append(_team_section(name, each, schema["$defs"]))
    kinds = [f"| `{kind}` | {meaning} |" for kind, meaning in KINDS.items()]
    pages.append("\n".join(["### Built-in kinds of data", "", "| kind | what is found |", "|---|---|", *kinds, ""]))
    return "\n".join(pages)


def _team_section(name: str, section: dict[str, Any], definitions: dict[str, Any]) -> str:
    place: tuple[str, ...] | None = (name,)
    title = f"[{name}]"
    if name in PLACEHOLDERS:
        place, title = (name, PLACEHOLDERS[name]), f"[{name}.{PLACEHOLDERS[name]}]"
        section = section["additionalProperties"]
    elif section.get("type") == "array":
        place, title = None, f"[[{name}]]"
        section = section["items"]
    elif name in OPEN:
        key, meaning = OPEN[name]
        keys = {key: {**section["additionalProperties"], "description": meaning}}
        return f"### {title}\n\n{section['description']}\n\n" + _table(keys, place)
    struct = _struct(section, definitions)
    pages = [f"### {title}\n\n{struct['description']}\n\n" + _table(struct["properties"], place, struct["required"])]
    for key in WITHIN.get(name, ()):
        part = _struct(struct["properties"][key], definitions)
        assert place is not None, "what has tables within it is named"
        table = _table(part["properties"], (*place, key))
        pages.append(f"### {title[:-1]}.{key}]\n\n{part['description']}\n\n{table}")
    for key, stands in NAMED_WITHIN.get(name, {}).items():
        part = _struct(struct["properties"][key]["additionalProperties"], definitions)
        table = _table(part["properties"], (name, key, stands), part["required"])
        pages.append(f"### {title[:-1]}.{key}.{stands}]\n\n{part['description']}\n\n{table}")
    if name == "workflows":
        step = _struct(struct["properties"]["steps"]["items"], definitions)
        table = _table(step["properties"], None, step["required"])
        pages.append(f"### [[workflows.NAME.steps]]\n\n{step['description']}\n\n{table}")
    return "\n".join(pages)


def _struct(reference: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return definitions[reference["$ref"].rpartition("/")[2]]


def _table(keys: dict[str, Any], place: tuple[str, ...] | None, required: list[str] | None = None) -> str:
    """Return a table of keys; *place* is where variables find them, None if none does."""
    lines = ["| key | takes | default | meaning | variable |", "|---|---|---|---|---|"]
    for key, each in keys.items():
        default = f"`{json.dumps(each['default'])}`" if "default" in each else ""
        cells = (
            f"`{key}`",
            _takes(each),
            "required" if key in (required or ()) else default,
            each["description"],
            f"`{variable((*place, key))}`" if place is not None and (place or key == "name") else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _takes(kind: dict[str, Any]) -> str:
    if "enum" in kind:
        return " or ".join(f"`{json.dumps(each)}`" for each in kind["enum"])
    if "anyOf" in kind:
        return " or ".join(_takes(each) for each in kind["anyOf"])
    match kind.get("type"):
        case "string":
            return kind.get("title", "text")
        case "boolean":
            return "`true` or `false`"
        case "array":
            return f"list of {_takes(kind['items'])}"
        case "integer" | "number" as number:
            return f"{number} from {kind['minimum']}" if kind.get("minimum") else number
        case _:
            return "table" if "$ref" in kind or "type" in kind else "anything"


def _complaint(team: str) -> str:
    """Return what is said of a team file that is wrong."""
    path = list(sys.path)
    with TemporaryDirectory() as folder:
        (Path(folder) / "receipts.py").write_text(TEAM_CODE, encoding="utf-8")
        file = Path(folder) / "remit.toml"
        file.write_text(team, encoding="utf-8")
        try:
            load_team(file, environ={"REMIT_LIMITS__MAX_CHAIN": "ten"})
        except RemitError as error:
            return f"{error}\n".replace(f"{file}", "remit.toml")
        finally:
            sys.path[:] = path
            sys.modules.pop("receipts", None)
    raise AssertionError("nothing is wrong with the file that should show what is said")
