"""The page about profiles: modes and their rules, limits, states, from the code."""

from collections.abc import Iterable

from msgspec import NODEFAULT, structs

from remit.relay.bridge.ports import Draft, DraftFailure, PromptConstraints
from remit.relay.session import moves
from remit.relay.session.file_rules import FileRules
from remit.relay.session.moves import Event, SessionState
from remit.relay.session.profile import Profile, ProfileLimits
from remit.relay.session.reducer import step
from remit.relay.session.review import RULES, ReviewRules
from remit.relay.session.run import MoveRefused, Overlay, Transition

HEAD = """\
# Profiles

A profile is a local agent with what it may do with [shared agents](../tutorials/shared-agents.md). Nothing is
allowed until it is switched on. This page is made from the code; `.venv/bin/python docs/generate.py` makes it anew.
Every key is in [The team file](team.md).

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
    "allow_shared_agent_calls": "whether it may have dealings with shared agents at all",
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
The same holds on the other side for `[shared.NAME]`: who may ask, how often, how many at once, over how many hops.

Each message carries a control envelope, inside the encryption and shown to nobody: the device where the task began
(`origin_agent_device_id`), its trace (`trace_id`), its hops (`hop_count`) and the profile that sends it
(`orchestrator_profile_id`). A message is refused

- with `MAX_DEPTH_EXCEEDED`, if its hops are more than `max_hop_count`;
- with `LOOP_DETECTED`, if it would come back to where it began, or comes out of a task that is worked on there;
- with `RATE_LIMITED`, if the pair of profile and device has had too many; it says when to come back;
- with `FAN_OUT_EXCEEDED` where it is sent, and `OVERLOADED` where it arrives, if too many are under way;
- with `PERMISSION_DENIED`, if the device is not allowed, or a first message names another device as its origin.

A run whose message is refused stops in `error` and shows why.

## Modes

| mode | what is sent |
|---|---|
| `manual` | what you approve, as it is or edited; the default |
| `semi_auto` | what no rule asks about; the rest waits for you |
| `full_auto` | everything, until a limit is reached |

A message is labelled by who let it go: `auto_sent`, `approved`, `edited`, or `yours` if you typed it.

The rules of `semi_auto`. Each review says which rule asked, and why; none quotes the draft beyond the host of a link.

"""

RULES_AFTER = """
`rules` of a profile has `off`, the rules that never ask, and their numbers:
{numbers}.
In any mode you see a draft first that came while the run was paused, or that was sent before and got lost.

### Editing a draft

`e` opens `$EDITOR` if it is set; else the draft comes into the input line. A terminal that has no cursor keys
(`TERM=dumb`), or a person who hears the screen, edits row by row: `e` there, and `/rows` anywhere, shows the draft in
numbered rows of at most 60 characters. What you do not change stays as it is.

| typed | effect |
|---|---|
| `2 TEXT`, `2-4 TEXT` | replaces row 2, or rows 2 to 4 |
| `d 2`, `d 2-4` | deletes them |
| `i 2 TEXT` | inserts before row 2 |
| `show`, `send`, `cancel` | shows all rows; sends the draft; leaves it as it was |

A text that could not be sent, because the run was paused meanwhile or there is a newer draft, comes back into the input
line. In a terminal that cannot do that, `/again` enters it once more.

## Limits

A run ends at a limit whatever its agents say, and shows a banner that says which.

"""

TIME = """
Time counts while agents are at work: not while the run is paused or in `error`, while you are asked about a draft, or
while you have taken over. What you write in a [chat of your own](relay-api.md#operations) before your agent joins it
counts towards no limit of turns and time. What the local agent is held to in each turn, `constraints`:

"""

STATES = """\
## States

"""

TABLE = """
What can happen in which state, and where it leads. Where there are several, limits and modes say which; what is not in
the table is refused and changes nothing. `completed` and `stopped` are final. One message or prompt is in flight at a
time for each run, and one prompt for each profile.

"""

TAIL = """
`Prompted`, `Drafted`, `LocalFailed`, `Sent`, `Arrived`, `RemoteFailed`, `Tick` and `Restarted` come from the host; the
others from a person. A run that was going when its process ended comes back `paused`. `Resume` after an error tries
again: it asks the agent anew, or puts the message that was lost before you once more.

## How far a message has come

| state | meaning | shown in a chat as |
|---|---|---|
| `waiting` | it is in the outbox of your device, and will be sent | sent |
| `taken` | the gateway has stored it | taken by the gateway |
| `delivered` | the other device has opened it and keeps it | delivered |
| `read` | the shared agent was given it | read |
| `answered` | its reply has arrived | |
| `failed` | the gateway deleted it, or it was declined; the reason is shown | not delivered |

A state is stored before it is shown and never goes back, whichever process is killed. A later state implies the
earlier ones, so some may be skipped: a quick answer is the receipt for all of them. `read` comes as a message of its
own, inside the encryption, if the answer takes longer than a second; `delivered` comes with the acknowledgements that
devices send each other in any case. A message that the gateway deleted because nobody fetched it is still held by
your device: if the other one comes back, it is sent again, and is `delivered` after all. A device of an earlier
version sends no `read`. The record has no entry for these states: it has what was sent and what was answered in each
turn.
"""

ACTS = """
### Pausing and taking over

Two things are independent: whether a run goes on (`pause`, `resume`), and who writes its next message (`take over`,
`hand back`). No act changes both. So a run that you take over while it is paused stays paused: you write once you have
resumed it. The same holds for a run in `error`. A draft that waits, or is being written, is set aside when you take
over; the terminal prints it. Each row is a situation, each cell what an act makes of it:

"""

NOTIFY = """
## Notifications

`[relay.notify]` says how you are told that a run needs you: a draft waits, the agent asks for a permission, something
failed, a limit was reached, or the objective is met. Each occasion is told once, also after a restart.

| key | effect |
|---|---|
| `desktop = true` | a notification on this desktop; a machine without one ignores it |
| `command = ["my-notifier"]` | a program that reads the notice as JSON from its stdin; no shell, at most 10 s |
| `webhook = "https://…"` | the notice is posted as JSON, up to three times; `http` only on this machine |
| `secret = "$NAME"` | signs it: `X-Remit-Signature: sha256=` and the HMAC-SHA-256 of the body |
| `texts = true` | the draft, question, failure or result is told as well; otherwise no word of the agents |

`waiting` in the JSON is how many runs wait for you.
"""

ATTACHMENTS = """
A turn without tools takes at most 60 s. [Local agents](../how-to/local-agents.md) says what happens to an agent that
does not keep to this.

## Attachments

A message may carry files, if both sides say so: `attachments` of `[profiles.NAME]` says what its messages and their
answers may carry, `attachments` of `[shared.NAME]` what questions to the shared agent and its answers may.

"""

ATTACHED = """
In a chat `/attach PATH` adds a file to the next message, whoever writes it, `/detach NAME` removes it, `/files` lists
the files of the run, and `/save NAME` writes one that came to the current folder, never over another. Programs use
`/v1/shared/runs/RUN/files`. In `semi_auto` the rule `attachments` has a person look at a message with files.

The rules are checked when a file is attached, when it is sent, and when it arrives. What arrives is judged by its
content: the size is counted, and the type must fit the first bytes (of the common binary types) or be UTF-8 text
without control characters (of text types). A name has no path, no control or invisible character, and does not begin
with `.`, `-` or `~`. A refusal names the file and the rule. A question with a file that is refused is declined; of an
answer the text is kept, and the file is listed with the reason.

Files are a part of the message: encrypted end to end, whole or not at all, delivered once, also if a device or the
gateway is killed in the middle. They are kept in the device's file, encrypted, until `keep` (30 days) after the end of
their run. The shared agent finds them in its input, `{"message": …, "attachments": [{"name": …, "media_type": …,
"size": …, "path": …}]}`. The paths are in the folder `attachments` beside the device's file, readable by its owner
only, while the agent works, and are deleted then. It answers with files as artifacts of type `file` whose value is
`{"raw": BASE64, "mediaType": …, "filename": …}`. The local agent is told the names, types and sizes, not the contents.
The record has the type and the size of each file and a digest of its name.

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
    """Return the page about profiles, modes, limits and states."""
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
            _table(("rule", "it asks when"), ((f"`{rule}`", said) for rule, said in RULES.items())),
            RULES_AFTER.format(numbers=numbers),
            _defaults(ProfileLimits, LIMITS),
            TIME,
            _defaults(PromptConstraints, CONSTRAINTS),
            ATTACHMENTS,
            _defaults(FileRules, FILES),
            ATTACHED,
            STATES,
            _table(("state", "meaning"), ((f"`{state}`", MEANING[state]) for state in SessionState)),
            TABLE,
            moves.as_markdown(),
            TAIL,
            ACTS,
            _table(("state", "who writes", *(f"`{type(act).__name__}`" for act in CONTROLS)), _combinations()),
            NOTIFY,
        )
    )


CONTROLS = (moves.Pause(), moves.Resume(), moves.TakeOver(), moves.HandBack(), moves.Say("hello"), moves.Stop())
_PROMPT, _TAKEN = moves.Prompted("r.p1"), moves.TakeOver()
_DRAFTED = moves.Drafted("r.p1", Draft(text="hello"), ())
_SENT, _REPLY = moves.Sent("r.m1"), moves.Arrived("hi")
_FAILED = moves.LocalFailed("r.p1", DraftFailure(reason="it crashed", hard=True))
SITUATIONS: dict[str, tuple[Event, ...]] = {
    "`planning`": (),
    "`waiting_local`": (_PROMPT,),
    "`ready_to_send`, a draft waits": (moves.SetMode("manual"), _PROMPT, _DRAFTED),
    "`ready_to_send`, a message is on its way": (_PROMPT, _DRAFTED),
    "`waiting_remote`": (_PROMPT, _DRAFTED, _SENT),
    "`processing_remote`": (_PROMPT, _DRAFTED, _SENT, _REPLY),
    "`paused` while the agent drafts": (_PROMPT, moves.Pause()),
    "`paused` while a draft waits": (moves.SetMode("manual"), _PROMPT, _DRAFTED, moves.Pause()),
    "`paused` while a reply is awaited": (_PROMPT, _DRAFTED, _SENT, moves.Pause()),
    "`error`": (_FAILED,),
}


def _combinations() -> Iterable[tuple[str, ...]]:
    """Yield what each act of a person makes of each state, while the agent writes and after a person took over."""
    for writer, more in (("agent", ()), ("you", (_TAKEN,))):
        for name, events in SITUATIONS.items():
            run = _after(Overlay(id="r", profile="p", device="d", session="s", objective="o", mode="full_auto"), events)
            run = _after(run, more)
            # Taking over sets a draft aside, which leaves a situation that has a row of its own.
            if f"`{run.state}`" == name.partition(",")[0].partition(" ")[0]:
                yield name, writer, *(_result(run, act) for act in CONTROLS)


def _after(run: Overlay, events: tuple[Event, ...]) -> Overlay:
    for event in events if run.state is not SessionState.IDLE else (moves.Start(), *events):
        taken = step(run, event, 0)
        assert isinstance(taken, Transition), taken
        run = taken.overlay
    return run


def _result(run: Overlay, act: Event) -> str:
    taken = step(run, act, 0)
    if isinstance(taken, MoveRefused):
        return "–"
    after = taken.overlay
    return f"{after.state}, {'you' if after.decides == 'person' else 'agent'}"


MEANING = {
    SessionState.IDLE: "not started",
    SessionState.PLANNING: "what is said next is open: the agent is about to be asked, or you are to type",
    SessionState.WAITING_LOCAL: "the local agent is drafting",
    SessionState.READY_TO_SEND: "a draft waits for you, or a message is on its way out",
    SessionState.WAITING_REMOTE: "a message was sent, and its reply has not come",
    SessionState.PROCESSING_REMOTE: "a reply is to be answered: by the agent, or by you",
    SessionState.COMPLETED: "the agent said that the objective is met",
    SessionState.PAUSED: "nothing is sent until you resume",
    SessionState.ERROR: "something failed, and you say what comes next",
    SessionState.STOPPED: "ended by you, or at a limit",
}


def _defaults(kind: type[Profile | ProfileLimits | PromptConstraints | FileRules], meaning: dict[str, str]) -> str:
    fields = {field.name: field for field in structs.fields(kind)}
    return _table(
        ("", "default", "meaning"),
        ((f"`{name}`", _default(fields[name]), said) for name, said in meaning.items()),
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


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
