"""The permissions and limits of a local profile with shared agents, in both directions, and the rules for files."""

import re
from collections.abc import Sequence
from typing import Annotated
from unicodedata import category, normalize

from msgspec import Meta, Struct

from remit.policy.budget import Window, count, wait_ms
from remit.protocol.card import Rate
from remit.protocol.errors import Code, Fault, duration, fault
from remit.protocol.remit import MAX_INTEGER
from remit.words.components import cut
from remit.words.file_types import is_among, is_type, mismatch
from remit_relay.bridge.ports import Mode, PromptConstraints
from remit_relay.session.review import ReviewRules

# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# The same rules hold where a file is sent and where it arrives. On arrival nothing that the sender says is believed:
# the size is that of the content, and the type must fit it.

# All files of one message together: as text they take a third more, and a message has at most 16 MiB.
MAX_TOTAL = 8 * 1024 * 1024
# More than anybody sends at once; it limits what a peer can make this device look at.
MAX_FILES = 64
# The longest name that common file systems take, in bytes.
_LONGEST_NAME = 255
_SHOWN = 80
# Not allowed in file names of Windows, and separators elsewhere.
_RESERVED = re.compile(r'[/\\<>:"|?*]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


class FileRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which files may travel. Without types, none may."""

    types: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=100)] = ()
    """Media types: `image/png`, `text/*` or `*/*`."""
    # A megabyte: a long text, a photograph, a page of a document.
    max_size: Annotated[int, Meta(ge=1)] = 1_000_000
    """The most bytes of one file."""
    max_count: Annotated[int, Meta(ge=1)] = 4
    """The most files of one message."""


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file inside a message. It says no size: that is the length of its content."""

    name: str
    media_type: str
    data: bytes


class Attachment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a run, without its content."""

    id: str
    name: str
    media_type: str
    size: int
    at_ms: int
    """When it was stored."""
    refused: str = ""
    """Why it was not accepted from the other device; its content was not stored."""


def refused_file(
    rules: FileRules, file: AttachedFile, others: Sequence[AttachedFile | Attachment] = (), *, who: str
) -> Fault | None:
    """Return why a file may not be in a message with *others*; *who* names the place of the rules."""
    shown = repr(cut(file.name, _SHOWN))
    if not rules.types:
        return fault(Code.PERMISSION_DENIED, f"the file {shown} is refused: {who} allows no attachments")
    if (why := name_problem(file.name)) is not None:
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: its name {why}")
    if any(_folded(each.name) == _folded(file.name) for each in others):
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: another one has the same name")
    if len(others) >= rules.max_count:
        most = f"{rules.max_count} file{'' if rules.max_count == 1 else 's'} in a message"
        return fault(Code.TOO_LARGE, f"the file {shown} is refused: {who} allows at most {most}")
    if len(file.data) > rules.max_size:
        size = f"it has {len(file.data):,} bytes, and {who} allows at most {rules.max_size:,}"
        return fault(Code.TOO_LARGE, f"the file {shown} is refused: {size}")
    if len(file.data) + sum(map(_size, others)) > MAX_TOTAL:
        why = f"the file {shown} is refused: the files of a message have at most {MAX_TOTAL:,} bytes"
        return fault(Code.TOO_LARGE, why)
    return _refused_type(rules, file, shown, who)


def refused_files(rules: FileRules, files: Sequence[AttachedFile], *, who: str) -> Fault | None:
    """Return why a message may not have these files; None: it may."""
    if len(files) > MAX_FILES:
        return fault(Code.TOO_LARGE, f"the message has {len(files)} files; the limit is {MAX_FILES}")
    for place, each in enumerate(files):
        if (why := refused_file(rules, each, files[:place], who=who)) is not None:
            return why
    return None


def _refused_type(rules: FileRules, file: AttachedFile, shown: str, who: str) -> Fault | None:
    media_type = file.media_type
    if not is_type(media_type):
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: it has no valid media type")
    if not is_among(media_type, rules.types):
        allowed = ", ".join(rules.types[:10])
        why = f"the file {shown} is refused: it is {media_type}, and {who} allows {allowed}"
        return fault(Code.PERMISSION_DENIED, why)
    if (content := mismatch(media_type, file.data)) is not None:
        why = f"it is called {media_type}, but its content is {content}"
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: {why}")
    return None


def name_problem(name: str) -> str | None:
    """Return why a file may not have this name: it is written to disk under it, on the other device too."""
    if not name or name != name.strip():
        return "is empty, or begins or ends with a space"
    if any(category(char)[0] == "C" or category(char) in ("Zl", "Zp") for char in name):
        return "has control or invisible characters"
    if _RESERVED.search(name):
        return 'has one of / \\ < > : " | ? *'
    if name.startswith((".", "-", "~")) or name.endswith("."):
        return "begins with . - or ~, or ends with ."
    if _DEVICES.fullmatch(name):
        return "is the name of a device on Windows"
    if len(name.encode()) > _LONGEST_NAME:
        return f"has more than {_LONGEST_NAME} bytes"
    return None


def _folded(name: str) -> str:
    """Return a name as file systems compare it that ignore case and forms of letters."""
    return normalize("NFC", name).casefold()


def _size(file: AttachedFile | Attachment) -> int:
    return file.size if isinstance(file, Attachment) else len(file.data)


# ── permissions and limits ────────────────────────────────────────────────────────────────────────────────────────────

# Nothing is allowed until it is enabled. Each message has a `ControlEnvelope` beside its text, inside the encryption:
# its origin, trace and hop count. These are claims of a peer; only the sender is proven, by the session.

MAX_ID = 256
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
"""The id of a device, trace, profile, question or conversation between devices."""


# A month, as long as a gateway keeps messages.
KEEP_FILES_MS = 30 * 86_400_000


class ProfileLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits at which a run ends, whatever its agents say (S7)."""

    max_turns: Annotated[int, Meta(ge=1)] = 8
    max_duration_ms: Annotated[int, Meta(ge=1)] = 600_000
    max_failures: Annotated[int, Meta(ge=1)] = 3
    """Consecutive failures of the local agent or of the delivery to the remote one."""
    max_tokens_budget: Annotated[int, Meta(ge=1)] | None = None
    """The tokens that the local agent may spend in a run; None: no limit of its own."""


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A local agent and its permissions with shared agents."""

    id: Id
    allow_shared_agent_calls: bool = False
    allowed_shared_device_ids: frozenset[Id] = frozenset()
    """The devices that it may call and that may call it; empty: none."""
    max_concurrent_shared_calls: Annotated[int, Meta(ge=1)] = 3
    max_hop_count: Annotated[int, Meta(ge=0)] = 2
    # One message in two seconds on average: agents that answer each other faster are in a loop.
    rate: Rate = Rate(calls=30, seconds=60)
    """How often it may call each device, and each device may call it."""
    mode: Mode = "manual"
    limits: ProfileLimits = ProfileLimits()
    rules: ReviewRules = ReviewRules()
    constraints: PromptConstraints = PromptConstraints()
    files: FileRules = FileRules()
    """Which files its messages may carry, and their answers; of a shared agent: which ones it takes and returns."""
    keep_files_ms: Annotated[int, Meta(ge=0)] = KEEP_FILES_MS
    """How long files of an ended run are kept."""


class ControlEnvelope(Struct, frozen=True, kw_only=True):
    """The control data of a message, which is not shown: its origin and hop count."""

    origin_agent_device_id: Id
    """The device of the person who started the run; the same on every hop."""
    trace_id: Id
    """The same on every hop, and on every turn of a run."""
    hop_count: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """1 from the origin to the first shared agent; each agent that delegates adds one."""
    orchestrator_profile_id: Id
    """The profile that sends this message."""

    def onward(self, profile: Profile) -> "ControlEnvelope":
        """Return the control envelope for calls that *profile* makes while it works on this message."""
        return ControlEnvelope(
            origin_agent_device_id=self.origin_agent_device_id,
            trace_id=self.trace_id,
            hop_count=self.hop_count + 1,
            orchestrator_profile_id=profile.id,
        )


def origin(profile: Profile, *, device: str, trace_id: str) -> ControlEnvelope:
    """Return the control envelope of a run that a person starts on *device*."""
    return ControlEnvelope(
        origin_agent_device_id=device, trace_id=trace_id, hop_count=1, orchestrator_profile_id=profile.id
    )


class ProfileActivity(Struct, frozen=True, kw_only=True):
    """The current activity of a profile, when a message is judged."""

    in_flight: int = 0
    """Unanswered messages of other sessions from or to the profile."""
    window: Window = Window()
    """The rate window of this profile with this device, updated by `counted`."""
    traces: frozenset[str] = frozenset()
    """The traces of other sessions that are in progress here."""


def counted(window: Window, profile: Profile, now_ms: int) -> Window:
    """Return the window with one more message; there is one for each profile, device and direction."""
    return count(window, profile.rate, now_ms / 1_000)


def judge_outgoing(
    profile: Profile, control: ControlEnvelope, *, target: str, device: str, standing: ProfileActivity, now_ms: int
) -> Fault | None:
    """Return why *profile* on *device* may not send this to the device *target*; None: it may."""
    if target in (control.origin_agent_device_id, device):
        return fault(Code.LOOP_DETECTED, f"the message would return to the device {target}, where it comes from")
    return (
        _kept_in(profile, target)
        or _too_far(profile, control)
        or _too_often(profile, target, standing, now_ms)
        or _too_many(profile, standing, Code.FAN_OUT_EXCEEDED)
    )


def judge_incoming(
    profile: Profile, control: ControlEnvelope, *, sender: str, device: str, standing: ProfileActivity, now_ms: int
) -> Fault | None:
    """Return why a question of the device *sender* to *profile* on *device* is refused; None: it is accepted.

    *sender* is proven by the encrypted session, not taken from the message. This is for questions; an answer to a
    question from here needs no other check than its session.
    """
    begun_at, hops = control.origin_agent_device_id, control.hop_count
    if not profile.allow_shared_agent_calls or sender not in profile.allowed_shared_device_ids:
        # The sender reads this, so it says nothing about the settings here.
        why = f"no agent `{profile.id}` is shared with the device {sender}"
        todo = "Ask its owner to share it with your device."
        return fault(Code.PERMISSION_DENIED, why, suggestion=todo)
    if hops == 1 and begun_at != sender:
        why = f"the device {sender} sent a first message with {begun_at} as its origin"
        todo = "Send it with your own device as `origin_agent_device_id`, or count the hops."
        return fault(Code.PERMISSION_DENIED, why, suggestion=todo)
    if begun_at == device or (hops > 1 and begun_at == sender) or control.trace_id in standing.traces:
        return fault(Code.LOOP_DETECTED, f"the task of trace {control.trace_id} has passed this device before")
    return (
        _too_far(profile, control)
        or _too_often(profile, sender, standing, now_ms)
        or _too_many(profile, standing, Code.OVERLOADED)
    )


def _kept_in(profile: Profile, device: str) -> Fault | None:
    if not profile.allow_shared_agent_calls:
        why = f"the profile {profile.id} may not use shared agents"
        todo = f"Allow the device: remit devices allow {device} --profile {profile.id}"
        return fault(Code.PERMISSION_DENIED, why, suggestion=todo)
    if device not in profile.allowed_shared_device_ids:
        why = f"the profile {profile.id} may not use the device {device}"
        todo = f"Allow it: remit devices allow {device} --profile {profile.id}"
        return fault(Code.PERMISSION_DENIED, why, suggestion=todo)
    return None


def _too_far(profile: Profile, control: ControlEnvelope) -> Fault | None:
    if control.hop_count <= profile.max_hop_count:
        return None
    why = f"the message is on hop {control.hop_count}; the limit of the profile {profile.id} is {profile.max_hop_count}"
    return fault(Code.MAX_DEPTH_EXCEEDED, why)


def _too_often(profile: Profile, device: str, standing: ProfileActivity, now_ms: int) -> Fault | None:
    wait = wait_ms(standing.window, profile.rate, now_ms / 1_000)
    if not wait:
        return None
    message = (
        f"too many messages between the profile {profile.id} and the device {device}; try again in {duration(wait)}"
    )
    return fault(Code.RATE_LIMITED, message, retry_after_ms=wait, suggestion="")


def _too_many(profile: Profile, standing: ProfileActivity, code: Code) -> Fault | None:
    most = profile.max_concurrent_shared_calls
    if standing.in_flight < most:
        return None
    return fault(code, f"the profile {profile.id} has {standing.in_flight} calls in progress; the limit is {most}")
