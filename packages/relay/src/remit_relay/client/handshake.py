"""The handshake in which a device authenticates to its gateway, and why there was none."""

import ssl as tls
from typing import Protocol

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientWebSocketResponse,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    WSMsgType,
    WSServerHandshakeError,
)

from remit_relay.device.identity import device_id
from remit_relay.wire import (
    VERSION,
    Bye,
    Challenge,
    DeviceStatus,
    FromGateway,
    Hello,
    Malformed,
    Welcome,
    encode_text,
    read_from_gateway,
    signed_text,
)
from remit_server.transports.credentials.keys import raw
from remit_server.transports.remote_calls import in_words

# The longest wait that a gateway can ask for.
MOST_AFTER_S = 600

CLOSED = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})


class DeviceSigner(Protocol):
    """A device's key for signing; the secret half stays with its owner."""

    @property
    def public(self) -> str: ...

    def sign(self, message: bytes, /) -> bytes: ...


async def greet(socket: ClientWebSocketResponse, key: DeviceSigner, *, gateway: str) -> Welcome | Bye:
    """Answer the challenge of *gateway*, and of no server with another name; return its reply."""
    answer = await _answered(socket, key, gateway, looks=False)
    if isinstance(answer, Welcome | Bye):
        return answer
    raise Malformed("expected a welcome after the hello")


async def look(socket: ClientWebSocketResponse, key: DeviceSigner, *, gateway: str) -> DeviceStatus | Bye:
    """Ask *gateway* for the status of the device; this changes nothing, and another connection of it continues."""
    answer = await _answered(socket, key, gateway, looks=True)
    if isinstance(answer, DeviceStatus | Bye):
        return answer
    raise Malformed("expected a status after the hello")


async def _answered(socket: ClientWebSocketResponse, key: DeviceSigner, gateway: str, *, looks: bool) -> FromGateway:
    challenge = await _control(socket)
    if isinstance(challenge, Bye):
        return challenge
    if not isinstance(challenge, Challenge):
        raise Malformed("expected a challenge as the first frame")
    if challenge.gateway != gateway:
        reason = f"the name of the server is {challenge.gateway[:100]!r}, not {gateway!r}"
        return Bye(code="unauthenticated", reason=reason)
    if challenge.version != VERSION:
        return Bye(
            code="version", reason=f"the gateway uses protocol version {challenge.version}, this device {VERSION}"
        )
    text = signed_text(gateway=gateway, nonce=challenge.nonce, device=device_id(key.public), looks=looks)
    hello = Hello(public=raw(key.public), signature=key.sign(text), looks=looks)
    await socket.send_str(encode_text(hello).decode())
    return await _control(socket)


async def _control(socket: ClientWebSocketResponse) -> FromGateway:
    message = await socket.receive()
    if message.type is WSMsgType.TEXT:
        return read_from_gateway(message.data)
    if message.type in CLOSED:
        raise ConnectionResetError("the gateway closed the connection")
    raise Malformed("a control frame must be text")


def unreached(error: Exception) -> Bye:
    """Return why a gateway cannot be reached, and when to try again."""
    match error:
        case WSServerHandshakeError(status=429 | 503 as status):
            who = " from this network address" if status == 429 else ""
            after = error.headers.get("Retry-After", "") if error.headers else ""
            after_ms = min(int(after), MOST_AFTER_S) * 1_000 if after.isdecimal() else 0
            reason = f"the gateway accepts no more connections{who} for now (status {status})"
            return Bye(code="full", reason=reason, retry_after_ms=after_ms)
        case WSServerHandshakeError():
            why = f"the server at this address is not a gateway (status {error.status})"
        case ClientConnectorCertificateError(certificate_error=tls.SSLCertVerificationError(verify_message=message)):
            if "mismatch" in message:
                why = f"its certificate is for another host ({message.rstrip('.')}); check `gateway` in `[relay]`"
            else:
                why = (
                    f"its certificate is not trusted ({message}); set `authority` in `[relay]` to the PEM file of the "
                    "certificate authority to trust"
                )
        case ClientConnectorSSLError():
            why = "it does not use TLS; use ws:// for a gateway without a certificate"
        case ServerDisconnectedError():
            why = "it closed the connection; use wss:// for a gateway with a certificate"
        case ClientConnectorError() | ConnectionTimeoutError():
            why = in_words(error)
        case _:
            why = str(error) or "no answer"
    return Bye(code="trouble", reason=f"cannot reach the gateway: {why}")
