"""Agent cards: those that a hub publishes and signs, and those of peers."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from remit.protocol.card import AgentCard
from remit.protocol.codec import decode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit_server.dialects.a2a.errors import DESCRIPTION, EXTENSION
from remit_server.dialects.a2a.types import GRPC, HTTP_JSON, JSON, JSONRPC, TEXT, VERSION, A2aObject, is_spoken

# A card has some kilobytes; one with a hundred skills is smaller than this.
MAX_CARD_BYTES = 256 * 1024

ALGORITHM = "EdDSA"

# Permissions take the place of the roles that OpenAPI allows in a requirement.
_ROLE = "ask"


class Signer(NamedTuple):
    """Signs cards with the key of that name, whose public half is published at *url*."""

    key_id: str
    sign: Callable[[bytes], bytes]


# ── cards of this hub ─────────────────────────────────────────────────────────────────────────────────────────────────


def card_of(
    card: AgentCard, base: str, *, push: bool, required: bool, public: bool = False, grpc: str | None = None
) -> dict[str, Json]:
    """Return the card of an agent that is served below *base*, as plain JSON; a *public* one needs no token.

    Over gRPC it is served at *grpc*, `host:port`.

    Default values are omitted, and nothing is empty, so that all signers and verifiers, by the letter of the
    specification or as the SDKs do it, use the same bytes.
    """
    url = f"{base}/a2a/{quote(card.name, safe='')}"
    extension: dict[str, Json] = {"uri": EXTENSION, "description": DESCRIPTION}
    if required:
        extension["required"] = True
    interfaces: list[Json] = [
        {"url": url, "protocolBinding": binding, "protocolVersion": VERSION} for binding in (JSONRPC, HTTP_JSON)
    ]
    if grpc is not None:
        # All agents have one address there: the tenant tells them apart.
        interfaces.append({"url": grpc, "protocolBinding": GRPC, "protocolVersion": VERSION, "tenant": card.name})
    return {
        "name": card.name,
        "description": card.description or f"The agent {card.name}.",
        "version": card.version,
        "supportedInterfaces": interfaces,
        "capabilities": {
            "streaming": True,
            "pushNotifications": push,
            "extendedAgentCard": False,
            "extensions": [extension],
        },
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        **({} if public else {"securityRequirements": [{"schemes": {"bearer": {"list": [_ROLE]}}}]}),
        "defaultInputModes": [TEXT, JSON],
        "defaultOutputModes": [TEXT, JSON],
        "skills": _skills(card),
    }


def _skills(card: AgentCard) -> list[Json]:
    described = card.description or f"The agent {card.name}."
    if not card.capabilities:
        return [{"id": card.name, "name": card.name, "description": described, "tags": ["agent"]}]
    return [
        {
            "id": each.code,
            "name": each.code,
            "description": each.description or described,
            "tags": [card.name],
            **({"examples": list(each.examples)} if each.examples else {}),
        }
        for each in card.capabilities
    ]


def signed(card: dict[str, Json], signer: Signer, keys_url: str) -> dict[str, Json]:
    """Return a card with a signature (JWS, RFC 7515) over its content."""
    header = {"alg": ALGORITHM, "typ": "JOSE", "kid": signer.key_id, "jku": keys_url}
    protected = _packed(canonical(header))
    signature = signer.sign(f"{protected}.{_packed(canonical(card))}".encode())
    return card | {"signatures": [{"protected": protected, "signature": _packed(signature)}]}


def canonical(value: Json) -> bytes:
    """Return canonical JSON (RFC 8785), for values with ASCII keys and whole numbers, such as cards."""
    return _sorted.encode(value)


_sorted = msgspec.json.Encoder(order="sorted")


def public_key(public: bytes, key_id: str) -> dict[str, Json]:
    """Return an Ed25519 key as RFC 8037 writes it."""
    return {"kty": "OKP", "crv": "Ed25519", "x": _packed(public), "kid": key_id, "alg": ALGORITHM, "use": "sig"}


def _packed(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


# ── cards of peers ────────────────────────────────────────────────────────────────────────────────────────────────────


class Interface(A2aObject, frozen=True, kw_only=True):
    """Where and how an agent can be called."""

    url: str = ""
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""


class Extension(A2aObject, frozen=True, kw_only=True):
    """An extension that an agent supports or requires."""

    uri: str = ""
    required: bool = False


class Capabilities(A2aObject, frozen=True, kw_only=True):
    """The optional features of an agent."""

    streaming: bool | None = None
    extensions: tuple[Extension, ...] = ()


class CardSignature(Struct, frozen=True, kw_only=True):
    """A signature of a card."""

    protected: str = ""
    signature: str = ""


class PeerCard(A2aObject, frozen=True, kw_only=True):
    """The fields of a card that are needed to call its agent."""

    name: str = ""
    supported_interfaces: tuple[Interface, ...] = ()
    capabilities: Capabilities = Capabilities()
    signatures: tuple[CardSignature, ...] = ()

    @property
    def extended(self) -> bool:
        """Whether the agent supports the extension that carries the remit."""
        return any(each.uri == EXTENSION for each in self.capabilities.extensions)


class Header(Struct, frozen=True, kw_only=True):
    """The protected header of a signature."""

    alg: str = ""
    kid: str = ""


def read_card(raw: bytes, url: str) -> PeerCard:
    """Return a peer's card, or raise a `RemitError` if it is unusable."""
    try:
        card = decode(raw, PeerCard, max_bytes=MAX_CARD_BYTES)
    except RemitError as error:
        raise _unusable(url, f"invalid A2A agent card: {error.fault.message}") from error
    unknown = [each.uri for each in card.capabilities.extensions if each.required and each.uri != EXTENSION]
    if unknown:
        raise _unusable(url, f"it requires an unsupported extension: {unknown[0][:200]}")
    return card


def choose(card: PeerCard, url: str, binding: str | None = None) -> Interface:
    """Return the first supported interface in JSON, else over gRPC; raise a `RemitError` if there is none.

    With a *binding*, only interfaces in that count.
    """
    spoken = [
        each
        for each in card.supported_interfaces
        if is_spoken(each.protocol_version) and binding in (None, each.protocol_binding)
    ]
    for each in spoken:
        if each.protocol_binding in (JSONRPC, HTTP_JSON):
            if urlsplit(each.url).scheme not in ("http", "https") or not urlsplit(each.url).hostname:
                raise _unusable(f"{url}: {each.url[:200]!r}", "it names an invalid address")
            return each
    for each in spoken:
        if each.protocol_binding == GRPC:
            return each
    offered = f"none of {JSONRPC}, {HTTP_JSON} and {GRPC}" if binding is None else f"no {binding}"
    raise _unusable(url, f"it offers {offered} in version {VERSION}")


Verify = Callable[[str, bytes, bytes], bool]
"""Given a key, a signature and a message, says whether the key's owner signed it."""


def is_signed_by(raw: bytes, keys: Mapping[str, str], verify: Verify) -> bool:
    """Return whether one of *keys*, by their ids, signed a card."""
    value = decode(raw, dict[str, Json], max_bytes=MAX_CARD_BYTES)
    signatures = msgspec.convert(value.pop("signatures", []), tuple[CardSignature, ...], strict=False)
    payload = _packed(canonical(value))
    for each in signatures:
        try:
            header = msgspec.json.decode(_unpacked(each.protected), type=Header)
            signature = _unpacked(each.signature)
        except (ValueError, msgspec.MsgspecError):
            continue
        key = keys.get(header.kid)
        message = f"{each.protected}.{payload}".encode()
        if key is not None and header.alg == ALGORITHM and verify(key, signature, message):
            return True
    return False


def _unpacked(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _unusable(url: str, why: str) -> RemitError:
    return RemitError(fault(Code.DELEGATION_UNAVAILABLE, f"the agent card cannot be used: {why}", detail=url))
