"""The cards of the agents that are served, for whoever wants to know what they can do, and how to ask them."""

import hashlib
import re
from collections.abc import Callable

from msgspec import Struct

from remit.dialects.a2a.card import Signer, canonical, card_of, public_key, signed
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.server.bodies import Headers, Scope, Send, send_bytes
from remit.transports.credentials.keys import HubKey, raw

# Cards change with the team file.
MAX_AGE_S = 300
KEYS_PATH = "/.well-known/jwks.json"

# A name or an address, and a port.
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)

_PUBLIC = (b"cache-control", f"public, max-age={MAX_AGE_S}".encode())
_JSON = (b"content-type", b"application/json")


class Cards(Struct, frozen=True, kw_only=True):
    """Makes cards: below which address, with which key, and with what in them."""

    url: str | None
    """Where this server is reached from outside; None: as each client addresses it."""
    key: Callable[[], HubKey] | None
    wall_ms: Callable[[], int]
    push: bool
    required: bool

    async def send(self, card: AgentCard, scope: Scope, headers: Headers, send: Send) -> None:
        """Send an agent's card, unless the client has it already."""
        base = self.url or _addressed(scope, headers)
        value = card_of(card, base, push=self.push, required=self.required)
        if self.key is not None:
            pair = self.key().signing(self.wall_ms())
            value = signed(value, Signer(pair.public, pair.sign), f"{base}{KEYS_PATH}")
        body = canonical(value)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        tags = ((b"etag", etag.encode()), _PUBLIC, *(() if self.url else ((b"vary", b"host"),)))
        known = headers.get("if-none-match", "")
        if etag in known or known.strip() == "*":
            await send_bytes(send, 304, b"", tags)
            return
        await send_bytes(send, 200, body, (_JSON, *tags))

    async def send_keys(self, send: Send) -> None:
        """Send the public keys with which cards are signed."""
        stages = self.key().accepted(self.wall_ms()) if self.key is not None else ()
        keys = [public_key(raw(stage.pair.public), stage.pair.public) for stage in stages]
        await send_bytes(send, 200, canonical({"keys": keys}), (_JSON, _PUBLIC))


def _addressed(scope: Scope, headers: Headers) -> str:
    """Return where a client thinks that this server is."""
    host = headers.get("host", "")
    if _HOST.fullmatch(host) is None:
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "the header Host names no host"))
    return f"{scope.get('scheme', 'http')}://{host}"
