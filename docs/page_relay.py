"""The page about profiles: policy, modes and their rules, limits, attachments, from the code."""

from msgspec import NODEFAULT, structs

from markdown_tables import table
from remit_relay.bridge.ports import PromptConstraints
from remit_relay.session.profile import FileRules, Profile, ProfileLimits
from remit_relay.session.review import RULES, ReviewRules

HEAD = """\
# Profiles

A profile is a local agent, and what it may do with [shared agents](../tutorials/shared-agents.md). Nothing is allowed
by default. This page is made from the code; `make docs` makes it anew. Every key is in [The team file](team.md),
every state in [States of runs and messages](relay-states.md).

```toml remit.toml
[relay]
gateway = "wss://relay.example.org"

[profiles.reviewer]
run = ["python", "agent.py"]
allow_shared_agent_calls = true
devices = ["bob-desktop"]
mode = "semi_auto"
rate = { calls = 10, seconds = 60 }
limits = { max_turns = 12, max_duration = "20m", max_tokens = 50000 }
rules = { disabled = ["links"], min_confidence = 0.8 }
constraints = { allow_tool_use = false, turn_timeout = "30s" }
attachments = { types = ["text/*", "image/png"], max_size = 500000 }
```

```console
$ remit validate
```

## Policy

"""

POLICY = {
    "allow_shared_agent_calls": "whether it may call shared agents at all",
    "allowed_shared_device_ids": "which devices it may call; in the team file `devices`, by name or id",
    "max_concurrent_shared_calls": "how many of its messages may wait for an answer at once",
    "max_hop_count": "how many hops a task may have made; 1 is from you to the shared agent",
    "rate": "how often it may call each device",
}
FILES = {
    "types": "allowed media types: `image/png`, `text/*` or `*/*`",
    "max_size": "bytes of one file; at most 8 MiB, for all files of a message together too",
    "max_count": "files of one message",
}

ABUSE = """
`[shared.NAME]` limits the same on the other side: which devices may call, how often, how many at once, over how many
hops.

Each message carries a control envelope inside the encryption: the device where the task began
(`origin_agent_device_id`), its trace (`trace_id`), its hops (`hop_count`) and the sending profile
(`orchestrator_profile_id`). A refused message stops its run in `error`, with the reason:

| code | the message |
|---|---|
| `MAX_DEPTH_EXCEEDED` | has more hops than `max_hop_count` |
| `LOOP_DETECTED` | would return to the device where it began, or comes from a task in progress there |
| `RATE_LIMITED` | exceeds the rate of its profile and device; the refusal says when to try again |
| `FAN_OUT_EXCEEDED`, `OVERLOADED` | is one too many in progress: for the sender, for the receiver |
| `PERMISSION_DENIED` | is for or from a device that is not allowed, or is a first one that names another origin |

## Modes

| mode | what is sent |
|---|---|
| `manual` | what you approve, as it is or edited; the default |
| `semi_auto` | drafts that no rule holds; the others wait for you |
| `full_auto` | everything, until a limit is reached |

Each message has a label: `auto_sent`, `approved`, `edited`, or `yours` if you typed it.

In `semi_auto` these rules hold a draft. The review names the rule and the reason; it quotes nothing of the draft except
the host of a link.

"""

RULES_AFTER = """
`rules` of a profile has `disabled`, a list of rules that never hold a draft, and numbers:
{numbers}.
In every mode a draft waits for you if it came while the run was paused, or was sent before and got lost.

### Editing a draft

`e` opens `$EDITOR` if it is set, or else puts the draft into the input line. In a terminal without cursor keys
(`TERM=dumb`) `e` shows the draft in numbered rows of at most 60 characters, which also suits screen readers; `/rows`
does so in every terminal. Rows that you do not change stay as they are.

| typed | effect |
|---|---|
| `2 TEXT`, `2-4 TEXT` | replaces row 2, or rows 2 to 4 |
| `d 2`, `d 2-4` | deletes them |
| `i 2 TEXT` | inserts before row 2 |
| `show`, `send`, `cancel` | shows all rows; sends the draft; leaves it as it was |

A text that could not be sent, because the run was paused or there is a newer draft, returns to the input line. In a
terminal that cannot do that, `/again` enters it once more.

## Limits

A run ends at the first limit, and shows which.

"""

TIME = """
Time does not count while the run is paused or in `error`, while a draft waits for you, or while you have taken over.
What you write in a [chat of your own](relay-api.md#operations) before your agent joins counts towards neither turns nor
time.

`constraints` limit the local agent in each turn:

"""

ATTACHMENTS = """
A turn without tools takes at most 60 s. [Local agents](../how-to/local-agents.md) says what happens to an agent that
exceeds these.

## Attachments

A message may carry files if both sides allow it: `attachments` of `[profiles.NAME]` for its messages and their answers,
`attachments` of `[shared.NAME]` for messages to the shared agent and its answers.

"""

ATTACHED = """
| typed in a chat | effect |
|---|---|
| `/attach PATH`, `/detach NAME` | adds a file to the next message, whoever writes it; removes it |
| `/files` | lists the files of the run |
| `/save NAME` | writes a received file to the current folder; overwrites nothing |

Programs use `/v1/shared/runs/RUN/files`.

Files are checked when they are attached, sent and received. A received file is checked by its content: the size is
counted, and the type must fit the first bytes (common binary types) or be UTF-8 text without control characters (text
types). A name has no path and no control or invisible character, and does not begin with `.`, `-` or `~`. A refusal
names the file and the rule. A message to a shared agent with a refused file is declined; of an answer the text is kept,
and the file is listed with the reason.

Files are part of their message: encrypted end to end, complete or absent, delivered once, also if a device or the
gateway is killed meanwhile. The device's file keeps them, encrypted, for `keep` (30 days) after the end of the run.

- The shared agent gets `{"message": …, "attachments": [{"name": …, "media_type": …, "size": …, "path": …}]}` as its
  input. The paths are in the folder `attachments` beside the device's file, readable by its owner only, and deleted
  when the agent is done. It answers with artifacts of type `file`:
  `{"raw": BASE64, "mediaType": …, "filename": …}`.
- The local agent gets names, types and sizes, not the contents.
- The record has the type and size of each file, and a digest of its name.
"""

NOTIFY = """
## Notifications

`[relay.notify]` notifies you when a run needs you: a draft waits, the agent asks for a permission, something failed, a
limit was reached, or the objective is met. Each occasion is notified once, also after a restart.

| key | effect |
|---|---|
| `desktop = true` | a notification on this desktop; a machine without one ignores it |
| `command = ["my-notifier"]` | a program that reads the notice as JSON from its stdin; no shell, at most 10 s |
| `webhook = "https://…"` | the notice is posted as JSON, up to three times; `http` only on this machine |
| `secret = "$NAME"` | signs it: `X-Remit-Signature: sha256=` and the HMAC-SHA-256 of the body |
| `texts = true` | includes the draft, question, failure or result; otherwise no text of the agents |

`waiting` in the JSON is the number of runs that wait for you.
"""

LIMITS = {
    "max_turns": "messages sent",
    "max_duration_ms": "time at work; in the team file `max_duration`",
    "max_failures": "failures in a row, of the local agent or on the way to the other one",
    "max_tokens_budget": "tokens that the local agent spent; in the team file `max_tokens`",
}
CONSTRAINTS = {
    "max_output_chars": "characters of a draft",
    "allow_tool_use": "whether it may use tools",
    "max_history_turns": "turns that it is shown whole",
    "max_history_chars": "characters of those and of the summary of older ones",
    "max_tool_rounds": "rounds of tools in a turn",
    "local_turn_timeout_ms": "time for a turn; in the team file `turn_timeout`",
}


def profiles_page() -> str:
    """Return the page about profiles, modes, limits and attachments."""
    numbers = ", ".join(
        f"`{field.name}` ({field.default})"
        for field in structs.fields(ReviewRules)
        if isinstance(field.default, int | float)
    )
    return "".join(
        (
            HEAD,
            _defaults(Profile, POLICY),
            ABUSE,
            table(("rule", "it holds a draft when"), ((f"`{rule}`", meaning) for rule, meaning in RULES.items())),
            RULES_AFTER.format(numbers=numbers),
            _defaults(ProfileLimits, LIMITS),
            TIME,
            _defaults(PromptConstraints, CONSTRAINTS),
            ATTACHMENTS,
            _defaults(FileRules, FILES),
            ATTACHED,
            NOTIFY,
        )
    )


def _defaults(kind: type[Profile | ProfileLimits | PromptConstraints | FileRules], meaning: dict[str, str]) -> str:
    fields = {field.name: field for field in structs.fields(kind)}
    return table(
        ("", "default", "meaning"),
        ((f"`{name}`", _default(fields[name]), words) for name, words in meaning.items()),
    )


def _default(field: structs.FieldInfo) -> str:
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    if field.name.endswith("_ms"):
        return f"{value // 60_000} min" if value >= 180_000 else f"{value // 1_000} s"
    if isinstance(value, bool):
        return str(value).lower()
    if field.name == "rate":
        return f"{value.calls} in {value.seconds} s"
    return "none" if value is None or value in (frozenset(), ()) else f"{value:,}"
