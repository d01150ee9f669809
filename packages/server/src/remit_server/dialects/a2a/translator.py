"""The A2A dialect as transports use it: bytes in, bytes out."""

from collections.abc import Collection
from typing import cast

import msgspec

from remit.protocol.codec import convert, decode, encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_server.dialects.a2a.card import choose, is_signed_by, read_card
from remit_server.dialects.a2a.errors import Detail, PeerError, fault_from_error
from remit_server.dialects.a2a.extension import EXTENSION
from remit_server.dialects.a2a.protojson import plain
from remit_server.dialects.a2a.replies import TaskTracker
from remit_server.dialects.a2a.requests import send
from remit_server.dialects.a2a.types import (
    EXTENSIONS_HEADER,
    VERSION,
    VERSION_HEADER,
    PushConfig,
    StreamResponse,
    Task,
    TaskState,
    extensions_of,
)
from remit_server.transports.a2a.translator import A2aEndpoint, Binding, TaskUpdate
from remit_server.transports.credentials.keys import is_signed


class A2aTaskExchange:
    """The messages about one request."""

    def __init__(self, request: Request, *, extended: bool, push: PushConfig | None = None) -> None:
        self._request = request
        self._extended = extended
        self._push = push
        self._hearing = TaskTracker(request)

    @property
    def task(self) -> str:
        return self._hearing.task

    @property
    def context(self) -> str:
        return self._hearing.context

    @property
    def ended(self) -> bool:
        return self._hearing.ended

    @property
    def waits(self) -> bool:
        return self._hearing.waits

    @property
    def question(self) -> str:
        return self._hearing.says

    @property
    def asks(self) -> bool:
        return self._hearing.state == TaskState.INPUT_REQUIRED

    def message(self, *, context: str, task: str, tenant: str, at_once: bool) -> bytes:
        asked = send(
            self._request, extended=self._extended, context=context, task=task, at_once=at_once, push=self._push
        )
        return encode(msgspec.structs.replace(asked, tenant=tenant))

    def hear(self, raw: bytes, *, is_task: bool = False) -> TaskUpdate:
        try:
            # The reader has already limited the size of an answer.
            value = cast("Json", decode(raw, object, max_bytes=len(raw)))
            said = (
                StreamResponse(task=convert(plain(value, Task), Task))
                if is_task
                else convert(plain(value, StreamResponse), StreamResponse)
            )
        except RemitError as error:
            what = f"{self._request.target} sent an invalid answer: {error.fault.message}"
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, what, problems=error.fault.problems)) from error
        return self._hearing.hear(said)

    def size(self) -> int:
        return self._hearing.size()

    def response(self) -> Response:
        try:
            return self._hearing.response()
        except RemitError as error:
            what = f"{self._request.target} sent an unusable answer: {error.fault.message}"
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, what, problems=error.fault.problems)) from error


class A2aTranslator:
    """A2A 1.0.

    Agents are called in *binding* alone if it is given, and without *streaming* never as a stream. They notify *push*
    about their tasks.
    """

    def __init__(
        self, *, binding: Binding | None = None, streaming: bool = True, push: PushConfig | None = None
    ) -> None:
        self._binding: Binding | None = binding
        self._streaming = streaming
        self._push = push

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        known = read_card(card, url)
        if keys and not is_signed_by(card, {key: key for key in keys}, is_signed):
            why = "the agent card is not signed with a trusted key"
            how = "Compare the trusted keys with those that its owner publishes."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how, detail=url))
        chosen = choose(known, url, self._binding)
        headers = {VERSION_HEADER: VERSION}
        if known.extended:
            headers[EXTENSIONS_HEADER] = EXTENSION
        return A2aEndpoint(
            url=chosen.url,
            binding=cast("Binding", chosen.protocol_binding),
            tenant=chosen.tenant,
            streams=self._streaming and bool(known.capabilities.streaming),
            extended=known.extended,
            headers=headers,
        )

    def talk(self, request: Request, *, extended: bool) -> A2aTaskExchange:
        return A2aTaskExchange(request, extended=extended, push=self._push)

    def fault(self, status: int, raw: bytes, peer: str) -> Fault:
        try:
            error = msgspec.json.decode(raw, type=PeerError)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            error = PeerError()
        return fault_from_error(error.code, error.message, _details(error.data or error.details), peer, status)

    def is_echoed(self, headers: str) -> bool:
        return EXTENSION in extensions_of({EXTENSIONS_HEADER: headers})


def _details(value: Json) -> tuple[Detail, ...]:
    """Return the details of an error that are understood; others are omitted."""
    found: list[Detail] = []
    for each in cast("list[Json]", value)[:100] if isinstance(value, list) else ():
        try:
            found.append(msgspec.convert(each, Detail))
        except msgspec.ValidationError:
            continue
    return tuple(found)


TONGUE = A2aTranslator()
