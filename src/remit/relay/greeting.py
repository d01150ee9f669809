"""How a device shows its gateway who it is."""

from aiohttp import ClientWebSocketResponse, WSMsgType

from remit.relay.identity import device_id
from remit.relay.wire import (
    VERSION,
    Bye,
    Challenge,
    FromGateway,
    Hello,
    Malformed,
    Welcome,
    encode_text,
    read_from_gateway,
    signed_text,
)
from remit.transports.credentials.keys import Pair, raw

CLOSED = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})


async def greet(socket: ClientWebSocketResponse, pair: Pair, *, gateway: str) -> Welcome | Bye:
    """Answer the challenge of *gateway*, and of no server that calls itself otherwise; return what it says to that."""
    challenge = await _control(socket)
    if isinstance(challenge, Bye):
        return challenge
    if not isinstance(challenge, Challenge):
        raise Malformed("no challenge came first")
    if challenge.gateway != gateway:
        reason = f"the server calls itself {challenge.gateway[:100]!r}, not {gateway!r}"
        return Bye(code="unauthenticated", reason=reason)
    if challenge.version != VERSION:
        return Bye(code="version", reason=f"the gateway speaks version {challenge.version}, this device {VERSION}")
    device = device_id(pair.public)
    text = signed_text(gateway=gateway, nonce=challenge.nonce, device=device)
    hello = Hello(public=raw(pair.public), signature=pair.sign(text))
    await socket.send_str(encode_text(hello).decode())
    answer = await _control(socket)
    if isinstance(answer, Welcome | Bye):
        return answer
    raise Malformed("no welcome followed the hello")


async def _control(socket: ClientWebSocketResponse) -> FromGateway:
    message = await socket.receive()
    if message.type is WSMsgType.TEXT:
        return read_from_gateway(message.data)
    if message.type in CLOSED:
        raise ConnectionResetError("the gateway closed the connection")
    raise Malformed("a control frame is text")
