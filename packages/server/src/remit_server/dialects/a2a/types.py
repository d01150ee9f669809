"""The types of A2A 1.0 in JSON: strict for clients, lenient for peers, in each form that protobuf allows.

A2A is defined by protobuf messages. Their JSON mapping lets a writer choose: a field has its name in camel case or as
in the definition (`taskId`, `task_id`), a number may be a text, an enum value its number, and null is the default.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from remit.protocol.envelope import Json
from remit.protocol.remit import Count, Name

VERSION = "1.0"
Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]
JSONRPC: Binding = "JSONRPC"
HTTP_JSON: Binding = "HTTP+JSON"
GRPC: Binding = "GRPC"

VERSION_HEADER = "a2a-version"
EXTENSIONS_HEADER = "a2a-extensions"
MEDIA_TYPE = "application/a2a+json"

TEXT = "text/plain"
JSON = "application/json"

CARD_PATH = "/.well-known/agent-card.json"

Metadata = dict[str, Json]

# The maximum and the default page size of tasks (`ListTasksRequest`).
MOST_TASKS = 100
PAGE = 50


class TaskState(StrEnum):
    """The state of a task."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


ENDED = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
"""The final states of a task."""

USER, AGENT = "ROLE_USER", "ROLE_AGENT"


class A2aObject(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An A2A object; an unknown field may belong to a later version, and is ignored."""


# ── messages and tasks ────────────────────────────────────────────────────────────────────────────────────────────────


class A2aPart(A2aObject, frozen=True, kw_only=True):
    """A piece of content: exactly one of `text`, `raw` (base64), `url` and `data`."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Json | UnsetType = UNSET
    metadata: Metadata | None = None
    filename: str = ""
    media_type: str = ""


class A2aMessage(A2aObject, frozen=True, kw_only=True):
    """One message of the client or the agent."""

    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    role: str = ""
    parts: tuple[A2aPart, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class A2aArtifact(A2aObject, frozen=True, kw_only=True):
    """An output of a task."""

    artifact_id: str = ""
    name: str = ""
    description: str = ""
    parts: tuple[A2aPart, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class TaskStatus(A2aObject, frozen=True, kw_only=True):
    """The state of a task, and a message about it."""

    state: str = TaskState.UNSPECIFIED
    message: A2aMessage | None = None
    timestamp: str = ""


class Task(A2aObject, frozen=True, kw_only=True):
    """A task."""

    id: str = ""
    context_id: str = ""
    status: TaskStatus = TaskStatus()
    artifacts: tuple[A2aArtifact, ...] = ()
    history: tuple[A2aMessage, ...] = ()
    metadata: Metadata | None = None


class StatusUpdate(A2aObject, frozen=True, kw_only=True):
    """The state of a task changed."""

    task_id: str = ""
    context_id: str = ""
    status: TaskStatus = TaskStatus()
    metadata: Metadata | None = None


class ArtifactUpdate(A2aObject, frozen=True, kw_only=True):
    """A task has new output."""

    task_id: str = ""
    context_id: str = ""
    artifact: A2aArtifact = A2aArtifact()
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class StreamResponse(A2aObject, frozen=True, kw_only=True):
    """A server's answer to a message, or one event of a stream: exactly one of these."""

    task: Task | None = None
    message: A2aMessage | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Uri = Annotated[str, Meta(min_length=1, max_length=2_000)]
Id = Annotated[str, Meta(max_length=200)]


class Authentication(A2aObject, frozen=True, kw_only=True):
    """The credentials of a notification."""

    scheme: Annotated[
        str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z", extra={"rule": "the name of a scheme"})
    ]
    credentials: Annotated[
        str, Meta(pattern=r"^[\t\x20-\x7e]{0,4000}\Z", extra={"rule": "what can stand in a header"})
    ] = ""


class PushConfig(A2aObject, frozen=True, kw_only=True):
    """Where to send the push notifications of a task; also `CreateTaskPushNotificationConfig`."""

    tenant: str = ""
    id: Id = ""
    task_id: Id = ""
    url: Uri
    token: Annotated[str, Meta(pattern=r"^[\t\x20-\x7e]{0,4000}\Z", extra={"rule": "what can stand in a header"})] = ""
    authentication: Authentication | None = None


class AskedMessage(A2aObject, frozen=True, kw_only=True):
    """A message of a client: the required fields are present."""

    message_id: Name
    context_id: Id = ""
    task_id: Id = ""
    role: Literal["ROLE_USER"]
    parts: Annotated[tuple[A2aPart, ...], Meta(min_length=1, max_length=1_000)]
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class Configuration(A2aObject, frozen=True, kw_only=True):
    """How a message is to be answered."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: PushConfig | None = None
    history_length: Count | None = None
    return_immediately: bool = False


class SendMessage(A2aObject, frozen=True, kw_only=True):
    """`SendMessage` and `SendStreamingMessage`."""

    tenant: str = ""
    message: AskedMessage
    configuration: Configuration | None = None
    metadata: Metadata | None = None


class GetTask(A2aObject, frozen=True, kw_only=True):
    """`GetTask`."""

    tenant: str = ""
    id: Name
    history_length: Count | None = None


class ListTasks(A2aObject, frozen=True, kw_only=True):
    """`ListTasks`."""

    tenant: str = ""
    context_id: Id = ""
    status: TaskState = TaskState.UNSPECIFIED
    page_size: Annotated[int, Meta(ge=1, le=MOST_TASKS)] | None = None
    page_token: Annotated[str, Meta(max_length=200)] = ""
    history_length: Count | None = None
    status_timestamp_after: str = ""
    include_artifacts: bool = False


class TaskList(A2aObject, frozen=True, kw_only=True, omit_defaults=False):
    """A page of tasks, the last changed first; every field is always present."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class CancelTask(A2aObject, frozen=True, kw_only=True):
    """`CancelTask`."""

    tenant: str = ""
    id: Name
    metadata: Metadata | None = None


class Subscribe(A2aObject, frozen=True, kw_only=True):
    """`SubscribeToTask`."""

    tenant: str = ""
    id: Name


class OnePush(A2aObject, frozen=True, kw_only=True):
    """`GetTaskPushNotificationConfig` and `DeleteTaskPushNotificationConfig`."""

    tenant: str = ""
    task_id: Name
    id: Name


class ListPush(A2aObject, frozen=True, kw_only=True):
    """`ListTaskPushNotificationConfigs`; there are so few that they fit on one page."""

    tenant: str = ""
    task_id: Name
    page_size: Count = 0
    page_token: str = ""


class PushList(A2aObject, frozen=True, kw_only=True):
    """All configurations of a task."""

    configs: tuple[PushConfig, ...] = ()
    next_page_token: str = ""


class GetCard(A2aObject, frozen=True, kw_only=True):
    """`GetExtendedAgentCard`."""

    tenant: str = ""


class A2aMethod(NamedTuple):
    """A method of A2A: what it takes in every binding, and its place in HTTP+JSON; the others have its name."""

    takes: type[A2aObject]
    verb: str
    path: str
    """Below the address of the agent; the parts in braces are fields of what it takes."""

    @property
    def begins(self) -> bool:
        """Whether it may start something."""
        return self.takes is SendMessage


_ONE_PUSH = "tasks/{taskId}/pushNotificationConfigs/{id}"
METHODS = {
    "SendMessage": A2aMethod(SendMessage, "POST", "message:send"),
    "SendStreamingMessage": A2aMethod(SendMessage, "POST", "message:stream"),
    "GetTask": A2aMethod(GetTask, "GET", "tasks/{id}"),
    "ListTasks": A2aMethod(ListTasks, "GET", "tasks"),
    "CancelTask": A2aMethod(CancelTask, "POST", "tasks/{id}:cancel"),
    "SubscribeToTask": A2aMethod(Subscribe, "POST", "tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": A2aMethod(PushConfig, "POST", "tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": A2aMethod(OnePush, "GET", _ONE_PUSH),
    "ListTaskPushNotificationConfigs": A2aMethod(ListPush, "GET", "tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": A2aMethod(OnePush, "DELETE", _ONE_PUSH),
    "GetExtendedAgentCard": A2aMethod(GetCard, "GET", "extendedAgentCard"),
}
"""The methods of A2A by name, for clients and servers of every binding."""


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ms: int) -> str:
    """Return a time as A2A writes it: in UTC, with milliseconds."""
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1_000:03}Z"


def milliseconds(text: str) -> int | None:
    """Return a time in milliseconds since 1970; None if it is invalid. Without a zone it is in UTC: some omit the Z."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def extensions_of(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the extensions that a client wants to use, or that a server confirms."""
    return frozenset(each.strip() for each in headers.get(EXTENSIONS_HEADER, "").split(",") if each.strip())


def is_spoken(version: str) -> bool:
    """Return whether a protocol version is supported; the patch number does not matter."""
    major, _, rest = version.strip().partition(".")
    return f"{major}.{rest.partition('.')[0]}" == VERSION


Reading = Callable[[Json], Json]

# The numbers of the values, which stand in the definition in this order.
_STATES = tuple(TaskState)
_ROLES = ("ROLE_UNSPECIFIED", USER, AGENT)


def plain(value: Json, type: type[msgspec.Struct]) -> Json:
    """Return the JSON of a message in one form: names in camel case, numbers as numbers, enum values by name.

    What is not understood stays as it is, so that whoever decodes it names the field.
    """
    return _struct(type)(value)


@cache
def _struct(type: type[msgspec.Struct]) -> Reading:
    struct_type = cast("inspect.StructType", inspect.type_info(type))
    fields: dict[str, tuple[str, Reading | None]] = {}
    for field in struct_type.fields:
        reading = _NAMED.get(field.name) or _reading(field.type)
        fields[field.encode_name] = (field.encode_name, reading)
        fields[field.name] = (field.encode_name, reading)

    def read(value: Json) -> Json:
        return _fields(cast("dict[str, Json]", value), fields) if isinstance(value, dict) else value

    return read


def _fields(value: dict[str, Json], fields: Mapping[str, tuple[str, Reading | None]]) -> Json:
    made: dict[str, Json] = {}
    for name, each in value.items():
        known = fields.get(name)
        if known is None:
            made[name] = each
            continue
        camel, reading = known
        # Null stands for the default, also beside the other name of the field. Only `data` can be null itself.
        if each is None and camel != "data":
            continue
        made[camel] = each if reading is None else reading(each)
    return made


def _reading(type: inspect.Type) -> Reading | None:
    """Return how values of a type are read; None: they have one form."""
    match type:
        case inspect.StructType(cls=cls):
            return _struct(cls)
        case inspect.UnionType(types=types):
            return next((reading for each in types if (reading := _reading(each)) is not None), None)
        case inspect.VarTupleType(item_type=item):
            return None if (of_item := _reading(item)) is None else _each(of_item)
        case inspect.IntType():
            return _whole_number
        case inspect.EnumType():
            return _state
        case _:
            return None


def _each(reading: Reading) -> Reading:
    return lambda value: [reading(each) for each in cast("list[Json]", value)] if isinstance(value, list) else value


def _whole_number(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    # Ten digits and a sign: no number of A2A has more than 32 bits.
    if isinstance(value, str) and len(value) <= 11 and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    return value


def _state(value: Json) -> Json:
    return _enum_name(value, _STATES)


def _role(value: Json) -> Json:
    return _enum_name(value, _ROLES)


_NAMED = {"state": _state, "role": _role}
"""Fields that hold the name of a value, which a peer's later version may add to."""


def _enum_name(value: Json, names: tuple[str, ...]) -> Json:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(names[value]) if is_number and 0 <= value < len(names) else value


# ── what peers send ───────────────────────────────────────────────────────────────────────────────────────────────────


def event_of(value: Json, *, is_task: bool = False) -> Json:
    """Return a peer's answer in the form of a `StreamResponse`: it may be bare, in an envelope, or of A2A 0.3."""
    if isinstance(value, str) and not is_task:
        return {"message": {"parts": [{"text": value}]}}
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Json]", _current_form(value))
    if not _bare_name(fields) and isinstance(inner := fields.get("result"), dict):
        fields = cast("dict[str, Json]", inner)
    name = _bare_name(fields) or ("task" if is_task else "")
    return {name: fields} if name and _EVENTS.isdisjoint(fields) else fields


_EVENTS = frozenset({"task", "message", "statusUpdate", "status_update", "artifactUpdate", "artifact_update"})


def _bare_name(fields: dict[str, Json]) -> str:
    """Return what an answer is that does not say so; empty if it does, or is none."""
    if not _EVENTS.isdisjoint(fields):
        return ""
    if "artifact" in fields:
        return "artifactUpdate"
    if "parts" in fields:
        return "message"
    if "status" in fields:
        return "task" if "id" in fields or not fields.keys() & {"taskId", "task_id"} else "statusUpdate"
    return ""


def _current_form(value: Json) -> Json:
    """Return JSON with states and parts as version 1.0 writes them, but for data and metadata, which are anything."""
    if isinstance(value, list):
        return [_current_form(each) for each in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    made: dict[str, Json] = {}
    for name, each in cast("dict[str, Json]", value).items():
        if name in ("data", "metadata"):
            made[name] = each
        elif name == "parts" and isinstance(each, list):
            made[name] = [_current_part(part) for part in cast("list[Json]", each)]
        elif name == "state" and isinstance(each, str):
            made[name] = _BY_LETTERS.get(_letters(each), each)
        elif name == "status" and isinstance(each, str):
            made[name] = {"state": _BY_LETTERS.get(_letters(each), each)}
        else:
            made[name] = _current_form(each)
    return made


def _current_part(part: Json) -> Json:
    if isinstance(part, str):
        return {"text": part}
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, Json]", part)
    file = fields.get("file")
    fields = fields | cast("dict[str, Json]", file) if isinstance(file, dict) else fields
    return {_FILE_FIELDS.get(name, name): each for name, each in fields.items()}


# Of A2A 0.3, and of its SDKs.
_FILE_FIELDS = {
    "bytes": "raw",
    "fileWithBytes": "raw",
    "uri": "url",
    "fileWithUri": "url",
    "mimeType": "mediaType",
    "mime_type": "mediaType",
    "name": "filename",
}


def _letters(state: str) -> str:
    return "".join(filter(str.isalpha, state)).upper().removeprefix("TASKSTATE")


_BY_LETTERS = {_letters(each): str(each) for each in TaskState} | {"CANCELLED": str(TaskState.CANCELED)}
