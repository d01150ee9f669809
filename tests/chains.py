"""Hubs with keys, and credentials that pass from one to the next; also such as no hub would make."""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from biscuit_auth import Biscuit, BiscuitBuilder, BlockBuilder, Fact, KeyPair, PrivateKey, PublicKey

from remit.protocol.errors import Fault
from remit.protocol.remit import Remit
from remit_server.transports.credentials.chain import (
    Block,
    ParsedCredential,
    apart,
    attenuate,
    hub_signs,
    key_signs,
    mint,
    read_chain,
)
from remit_server.transports.credentials.keys import HubKey, Pair, raw
from remit_server.transports.credentials.proof import CredentialChain, Hop, Verified, digest_of
from remit_server.transports.credentials.verify import verify

NOW_MS = 1_763_000_000_000


class Way:
    """Hubs in a row, of which each asks the next: `pairs[0]` starts the credential, and the last receives it."""

    def __init__(self, hubs: int = 6) -> None:
        self.keys = [HubKey.create(NOW_MS) for _ in range(hubs)]
        self.pairs = [key.signing(NOW_MS) for key in self.keys]

    @property
    def root(self) -> set[str]:
        return {self.pairs[0].public}

    def remits(self, hops: int, first: Remit | None = None, **narrower: Any) -> list[Remit]:
        """Return the remits of as many requests, each narrowed from the one before."""
        made = [first or a_remit()]
        for number in range(1, hops):
            above = made[-1]
            kept: dict[str, Any] = {"time_ms": above.time_ms, "tokens": above.tokens, **narrower}
            made.append(above.narrow(caller=f"agent{number}@hub{number}", **kept))
        return made

    def token(self, remits: Sequence[Remit], *, now_ms: int = NOW_MS) -> str:
        """Return the credential after the last of *remits* was passed on; request *n* has the id `r<n>`."""
        token = mint(self.pairs[0], remits[0], to=self.pairs[1].public, request_id="r0", now_ms=now_ms)
        for number, remit in enumerate(remits[1:], start=1):
            token = attenuate(
                self.chain(token),
                self.pairs[number],
                remit,
                to=self.pairs[number + 1].public,
                request_id=f"r{number}",
                now_ms=now_ms,
            )
        assert isinstance(token, str), token
        return token

    def onward(self, held: CredentialChain, request_id: str, tokens: int = 10**6) -> str:
        """Return what the hub that received *held* passes on to the next hub, for a request of its own."""
        hops, above = len(held.hops), held.agents
        remit = a_remit(depth=held.hops[-1].depth + 1, chain=(*above, f"agent{hops}@hub{hops}"), tokens=tokens)
        to = self.pairs[hops + 1].public
        token = attenuate(held, self.pairs[hops], remit, to=to, request_id=request_id, now_ms=NOW_MS)
        assert isinstance(token, str), token
        return token

    def chain(self, token: str | Fault) -> CredentialChain:
        assert isinstance(token, str), token
        chain = read_chain(token, self.root)
        assert isinstance(chain, CredentialChain), chain
        return chain

    def verify(self, token: str, hops: int, **otherwise: Any) -> Verified | Fault:
        """Return what hub *hops* makes of a credential that came from the hub before it."""
        fields: dict[str, Any] = {
            "peer_key": self.pairs[hops - 1].public,
            "me": {self.pairs[hops].public},
            "roots": self.root,
            "now_ms": NOW_MS,
            "request_id": f"r{hops - 1}",
        }
        return verify(token, **{**fields, **otherwise})


def a_remit(**otherwise: Any) -> Remit:
    fields: dict[str, Any] = {"user": "ann", "depth": 0, "max_depth": 5, "time_ms": 60_000, "tokens": 8_000}
    return Remit(**{**fields, **otherwise})


# ── what no hub would make ────────────────────────────────────────────────────────────────────────────────────────────


def a_hop(number: int, to: Pair, **otherwise: Any) -> Hop:
    """Return what an honest block number *number* says."""
    fields: dict[str, Any] = {
        "to": raw(to.public),
        "request": digest_of(f"r{number}"),
        "user": "ann",
        "until_ms": NOW_MS + 60_000,
        "depth": number,
        "max_depth": 5,
        "tokens": 8_000,
        "may_delegate": True,
        "chain": (f"agent{number}@hub{number}",) if number else (),
        "tools": None,
        "targets": None,
    }
    return Hop(**{**fields, **otherwise})


def content_of(hop: Hop) -> bytes:
    return msgspec.msgpack.encode(hop)


def private_of(pair: Pair) -> PrivateKey:
    return PrivateKey(f"ed25519-private/{pair.seed.hex()}")


def rooted(pair: Pair, number: int, content: Any, *, code: str = "", root_id: int | None = None) -> Biscuit:
    """Return a biscuit whose first block says anything."""
    builder = BiscuitBuilder("")
    builder.add_fact(Fact("hop({number}, {content})", {"number": number, "content": content}))
    if code:
        builder.add_code(code)
    builder.set_root_key_id(int.from_bytes(raw(pair.public)[:4], "big") if root_id is None else root_id)
    return builder.build(private_of(pair))


def signed_on(biscuit: Biscuit, signer: Pair | KeyPair, number: int, content: Any, *, code: str = "") -> Biscuit:
    """Return a biscuit with one more block that says anything, signed by anyone."""
    block = BlockBuilder("")
    block.add_fact(Fact("hop({number}, {content})", {"number": number, "content": content}))
    if code:
        block.add_code(code)
    private = private_of(signer) if isinstance(signer, Pair) else signer.private_key
    public = PublicKey(signer.public) if isinstance(signer, Pair) else signer.public_key
    return biscuit.append_third_party(public, biscuit.third_party_request().create_block(private, block))


def credential_of(way: Way, *hops: Hop) -> str:
    """Return the credential whose blocks say *hops*, each signed by the hub in whose place it is."""
    biscuit = rooted(way.pairs[0], 0, content_of(hops[0]))
    for number, hop in enumerate(hops[1:], start=1):
        biscuit = signed_on(biscuit, way.pairs[number], number, content_of(hop))
    return biscuit.to_base64()


def taken_apart(token: str) -> ParsedCredential:
    parts = apart(token)
    assert parts is not None
    return parts


def joined(signed: bytes, secret: bytes) -> str:
    return urlsafe_b64encode(signed + b"\x22\x22\x0a\x20" + secret).decode()


def with_block(
    token: str, payload: bytes, hub: Pair, *, signer: Pair | None = None, key: Pair | None = None, place: bytes = b""
) -> str:
    """Return a credential with one more block of any payload, which names *hub* as the hub that added it.

    Unless told otherwise, *hub* has signed it for this place, and so has whoever holds the credential.
    """
    held = taken_apart(token)
    end = held.end(len(held.starts) - 1)
    assert end is not None
    at = msgspec.structs.replace(end, signature=place or end.signature)
    following = Pair(b"n" * 32)
    by_hub = (signer or hub).sign(hub_signs(payload, at))
    by_key = (key or Pair(held.secret)).sign(key_signs(payload, raw(following.public), by_hub, end))
    block = Block(
        payload=payload,
        next_key=raw(following.public),
        signature=by_key,
        hub_signature=by_hub,
        hub_key=raw(hub.public),
    )
    return joined(held.signed + block.raw, following.seed)


def content_said(chain: CredentialChain | Fault) -> object:
    """Return what a credential says, however it was read."""
    return chain if isinstance(chain, Fault) else (chain.hops, chain.signers, chain.ids, chain.token)
