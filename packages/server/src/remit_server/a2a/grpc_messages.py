"""The messages of A2A over gRPC: protobuf on the wire, and the JSON of protobuf for everything else.

grpcio and a2a-sdk come with the extra `a2a`. They are imported here alone, with the first server or call over gRPC.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from remit.installed import install_command
from remit.protocol.codec import MAX_VALUES
from remit.protocol.errors import Code, RemitError, fault

if TYPE_CHECKING:
    from google.protobuf.message import Message

STATUS = "grpc-status-details-bin"
"""The metadata that holds an error with its details, a `google.rpc.Status`."""

# Protobuf does not order the fields of a message, but its writers do; a name is looked for among the first ones.
_FIRST_FIELDS = 16


class InvalidMessage(Exception):
    """Bytes that are not the expected message, or a message that JSON cannot express."""


class GrpcMethod(NamedTuple):
    """A method of the A2A service."""

    path: str
    request: "type[Message]"
    response: "type[Message]"
    streams: bool
    tenant: int
    """The number of the field `tenant` in its request."""


def has_grpc() -> bool:
    """Return whether this installation can speak gRPC."""
    return all(find_spec(name) is not None for name in ("grpc", "a2a"))


def require_grpc() -> None:
    """Raise a `RemitError` if this installation cannot speak gRPC."""
    if not has_grpc():
        todo = f"Install it where the hub runs: {install_command('a2a')}"
        raise RemitError(fault(Code.TEAM_INVALID, "A2A over gRPC needs the extra `a2a`", suggestion=todo))


@cache
def grpc_methods() -> Mapping[str, GrpcMethod]:
    """Return the methods of the A2A service by name."""
    require_grpc()
    from a2a.types import a2a_pb2
    from google.protobuf.message_factory import GetMessageClass

    service = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
    return {
        each.name: GrpcMethod(
            path=f"/{service.full_name}/{each.name}",
            request=GetMessageClass(each.input_type),
            response=GetMessageClass(each.output_type),
            streams=each.server_streaming,
            tenant=each.input_type.fields_by_name["tenant"].number,
        )
        for each in service.methods
    }


def to_json(raw: bytes, kind: "type[Message]") -> bytes:
    """Return a message on the wire as JSON, or raise `InvalidMessage`; one with too many values is a `RemitError`."""
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    try:
        message = kind.FromString(raw)
        if len(raw) > 2 * MAX_VALUES:
            _refuse_many_values(message)
        return msgspec.json.encode(json_format.MessageToDict(message))
    except (DecodeError, json_format.Error, UnicodeError, RecursionError, ValueError) as error:
        raise InvalidMessage(str(error)[:200] or type(error).__name__) from error


def to_wire(value: bytes, kind: "type[Message]") -> bytes:
    """Return the JSON of a message as it is on the wire."""
    from google.protobuf import json_format

    try:
        return json_format.Parse(value, kind(), ignore_unknown_fields=True).SerializeToString()
    except (json_format.Error, UnicodeError, RecursionError, ValueError) as error:
        raise InvalidMessage(str(error)[:200] or type(error).__name__) from error


def _refuse_many_values(message: "Message") -> None:
    for number, _ in enumerate(_messages_in(message)):
        if number > MAX_VALUES:
            why = f"there are more than {MAX_VALUES} values, which is the most that is taken"
            raise RemitError(fault(Code.TOO_LARGE, why))


def _messages_in(message: "Message") -> Iterator[Any]:
    """Yield the parts of a message; each value of JSON is a message of its own."""
    for _, value in message.ListFields():
        if isinstance(value, str | bytes | int | float):
            continue
        if hasattr(value, "ListFields"):
            parts = (value,)
        else:
            parts = value.values() if hasattr(value, "values") else value
        for each in parts:
            yield each
            if hasattr(each, "ListFields"):
                yield from _messages_in(each)


def text_field(raw: bytes, number: int) -> str:
    """Return a text of a message without decoding the rest; empty if it is not among its first fields."""
    place = 0
    try:
        for _ in range(_FIRST_FIELDS):
            if place >= len(raw):
                break
            tag, place = _varint(raw, place)
            match tag & 7:
                case 0:
                    _, place = _varint(raw, place)
                case 1:
                    place += 8
                case 2:
                    length, place = _varint(raw, place)
                    if tag >> 3 == number and place + length <= len(raw):
                        return raw[place : place + length].decode()
                    place += length
                case 5:
                    place += 4
                case _:
                    break
    except (IndexError, UnicodeDecodeError):
        pass  # an invalid message, as its decoder will say
    return ""


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise IndexError


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def status_to_wire(code: int, message: str, details: tuple[Any, ...], max_bytes: int) -> bytes:
    """Return an error with its details, given as JSON; last details are left out if they do not fit."""
    from google.protobuf import json_format
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

    assert error_details_pb2.ErrorInfo, "importing it makes the types of details known"
    status = status_pb2.Status(code=code, message=message)
    for each in details:
        json_format.ParseDict(each, status.details.add())
    while status.details and status.ByteSize() > max_bytes:
        del status.details[-1]
    return status.SerializeToString()


def status_in(raw: bytes) -> dict[str, Any]:
    """Return the message and the details of a peer's error, as far as they are understood; empty if it has none."""
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

    assert error_details_pb2.ErrorInfo, "importing it makes the types of details known"
    try:
        status = status_pb2.Status.FromString(raw)
    except DecodeError:
        return {}
    details: list[Any] = []
    for each in list(status.details)[:100]:
        try:
            details.append(json_format.MessageToDict(each))
        except (TypeError, ValueError, json_format.Error, DecodeError):
            continue  # of a type that is not known here
    return {"message": status.message, "details": details} if raw else {}
