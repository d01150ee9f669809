"""Records and replays what agents send over HTTP, whichever client of a model they use.

Providers' clients and frameworks send with httpx or httpx2. While a recording or a replay is on, what these hand to the
network is caught; an agent's turn is known by a context variable. The reply to a stream is read whole.
"""

import json
import os
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from remit.ports.brief import RECORDED_TURN
from remit.protocol.envelope import Json
from remit.runtime.frames import Frame

_CLIENTS = ("httpx", "httpx2")

# Parameters of an address that hold secrets.
_SECRET = frozenset({"key", "api_key", "apikey", "api-key", "access_token", "token", "sig", "signature", "password"})


class HttpCall(Struct, frozen=True, kw_only=True):
    """A request over HTTP: its method with path and query, and its body."""

    call: str
    body: Json = None


class HttpReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply over HTTP: JSON, the events of a stream, text, or other bytes in base64."""

    status: int = 200
    type: str = "application/json"
    body: Json = None
    events: list[Json] | None = None
    base64: str | None = None


class HttpRecorder(Protocol):
    """Keeps or gives replies over HTTP."""

    def recall(self, frame: Frame, name: str, call: HttpCall) -> HttpReply | None:
        """Return the reply of a host; None: it is asked for real."""
        ...

    def keep(self, frame: Frame, name: str, call: HttpCall, reply: HttpReply) -> None:
        """Keep the reply of a host that was asked."""
        ...

    def note_connection(self, frame: Frame, address: str) -> bool:
        """Note a connection that is not recorded, and return whether it may be opened."""
        ...


class AgentTurn(NamedTuple):
    """The turn of an agent, for what is sent from its code over HTTP."""

    recorder: HttpRecorder
    frame: Frame


_active = 0
"""How many recordings and replays are on."""
_originals: list[tuple[Any, str, Any]] = []


@contextmanager
def caught_http() -> Generator[None]:
    """Catch what agents send over HTTP, and what they connect to otherwise, within the block."""
    global _active  # noqa: PLW0603 - the clients are the same for the whole process
    if not _active:
        _catch()
    _active += 1
    try:
        yield
    finally:
        _active -= 1
        if not _active:
            for owner, name, original in _originals:
                setattr(owner, name, original)
            _originals.clear()


# Where clients of models look for the keys of providers.
_KEYS = (
    *("ANTHROPIC", "AZURE_OPENAI", "CO", "DEEPSEEK", "FIREWORKS", "GEMINI", "GOOGLE", "GROQ", "HUGGINGFACE", "MISTRAL"),
    *("MOONSHOTAI", "OPENAI", "OPENROUTER", "TOGETHER", "XAI"),
)


@contextmanager
def without_keys() -> Generator[None]:
    """Let clients of models be made without a key within the block: nothing is sent to anybody."""
    missing = [name for each in _KEYS if (name := f"{each}_API_KEY") not in os.environ]
    os.environ.update(dict.fromkeys(missing, "not needed for a replay"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _catch() -> None:
    for client in _CLIENTS:
        with suppress(ImportError):  # an optional package
            library = import_module(client)
            _replace(library.AsyncHTTPTransport, "handle_async_request", lambda was, at=library: _async(was, at))
            _replace(library.HTTPTransport, "handle_request", lambda was, at=library: _sync(was, at))
    _replace(socket.socket, "connect", _connecting)


def _replace(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    setattr(owner, name, made(original))


def _turn() -> AgentTurn | None:
    return cast("AgentTurn | None", RECORDED_TURN.get())


def _async(original: Any, library: Any) -> Any:
    async def handle_async_request(transport: Any, request: Any) -> Any:
        if (turn := _turn()) is None:
            return await original(transport, request)
        await request.aread()
        host, call = request.url.host, _call_of(request)
        known = turn.recorder.recall(turn.frame, host, call)
        if known is not None:
            return _response(library, known, request)
        outside = RECORDED_TURN.set(None)
        try:
            given = await original(transport, request)
            content = library.Response(given.status_code, headers=given.headers, stream=given.stream)
            await content.aread()
            await given.aclose()
        finally:
            RECORDED_TURN.reset(outside)
        reply = _reply_of(content)
        turn.recorder.keep(turn.frame, host, call, reply)
        return _response(library, reply, request, given.headers)

    return handle_async_request


def _sync(original: Any, library: Any) -> Any:
    def handle_request(transport: Any, request: Any) -> Any:
        if (turn := _turn()) is None:
            return original(transport, request)
        request.read()
        host, call = request.url.host, _call_of(request)
        known = turn.recorder.recall(turn.frame, host, call)
        if known is not None:
            return _response(library, known, request)
        outside = RECORDED_TURN.set(None)
        try:
            given = original(transport, request)
            content = library.Response(given.status_code, headers=given.headers, stream=given.stream)
            content.read()
            given.close()
        finally:
            RECORDED_TURN.reset(outside)
        reply = _reply_of(content)
        turn.recorder.keep(turn.frame, host, call, reply)
        return _response(library, reply, request, given.headers)

    return handle_request


def _connecting(original: Any) -> Any:
    def connect(sock: socket.socket, address: Any) -> Any:
        turn = _turn()
        if turn is not None:
            steps = cast("tuple[object, ...]", address) if isinstance(address, tuple) else (address,)
            named = ":".join(map(str, steps[:2]))
            if not turn.recorder.note_connection(turn.frame, named):
                raise ConnectionRefusedError(f"no connection to {named}: this run is replayed offline")
        return original(sock, address)

    return connect


def _call_of(request: Any) -> HttpCall:
    """Return a request without its headers, and without the keys in its address."""
    query = [(name, value) for name, value in parse_qsl(request.url.query.decode()) if name.lower() not in _SECRET]
    path = request.url.path + (f"?{urlencode(query)}" if query else "")
    return HttpCall(call=f"{request.method} {path}", body=_json_or_text(request.content))


def _json_or_text(content: bytes) -> Json:
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        try:
            return content.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(content).decode()}


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_STREAM = "text/event-stream"


def _reply_of(response: Any) -> HttpReply:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    content: bytes = response.content
    if kind == _STREAM:
        events = joined(_events(content.decode(errors="replace")))
        return HttpReply(status=response.status_code, type=kind, events=events)
    body = _json_or_text(content)
    if isinstance(body, dict) and body.keys() == {"base64"}:
        return HttpReply(status=response.status_code, type=kind, base64=cast("str", body["base64"]))
    return HttpReply(status=response.status_code, type=kind, body=body)


def _response(library: Any, reply: HttpReply, request: Any, headers: Any = ()) -> Any:
    """Return a reply as the client gets it; of the *headers* of a real one, those that say nothing of its form."""
    if reply.events is not None:
        content = "".join(map(_as_text, reply.events)).encode()
    elif reply.base64 is not None:
        content = b64decode(reply.base64)
    elif isinstance(reply.body, str) and "json" not in reply.type:
        content = reply.body.encode()
    else:
        content = b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
    of_form = ("content-encoding", "content-length", "content-type", "transfer-encoding")
    kept = [(name, value) for name, value in dict(headers).items() if name.lower() not in of_form]
    made = library.Response(
        reply.status, headers=[*kept, ("content-type", reply.type)], content=content, request=request
    )
    made.elapsed = timedelta(0)
    return made


def _events(text: str) -> list[Json]:
    """Return the events of a stream: their data as JSON where it is some, with their name if they have one."""
    events: list[Json] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line and not line.startswith(":")]
        data = "\n".join(value.removeprefix(" ") for name, _, value in fields if name == "data")
        names = [value.strip() for name, _, value in fields if name == "event"]
        if data or names:
            read = _json_or_text(data.encode())
            events.append({"event": names[-1], "data": read} if names else {"data": read})
    return events


def _as_text(event: Json) -> str:
    fields = cast("dict[str, Json]", event)
    data = fields["data"]
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    named = f"event: {fields['event']}\n" if "event" in fields else ""
    lines = "".join(f"data: {line}\n" for line in (text or "").split("\n"))
    return f"{named}{lines}\n"


# The fields in which providers send a growing text piece by piece.
_GROWING = frozenset({"arguments", "content", "delta", "partial_json", "reasoning_content", "text", "thinking"})
# Says how much of a stream came before, or is there to hide the length of a piece.
_OF_PIECE = frozenset({"obfuscation", "sequence_number", "created"})


def joined(events: list[Json]) -> list[Json]:
    """Return the events of a stream with the pieces of a text as one, so that no placeholder is cut in two."""
    made: list[Json] = []
    for event in events:
        together = _join(made[-1], event, "") if made else None
        if together is None:
            made.append(event)
        else:
            made[-1] = together[0]
    return made


def _join(one: Json, other: Json, name: str) -> tuple[Json, int] | None:
    """Return two pieces of a stream as one and the number of texts that grew; None if they are no such pieces."""
    made = _joined_values(one, other, name)
    return made if made is not None and made[1] == 1 else None


def _joined_values(one: Json, other: Json, name: str) -> tuple[Json, int] | None:
    match one, other:
        case (dict(), dict()):
            old, new = cast("dict[str, Json]", one), cast("dict[str, Json]", other)
            # A later piece may leave out what the first one said: a role, the name of a tool.
            parts = {
                key: _joined_values(value, new[key], key) if key in new else (value, 0) for key, value in old.items()
            }
            if not new.keys() <= old.keys() or any(part is None for part in parts.values()):
                return None
            known = cast("dict[str, tuple[Json, int]]", parts)
            return {key: part[0] for key, part in known.items()}, sum(part[1] for part in known.values())
        case (list(), list()):
            before, after = cast("list[Json]", one), cast("list[Json]", other)
            several = [_joined_values(each, new, name) for each, new in zip(before, after, strict=False)]
            if len(before) != len(after) or any(part is None for part in several):
                return None
            items = cast("list[tuple[Json, int]]", several)
            return [part[0] for part in items], sum(part[1] for part in items)
        case (str(), str()) if name in _GROWING:
            return one + other, 1
        case _ if name in _OF_PIECE:
            return other, 0
        case _:
            return (one, 0) if one == other and type(one) is type(other) else None
