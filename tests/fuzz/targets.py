"""Every reader of what strangers send, with samples of what it expects, and how it may refuse."""

# pyright: reportPrivateUsage=false

import asyncio
import base64
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from hypothesis.strategies import SearchStrategy

from chains import Way, a_hop, content_of, content_said, with_block
from fuzz.doors import Doors
from fuzz.mutations import bytes_like, json_like, msgpack_like
from gateways import id_of, pair_of
from local_agents import request
from remit.agents.piped_process import LineSplitter
from remit.agents.program import Program
from remit.protocol.codec import decode_request, decode_submission, encode
from remit.protocol.envelope import Answer
from remit.protocol.errors import RemitError
from remit.protocol.generous import decode_response
from remit_cli.config.load import load_team
from remit_relay import wire
from remit_relay.bridge.acp_turn import PERMISSION, Updated, Wire, is_broken, tokens_in
from remit_relay.bridge.ndjson import NdjsonLink, _Asked
from remit_relay.device.identity import make_card, read_card, read_link
from remit_relay.e2e.streams import START, Incoming, MessagePart, Piece, decode_piece, encode_piece, split_frame
from remit_relay.messages import types
from remit_relay.session.profile import ControlEnvelope
from remit_server.dialects.a2a.card import card_of
from remit_server.dialects.a2a.translator import TONGUE
from remit_server.transports.credentials.chain import mint, payload_of, read_chain
from remit_server.transports.credentials.jwt import key_set
from remit_server.transports.credentials.proof import CredentialChain, Proofs, Statement
from remit_server.transports.credentials.trusted_files import revoked_ids, trusted_keys
from remit_server.transports.credentials.verify import Chains
from remit_server.websockets import WebSocket
from remit_testing import ManualClock
from samples import a_card, a_remit, a_request, a_response
from written_transport import WrittenTransport

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Target(NamedTuple):
    """A reader: any bytes give a value, or one of the errors that it is documented to raise."""

    read: Callable[[bytes], object]
    inputs: SearchStrategy[bytes]
    refusals: tuple[type[Exception], ...] = ()


# ── envelopes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

REQUEST = encode(
    a_request(input={"receipts": [1, 2.5, None, "x"]}, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
)
RESPONSE = encode(a_response(result={"count": 3}, confidence=0.5))
SUBMISSION = b'{"target": "tag", "user": "anna", "objective": "Tag", "input": [1], "max_tokens": 400, "id": "x"}'


# ── A2A ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

MESSAGE = (
    b'{"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}, {"data": {"a": [1]}},'
    b' {"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "a.txt"}], "contextId": "c", "metadata": {"k": "v"}},'
    b' "configuration": {"historyLength": 3, "returnImmediately": false, "acceptedOutputModes": ["text/plain"]}}'
)
TASK = (
    b'{"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED",'
    b' "timestamp": "2025-01-01T00:00:00.000Z", "message": {"messageId": "m", "role": "ROLE_AGENT",'
    b' "parts": [{"text": "done"}]}}, "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}, {"data": {"b": 1}}]}],'
    b' "metadata": {"k": 1}}}'
)
CARD = encode(card_of(a_card(description="Tags."), "https://example.org/a2a/tag", push=True, required=False))


def hear_task(raw: bytes) -> object:
    talk = TONGUE.talk(a_request(), extended=True)
    talk.hear(raw)
    return talk.response()


def a2a_error(raw: bytes) -> object:
    return TONGUE.fault(400, raw, "peer")


def a2a_card(raw: bytes) -> object:
    return TONGUE.offer(raw, "https://example.org", ())


def rpc(method: str, params: bytes = MESSAGE) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 7, "method": "%s", "params": %s}' % (method.encode(), params)


# ── the relay ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PAIR = pair_of("a")
DEVICE_CARD = make_card(PAIR, bytes(32), name="Anna", gateway="wss://relay.example")
CONTROL = ControlEnvelope(origin_agent_device_id="d", trace_id="t", hop_count=1, orchestrator_profile_id="p")
LETTERS = tuple(
    map(
        types.write,
        (
            types.QuestionMessage(
                id="1", session="s", text="hello", control=CONTROL, request=decode_submission(SUBMISSION)
            ),
            types.AnswerMessage(to="1", session="s", text="", tokens=3, answer=Answer("done")),
            types.DeclineMessage(to="1", session="s", code="TIMEOUT", reason="slow", status="timeout"),
            types.WithdrawMessage(to="1", session="s"),
            types.OffersMessage(agents=(types.AgentOffer(name="helper", description="Helps."),)),
        ),
    )
)
PIECE = encode_piece(
    Piece(
        version=1,
        sender=id_of("a"),
        receiver=id_of("b"),
        kind="part",
        gen=1,
        stream=START,
        seq=2,
        floor=1,
        settled=0,
        held=0,
        renew=False,
        former=(),
        ack=Incoming().ack(),
        part=MessagePart(
            message=START,
            before=START,
            content="message",
            requester="anna",
            size=3,
            count=1,
            index=0,
            body=b"abc",
        ),
    )
)
FROM_GATEWAY = tuple(
    map(
        wire.encode_text,
        (
            wire.Stored(receipts=(wire.Receipt(to=id_of("b"), number=3),)),
            wire.BundleReply(request=1, device=id_of("b"), bundle=b"keys", one_time=b"key"),
            wire.Bye(code="full", reason="no room", retry_after_ms=10),
        ),
    )
)
FROM_DEVICE = tuple(
    map(
        wire.encode_text,
        (
            wire.Hello(public=bytes(32), signature=bytes(64)),
            wire.Publish(request=1, bundle=b"keys", one_time=(b"key",)),
            wire.AllowSenders(request=2, senders=(id_of("b"),)),
        ),
    )
)


def pairing_link(raw: bytes) -> object:
    return read_link(raw.decode("latin-1"))


def sealed(raw: bytes) -> object:
    # A shorter one is refused by its length.
    return split_frame(raw) if len(raw) > 1 else None


# ── credentials ───────────────────────────────────────────────────────────────────────────────────────────────────────

NOW_MS = 1_750_000_000_000
_MINTED = mint(PAIR, a_remit(), to=pair_of("b").public, request_id="r", now_ms=NOW_MS)
assert isinstance(_MINTED, str)
CREDENTIAL = base64.urlsafe_b64decode(_MINTED)
_DIGEST = bytes(32)
_STATED = Statement(
    by=_DIGEST,
    to=_DIGEST,
    at_ms=NOW_MS,
    nonce=bytes(16),
    request=_DIGEST,
    credential=_DIGEST,
    method="POST",
    path=_DIGEST,
    body=_DIGEST,
)
# Behind a signature, which is looked at last.
PROOF = bytes(64) + msgspec.msgpack.encode(_STATED)
KEYS = b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}]}'


def packed(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """Return a reader of a header whose bytes are packed as Base64, or stand there as they are."""

    def both(raw: bytes) -> object:
        return read(base64.urlsafe_b64encode(raw).decode()), read(raw.decode("latin-1"))

    return both


# Two requests of one run: of the credential of the second, the last block alone is read by `blocks.py`.
WAY = Way(0)
WAY.pairs = [pair_of(name) for name in "abcd"]
_HELD = WAY.chain(WAY.token(WAY.remits(2)))
_FIRST = Chains()
assert isinstance(_FIRST.read(WAY.onward(_HELD, "first"), WAY.root), CredentialChain)
SECOND = base64.urlsafe_b64decode(WAY.onward(_HELD, "second"))
_CONTENT = content_of(a_hop(2, WAY.pairs[3]))
BLOCK = payload_of(2, _CONTENT)


def after_another(token: str) -> object:
    """Read a credential behind another one of its run; the library, which reads it whole, must say the same."""
    chains = Chains()
    chains._prefixes.update(_FIRST._prefixes)
    chain, whole = chains.read(token, WAY.root), read_chain(token, WAY.root)
    assert content_said(chain) == content_said(whole)
    return chain


def signed_block(payload: bytes) -> object:
    """Read a credential whose last block has this payload and is signed as it should be."""
    return after_another(with_block(_HELD.token, payload, WAY.pairs[2]))


# ── local agents ──────────────────────────────────────────────────────────────────────────────────────────────────────

DRAFTED = (
    b'{"type": "desktop.local_prompt.response", "request_id": "r-1", "status": "ok", "draft_message": "Hello",'
    b' "confidence": 0.5, "done": false, "metrics": {"latency_ms": 3, "tokens": 4, "tool_rounds": 1}}\n'
)
FAILED = b'{"type": "desktop.local_prompt.response", "request_id": "r-1", "status": "error", "reason": "no"}\n'


def ndjson(raw: bytes) -> object:
    """Feed what an agent prints to whoever waits for its answer."""
    loop = asyncio.new_event_loop()
    try:
        link = NdjsonLink("p-1", Program(command="agent"), ManualClock())
        link._pending = _Asked(request(), 0.0, loop.create_future())
        for line in LineSplitter(10_000).feed(raw + b"\n"):
            link._take(line)
        return link._pending.outcome.done() and link._pending.outcome.result()
    finally:
        loop.close()


ACP = (
    b'{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate":'
    b' "agent_message_chunk", "content": {"type": "text", "text": "hi"}, "messageId": "m", "_meta": {"usage":'
    b' {"totalTokens": 3}}}}}\n',
    b'{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate":'
    b' "tool_call", "toolCallId": "t", "title": "Edit", "kind": "edit", "rawInput": {"a": 1}, "content": [{"type":'
    b' "diff", "path": "a", "newText": "b"}, {"type": "content", "content": {"type": "text", "text": "c"}}],'
    b' "locations": [{"path": "a", "line": 1}]}}}\n',
    b'{"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}\n',
    b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no", "data": {"details": "x"}}}\n',
    b'{"jsonrpc": "2.0", "id": 9, "method": "session/request_permission", "params": {"sessionId": "s"}}\n',
    b'{"jsonrpc": "2.0", "id": 9, "method": "terminal/create", "params": {}}\n',
)


class _Output:
    """The output of a process that says something and ends."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def read(self, most: int) -> bytes:
        chunk, self._raw = self._raw[:most], self._raw[most:]
        return chunk


class _Child:
    def __init__(self, raw: bytes) -> None:
        self.output = _Output(raw)

    async def write(self, line: bytes) -> None:
        msgspec.json.decode(line)

    def kill(self) -> None: ...


def acp(raw: bytes) -> object:
    def update(updated: Updated) -> None:
        update_message = updated.update
        update_message.text()
        update_message.tool_call()
        tokens_in(update_message.meta)
        is_broken(update_message.meta)

    async def all_of_it() -> int:
        agent = Wire("p-1", cast(Any, _Child(raw + b"\n")), offered={PERMISSION}, update=update, ended=lambda: None)
        count = 0
        while await agent.receive() is not None:
            count += 1
        return count

    return asyncio.run(all_of_it())


# ── team files ────────────────────────────────────────────────────────────────────────────────────────────────────────

TEAMS = tuple(path.read_bytes() for path in sorted(EXAMPLES.rglob("*.toml")))


def team(raw: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "remit.toml"
        path.write_bytes(raw)
        return load_team(path, environ={}, secrets=False, code=False)


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────

DOORS = Doors()


def posted(path: str, sender: str = "anna") -> Callable[[bytes], object]:
    """Return what sends a body to a path of the hub's web application."""
    return partial(DOORS.post, path, authorization=f"Bearer {sender}", a2a_version="1.0")


RPC = (
    *(rpc(method) for method in ("SendMessage", "SendStreamingMessage")),
    *(rpc(method, b'{"id": "t", "historyLength": 1}') for method in ("GetTask", "CancelTask", "SubscribeToTask")),
    rpc("ListTasks", b'{"contextId": "c", "pageSize": 3, "pageToken": "", "status": "TASK_STATE_WORKING"}'),
    rpc("CreateTaskPushNotificationConfig", b'{"taskId": "t", "url": "http://127.0.0.1:9/", "token": "x"}'),
)
MCP = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities":'
    b' {}, "clientInfo": {"name": "x", "version": "1"}}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"objective": "x"}}}',
)
SPOKEN: dict[str, Any] = {
    "employee": {
        "request_id": "a-new-id",
        "parent_session_id": "s",
        "origin_employee": "x",
        "target_employee": "echo",
        "user_id": "anna",
        "objective": "Tag",
        "input": "x",
        "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 1500},
        "context_hints": ["a"],
        "handoff_data": {},
    },
    "librarian/echo": {
        "query": "hello",
        "context": {
            "originalQuery": "x",
            "delegationChain": ["a", "b"],
            "delegationDepth": 2,
            "remainingTimeout": 2950,
            "startTime": 1760000000000,
            "parentSpanId": "7",
            "remit": {"user": "anna", "version": "1.0"},
        },
        "version": "1.0",
        "requestId": "a-new-id",
        "timestamp": 1760000000500,
    },
    "contract": {
        "request_id": "a-new-id",
        "source_agent": "x",
        "target_agent": "echo",
        "capability_code": "TAG",
        "priority": "NORMAL",
        "timeout_ms": 1500,
        "inputs_json": {"a": [1]},
        "context": {"session_id": "s", "user_id": "anna"},
    },
    "subagent": {
        "tool": "sub_agent",
        "remit": {"user": "anna", "version": "1.0"},
        "args": {
            "agent_name": "echo",
            "task": "hello",
            "context": {"last_messages": 3, "roles": ["user"], "keywords": ["x"]},
            "max_context_tokens": 600,
            "allowed_tools": ["read"],
        },
    },
}
_OURS = (RemitError,)


def websocket(raw: bytes) -> object:
    async def read() -> object:
        socket = WebSocket(WrittenTransport(), max_message=1_000, closing_s=60)
        socket.data_received(raw)
        socket.connection_lost(None)
        return await socket.receive()

    return asyncio.run(read())


# A masked text message in two parts with a ping between them, and a close frame.
FRAMES = b"\x01\x81\1\2\3\4x" + b"\x89\x80\1\2\3\4" + b"\x80\xfe\0\2\1\2\3\4xy", b"\x88\x82\0\0\0\0\3\xe8"

TARGETS: dict[str, Target] = {
    "request": Target(decode_request, json_like(REQUEST), _OURS),
    "response": Target(decode_response, json_like(RESPONSE), _OURS),
    "submission": Target(decode_submission, json_like(SUBMISSION), _OURS),
    "delegation": Target(posted("/v1/delegations"), json_like(SUBMISSION.replace(b"tag", b"echo"))),
    "a2a message": Target(posted("/a2a/echo"), json_like(*RPC)),
    "a2a message by path": Target(posted("/a2a/echo/message:send"), json_like(MESSAGE)),
    "a2a answer": Target(hear_task, json_like(TASK), _OURS),
    "a2a error": Target(a2a_error, json_like(RPC[0])),
    "a2a card": Target(a2a_card, json_like(CARD), _OURS),
    "mcp message": Target(DOORS.mcp, json_like(*MCP)),
    **{
        f"{name.split('/')[0]} dialect": Target(
            posted(f"/dialects/{name}", "north"),
            json_like(encode(sample)),
        )
        for name, sample in SPOKEN.items()
    },
    "frame from gateway": Target(wire.read_from_gateway, json_like(*FROM_GATEWAY), (wire.Malformed,)),
    "frame from device": Target(wire.read_from_device, json_like(*FROM_DEVICE), (wire.Malformed,)),
    "put": Target(wire.read_put, msgpack_like(wire.encode_binary(wire.Put(id_of("b"), 3, b"body"))), (wire.Malformed,)),
    "delivery": Target(
        wire.read_delivery,
        msgpack_like(wire.encode_binary(wire.Delivery(1, id_of("a"), 3, b"body"))),
        (wire.Malformed,),
    ),
    "web socket": Target(websocket, bytes_like(*FRAMES)),
    "sealed bytes": Target(sealed, bytes_like(b"\x00olm", b"\x02\x00\x03olmbox")),
    "piece": Target(decode_piece, msgpack_like(PIECE)),
    "letter": Target(types.decode_message, json_like(*LETTERS), _OURS),
    "device card": Target(read_card, json_like(msgspec.json.encode(DEVICE_CARD)), _OURS),
    "pairing link": Target(pairing_link, bytes_like(DEVICE_CARD.link().encode()), _OURS),
    "credential": Target(packed(lambda token: read_chain(token, [PAIR.public])), bytes_like(CREDENTIAL)),
    "credential after another": Target(packed(after_another), bytes_like(SECOND)),
    "block after another": Target(
        signed_block,
        # Most changes in the content make it unreadable; so its frame alone is changed more often.
        bytes_like(BLOCK.removesuffix(_CONTENT)).map(lambda frame: frame + _CONTENT)
        | msgpack_like(_CONTENT).map(partial(payload_of, 2))
        | bytes_like(BLOCK),
    ),
    "proof": Target(packed(Proofs().taken), bytes_like(PROOF)),
    "key set": Target(key_set, json_like(KEYS), (ValueError,)),
    "trusted keys": Target(trusted_keys, bytes_like(f"north {PAIR.public}\n# x\n".encode()), (ValueError,)),
    "revoked ids": Target(revoked_ids, bytes_like(b"ab" * 64 + b"\n# x\n"), (ValueError,)),
    "ndjson": Target(ndjson, json_like(DRAFTED, FAILED)),
    "acp": Target(acp, json_like(*ACP)),
    "team file": Target(team, bytes_like(*TEAMS), _OURS),
}
