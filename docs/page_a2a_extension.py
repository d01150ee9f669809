"""The page of the A2A extension that carries a remit, and its schema, from the types that read and write it."""

import json
from typing import Any

from markdown_tables import table
from remit_server.a2a.extension_schema import extension_schema
from remit_testing.a2a_extension import AS_CLIENT, AS_SERVER

SCHEMA = "a2a-extension.schema.json"

HEAD = f"""\
# The A2A extension

`urn:remit:delegation:v1` carries what a callee may do and spend over [A2A](https://a2a-protocol.org) 1.0: for which
user, how deep, how long, how many tokens, how much money, with which tools. A2A has no words for that. This page is
for everyone who implements it, in any language. It is made from the code; `make docs` makes it anew. How hubs use it:
[Asking A2A agents](../how-to/a2a-agents.md).

The key words MUST, SHOULD and MAY are those of RFC 2119.

[{SCHEMA}]({SCHEMA}) is the JSON Schema of its content. Every hub that serves A2A has it at
`/.well-known/remit-delegation-v1.json`.

## Activation

- An agent that supports it MUST name it in its card: `"capabilities": {{"extensions": [{{"uri":
  "urn:remit:delegation:v1"}}]}}`. With `"required": true` it refuses clients that do not activate it, with the error
  `EXTENSION_SUPPORT_REQUIRED` (−32008).
- A client activates it for a request with the header `A2A-Extensions: urn:remit:delegation:v1`, beside others,
  separated by commas. Over gRPC it is metadata of the same name. The client SHOULD name it in `message.extensions`,
  too.
- The content is `message.metadata["urn:remit:delegation:v1"]`, an object. A message without it has the limits that
  the server grants to any client.
- A server that activates it MUST say so in the same header of a reply without an error. Without activation it MUST
  NOT read the content nor send any.
- A client SHOULD NOT send content to an agent whose card does not name the extension: it would tell user and chain to
  somebody who keeps no promise about them.

## What comes with a message

All fields are optional.

"""

AMOUNTS = """
Amounts are texts of digits, because A2A's metadata is a protobuf `Struct`, in which every number is a double. A
receiver MUST accept a whole number as well. Amounts are at most 2^53 − 1. An unknown field MUST be ignored: it may
belong to a later version.

```json remit
{
  "user": "ada",
  "depth": "1",
  "maxDepth": "4",
  "chain": ["prime-boss@household"],
  "timeMs": "20000",
  "tokens": "8000",
  "cost": "250000",
  "contextTokens": "500",
  "tools": ["timetable"]
}
```

## Rules of narrowing

What is said can only narrow what the client may do anyway: a server MUST take the lower of both. An agent that asks
another one on behalf of such a request MUST pass on no more than it has.

| field | for the callee |
|---|---|
| `user` | the same |
| `depth` | one more; a request whose `depth` is above `maxDepth` MUST be refused |
| `maxDepth`, `contextTokens` | the same or lower |
| `timeMs` | what is left, or less; an agent SHOULD keep some for its own answer |
| `tokens`, `cost` | a part of what is left. The part MUST be set aside before the call, so that callees at once \
cannot spend more than there is. What was not spent comes back. A limit stays one: `cost` MUST NOT be left out where \
the caller has it |
| `chain` | that of the caller, and then the name of the caller. An agent that finds itself in it MUST refuse, \
unless it was made to be called below itself |
| `tools`, `targets` | the same or fewer names; null stays null or becomes a list |
| conditions in `tools` | the same and others: several sets for one tool hold together. A receiver that cannot judge \
arguments MUST refuse them |
| `mayDelegate` | false stays false. With false, or an empty list of `targets`, an agent MUST NOT ask others |
| `priority` | the same or lower |

`tools` with conditions is `{"pay": {"amount": "<= 100", "to": ["bob", "ann"]}}`: by the name or path of an argument, as
in [a rule's `where`](../how-to/approvals.md#tools-and-their-arguments). A tool without conditions has an empty object.

A name in `chain` MUST be unique for its agent, such as `prime-boss@household`. Loops through agents without the
extension are found by their trace: an agent SHOULD pass on the trace id of `traceparent` (W3C Trace Context).

An agent MUST stop when `timeMs` has gone by since the message arrived. It SHOULD ask its models for no more than it
can still spend. What was spent beyond that is `overrun`, and counts for all above it.

## What comes with an outcome

The content is in the metadata of the artifact whose `artifactId` is `result`; where there is none, in that of the
status message. The usage is that of the agent and of all below it.

"""

OUTCOME = """
```json outcome
{"usage": {"prompt": "70", "completion": "30", "cost": "2400", "priced": "100"}}
```

A client that gets no usage SHOULD estimate it, and count it as estimated.

## Errors

| what is wrong | answer |
|---|---|
| content that the schema does not allow | the error `INVALID_PARAMS` (−32602, HTTP 400), with the fields in a \
`google.rpc.BadRequest` |
| the extension is required and not activated | the error `EXTENSION_SUPPORT_REQUIRED` (−32008, HTTP 400) |
| a `user` whom the client may not ask for | an error with the reason `USER_MISMATCH` |
| too little: depth, tokens, money, chain | a task in the state `TASK_STATE_REJECTED`; nothing was spent |
| the limit is reached on the way | a task in the state `TASK_STATE_FAILED`, with what was spent |

A server SHOULD say why in `rest` of the outcome: `{"fault": {"code": "TOKEN_BUDGET_EXCEEDED", "message": "…"}}`. The
[codes](errors.md) of these rules are `MAX_DEPTH_EXCEEDED`, `TOKEN_BUDGET_EXCEEDED`, `TIMEOUT`, `LOOP_DETECTED`,
`CHAIN_TOO_LONG`, `NESTED_CALLS_FORBIDDEN` and `PERMISSION_DENIED`. A client MUST NOT rely on `rest`.

## An example

A client in plain Python, against a hub:

```python
import asyncio
import json
import urllib.request

from remit import Brief, Hub
from remit_server import serve
from remit_testing import MemoryStore

EXTENSION = "urn:remit:delegation:v1"
travel = Hub(name="travel", store=MemoryStore())

@travel.agent("trains")
async def trains(brief: Brief) -> str:
    brief.spend(prompt=70, completion=30)
    return f"9:40, with {brief.remit.tokens} tokens at depth {brief.remit.depth}"

def ask(address: str, content: dict[str, object]) -> dict[str, object]:
    message = {
        "messageId": f"when-at-depth-{content['depth']}",
        "role": "ROLE_USER",
        "parts": [{"text": "When does it leave?"}],
        "extensions": [EXTENSION],
        "metadata": {EXTENSION: content},
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"A2A-Version": "1.0", "A2A-Extensions": EXTENSION, "Content-Type": "application/json"}
    headers["Authorization"] = "Bearer a-token-that-both-know"
    request = urllib.request.Request(f"{address}/a2a/trains", json.dumps(call).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        assert reply.headers["A2A-Extensions"] == EXTENSION
        return json.loads(reply.read())["result"]["task"]

async def main() -> None:
    content = {"user": "ada", "depth": "1", "maxDepth": "4", "chain": ["prime-boss@household"], "tokens": "8000"}
    async with travel, serve(travel, hubs={"household": "a-token-that-both-know"}, a2a=True) as address:
        done = await asyncio.to_thread(ask, address, content)
        refused = await asyncio.to_thread(ask, address, {**content, "depth": "5"})

    (result,) = done["artifacts"]
    assert result["parts"][0]["text"] == "9:40, with 8000 tokens at depth 1"
    usage = result["metadata"][EXTENSION]["usage"]
    assert (usage["prompt"], usage["completion"]) == ("70", "30")
    assert refused["status"]["state"] == "TASK_STATE_REJECTED"

asyncio.run(main())
```

## Check an implementation

`remit_testing` asks an agent over HTTP, by JSON-RPC or HTTP+JSON, and says line by line which rules it keeps. It knows
nothing of Remit's own code.

```console no-run needs an agent elsewhere
$ python -m remit_testing.a2a_extension https://travel.example/a2a/trains --token TOKEN \\
    --slow "Plan a journey through all of Europe" \\
    --calls "Ask the agent called for its answer" --port 9310
kept         card             The card names the extension.
kept         answers          A request within its remit is done.
…
broken       narrows tokens   The callee gets no more tokens than its caller has. (`tokens`: 90000 of 20000)
…
28 kept, 1 broken, 0 not checked
```

The exit code is 1 if a rule is broken. `--slow` is a text on which the agent works for a minute. For the rules of an
agent that asks others, it has to know the agent of the kit: `called`, at `http://127.0.0.1:9310`, and to ask it on
the text of `--calls`. In tests, `check(url, …)` and `CalledAgent` of `remit_testing.a2a_extension` do the same.

"""


def extension_page() -> str:
    """Return the page."""
    types = extension_schema()["$defs"]
    checked = [(f"`{rule}`", says) for rule, says in AS_SERVER.items()]
    asking = [(f"`{rule}`", says) for rule, says in AS_CLIENT.items()]
    return "".join(
        (
            HEAD,
            _fields(types["Remit"]),
            AMOUNTS,
            _fields(types["Outcome"]),
            "\nThe fields of `usage`:\n\n",
            _fields(types["Usage"]),
            OUTCOME,
            table(("rule of an agent that is asked", "what is checked"), checked),
            "\n",
            table(("rule of an agent that asks others", "what is checked"), asking),
        )
    )


def schema_file() -> str:
    """Return the JSON Schema as a file."""
    return json.dumps(extension_schema(), indent=2) + "\n"


def _fields(of: dict[str, Any]) -> str:
    rows = [(f"`{name}`", _kind(each), each.get("description", "")) for name, each in of["properties"].items()]
    return table(("field", "is", "meaning"), rows)


def _kind(schema: dict[str, Any]) -> str:
    """Return in words what a field holds."""
    some = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if {each.get("type") for each in some} == {"string", "number"}:
        return "amount"
    if len(some) > 1:
        return " or ".join(map(_kind, some))
    (one,) = some
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        return ", ".join(f"`{each}`" for each in extension_schema()["$defs"][name].get("enum", ())) or "object"
    return {"array": "list of names", "object": "object", "string": "text", "boolean": "`true` or `false`"}[one["type"]]
