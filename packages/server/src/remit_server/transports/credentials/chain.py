"""What one hub allows another, as a token: every hub on the way can add a block, and none can remove one.

A credential is a biscuit (https://www.biscuitsec.org). Its first block is signed by the hub that starts the chain, each
further one is a third-party block, signed by the hub that the previous block names. A block holds one fact and nothing
else, `hop(number, content)`: the content is a `Hop` in MessagePack, so that no foreign text is ever Datalog.

A hub that passes on several requests of one run sends credentials that differ only in their last block. The blocks
before it were verified with the first of them; the two signatures of the last block are checked here. Only what this
hub itself would write is accepted, byte for byte: everything else is left to the library, which checks all signatures.

The library can only check a credential whole. At five hops that takes 4.5 times as long as the last block alone
(`bench/credentials.py`), which is why this module reads the format itself. `tests/fuzz/targets.py` compares it with the
library: the two must say the same about any bytes.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import msgspec
from msgspec import Struct

from remit.installed import install_command
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Remit, lower, meet, meet_tools
from remit_server.transports.credentials.keys import Pair, is_signed, raw, written
from remit_server.transports.credentials.proof import CredentialChain, Hop, digest_of

# The fields of a biscuit (https://github.com/eclipse-biscuit/biscuit/blob/main/schema.proto), by number.
_ROOT, _AUTHORITY, _BLOCK, _PROOF = 1, 2, 3, 4
# Of the signed payloads, only the first version with an external signature over the previous one, and only Ed25519.
_VERSION, _ED25519 = 1, 0
_DATALOG = 5
# The first symbol of a block's own: those before belong to the language.
_OWN_SYMBOL = 1_024


class ChainEnd(Struct, frozen=True, kw_only=True):
    """Where a block can be added: the key that signs it, and the signature that it is bound to."""

    key: bytes
    signature: bytes


class Block(Struct, frozen=True, kw_only=True):
    """A block that a hub added: its content, the key that signs the next block, and both signatures."""

    payload: bytes
    next_key: bytes
    signature: bytes
    """Made with the key that the previous block names."""
    hub_signature: bytes
    hub_key: bytes

    @property
    def signer(self) -> str:
        """The public key of the hub that added it."""
        return written(self.hub_key)

    def follows(self, end: ChainEnd) -> bool:
        """Return whether both signatures are valid, and made for this place."""
        by_hub = hub_signs(self.payload, end)
        by_key = key_signs(self.payload, self.next_key, self.hub_signature, end)
        return (
            # A holder of the credential has the key of the place, and could sign in any hub's name without this check.
            is_signed(self.signer, self.hub_signature, by_hub)
            # Without this check, a block that the hub made for another credential could be placed here.
            and is_signed(written(end.key), self.signature, by_key)
        )

    @property
    def raw(self) -> bytes:
        """The block in the one encoding that is accepted."""
        by_hub = _field(1, self.hub_signature) + _field(2, _key(self.hub_key))
        return _field(
            _BLOCK,
            _field(1, self.payload)
            + _field(2, _key(self.next_key))
            + _field(3, self.signature)
            + _field(4, by_hub)
            + _number(5, _VERSION),
        )


def hub_signs(payload: bytes, end: ChainEnd) -> bytes:
    """Return the bytes that a hub signs when it adds a block."""
    return b"\0EXTERNAL\0" + _versioned(payload) + b"\0PREVSIG\0" + end.signature


def key_signs(payload: bytes, next_key: bytes, hub_signature: bytes, end: ChainEnd) -> bytes:
    """Return the bytes that are signed with the key that the previous block names."""
    return b"".join(
        (
            b"\0BLOCK\0" + _versioned(payload),
            b"\0ALGORITHM\0" + _ED25519.to_bytes(4, "little"),
            b"\0NEXTKEY\0" + next_key,
            b"\0PREVSIG\0" + end.signature,
            b"\0EXTERNALSIG\0" + hub_signature,
        )
    )


class ParsedCredential(Struct, frozen=True, kw_only=True):
    """A parsed credential: everything before its proof, and where each block begins."""

    signed: bytes
    starts: tuple[int, ...]
    secret: bytes

    @property
    def above(self) -> bytes:
        """Everything before the last block."""
        return self.signed[: self.starts[-1]]

    def block(self, number: int) -> Block | None:
        """Return a block that a hub added; None if there is none, or it has another encoding."""
        written_so = self._bytes(number)
        try:
            ((_, raw),) = _fields(written_so)
            (_, payload), (_, key), (_, signature), (_, by_hub), *_ = _fields(raw)
            (_, hub_signature), (_, hub_key) = _fields(by_hub)
            block = Block(
                payload=payload,
                next_key=key[-32:],
                signature=signature,
                hub_signature=hub_signature,
                hub_key=hub_key[-32:],
            )
        except (ValueError, IndexError):
            return None
        return block if block.raw == written_so else None

    def end(self, number: int) -> ChainEnd | None:
        """Return the place for the next block; None if the block has another encoding."""
        if number:
            block = self.block(number)
            return None if block is None else ChainEnd(key=block.next_key, signature=block.signature)
        written_so = self._bytes(0)
        try:
            ((_, raw),) = _fields(written_so)
            (_, payload), (_, key), (_, signature) = _fields(raw)
        except (ValueError, IndexError):
            return None
        first = _field(1, payload) + _field(2, _key(key[-32:])) + _field(3, signature)
        return ChainEnd(key=key[-32:], signature=signature) if _field(_AUTHORITY, first) == written_so else None

    def _bytes(self, number: int) -> bytes:
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.signed)
        return self.signed[self.starts[number] : end]

    def is_held(self, key: bytes) -> bool:
        """Return whether the sender has the secret key with which the next block may be added."""
        return Pair(self.secret).public == written(key)


def apart(token: str) -> ParsedCredential | None:
    """Return a parsed credential; None if it is invalid, or encoded in another way than a hub does it."""
    try:
        raw = urlsafe_b64decode(token)
        if urlsafe_b64encode(raw).decode() != token:
            return None
        starts, at, secret = list[int](), 0, b""
        for number, value in _fields(raw):
            if number not in ((_BLOCK, _PROOF) if starts else (_ROOT, _AUTHORITY)):
                return None
            if number in (_AUTHORITY, _BLOCK):
                starts.append(at)
                at += len(_field(number, value))
            elif number == _PROOF:
                ((_, secret),) = _fields(value)
                if value != _field(1, secret) or len(secret) != 32:
                    return None
            else:
                at = len(_number(number, int.from_bytes(value, "little")))
    except (ValueError, IndexError):
        return None
    # If a field were repeated, reordered or longer than needed, the proof would not be at this place.
    if not secret or raw[at:] != _field(_PROOF, _field(1, secret)):
        return None
    return ParsedCredential(signed=raw[:at], starts=tuple(starts), secret=secret)


def payload_of(number: int, content: bytes) -> bytes:
    """Return the block `hop(number, content)` as it is signed."""
    terms = _field(2, _number(2, number)) + _field(2, _field(5, content))
    fact = _field(1, _number(1, _OWN_SYMBOL) + terms)
    return _field(1, b"hop") + _number(3, _DATALOG) + _field(4, fact)


def content_of(payload: bytes, number: int) -> bytes | None:
    """Return the content of a block that holds exactly one fact in one encoding; None for any other block."""
    try:
        (_, fact) = _fields(payload)[-1]
        ((_, predicate),) = _fields(fact)
        (_, term) = _fields(predicate)[-1]
        ((_, content),) = _fields(term)
    except (ValueError, IndexError):
        return None
    return content if payload_of(number, content) == payload else None


# ── Protocol Buffers, as little as is needed ──────────────────────────────────────────────────────────────────────────


def _key(key: bytes) -> bytes:
    return _number(1, _ED25519) + _field(2, key)


def _versioned(payload: bytes) -> bytes:
    return b"\0VERSION\0" + _VERSION.to_bytes(4, "little") + b"\0PAYLOAD\0" + payload


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(raw: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of a message, numbers as eight bytes; raise a ValueError or IndexError if it is invalid."""
    return list(_each(raw))


def _each(raw: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _parse_varint(raw, at)
        value, at = _parse_varint(raw, at)
        if tag & 7 == 2:
            if at + value > len(raw):
                raise ValueError("it ends in the middle of a field")
            yield tag >> 3, raw[at : at + value]
            at += value
        elif tag & 7 == 0:
            yield tag >> 3, value.to_bytes(8, "little")
        else:
            raise ValueError("it holds a field of an unexpected type")


def _parse_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = raw[at] & 0x7F
    shift = 7
    while raw[at] > 0x7F:
        at += 1
        if shift >= 63:
            raise ValueError("it holds a number that is too large")
        value |= (raw[at] & 0x7F) << shift
        shift += 7
    return value, at + 1


try:
    from biscuit_auth import (
        AuthorizerBuilder,
        Biscuit,
        BiscuitBlockError,
        BiscuitBuilder,
        BiscuitValidationError,
        BlockBuilder,
        Fact,
        PrivateKey,
        PublicKey,
        Rule,
        UnverifiedBiscuit,
    )
except ImportError as error:
    raise ImportError(
        f"credentials between hubs need biscuit-python; install it with {install_command('credentials')}",
        name=error.name,
    ) from error

# Proxies accept headers of 8 kB or more; ten hops with a few names each need half of that.
MAX_CHARS = 16_384
# Depth is at most 5 unless a team says otherwise, and every block is a level.
MAX_HOPS = 16
# As in a remit.
MAX_AGENTS = 100

# The source of a block is compared with this and never parsed: its content is read by a query. So no foreign rule is
# ever evaluated here, no term is read that makes the library panic, and each number occurs once.
_SHAPES = [re.compile(rf"hop\({number}, hex:[0-9a-f]+\);\n") for number in range(MAX_HOPS)]
_FACT = "hop({number}, {content})"
_QUERY = "found($number, $content) <- hop($number, $content)"
# The library's own limit of 1 ms rejects valid tokens on a busy machine. The query takes microseconds.
_MAX_TIME = timedelta(seconds=10)
_READY = 1_024


# ── making ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mint(pair: Pair, remit: Remit, *, to: str, request_id: str, now_ms: int) -> str | Fault:
    """Return the credential for a request that starts at this hub, or came to it without one.

    *remit* is that of the request, *to* the key of the hub that is called. A credential that does not fit into a header
    is a fault.
    """
    if remit.depth < len(remit.chain):
        return _invalid("the depth of the request is less than the length of its chain")
    builder = BiscuitBuilder("")
    hop = _hop(remit, to=to, request_id=request_id, until_ms=now_ms + remit.time_ms, chain=remit.chain)
    builder.add_fact(_fact(0, hop))
    builder.set_root_key_id(_key_id(pair.public))
    return _fitting(builder.build(_private(pair)))


def attenuate(held: CredentialChain, pair: Pair, remit: Remit, *, to: str, request_id: str, now_ms: int) -> str | Fault:
    """Return the credential for a request that follows from one that came with *held*: it never allows more than that.

    *pair* is the key that *held* names, which may be an older one of this hub.
    """
    number, last, above = len(held.hops), held.hops[-1], held.agents
    if pair.public != held.to:
        return _invalid("it was issued to another hub, or to another key of this hub")
    if number == MAX_HOPS:
        return fault(Code.MAX_DEPTH_EXCEEDED, f"a credential can be passed on at most {MAX_HOPS} times")
    if any(hop.user != remit.user for hop in held.hops):
        why = "User ID mismatch - security violation: the credential is another user's"
        return fault(Code.USER_MISMATCH, why, suggestion="Ask for the user of the credential.")
    if not all(hop.may_delegate for hop in held.hops):
        return fault(Code.NESTED_CALLS_FORBIDDEN, "the credential does not allow this hub to ask another hub")
    added = remit.chain[len(above) :]
    if remit.chain[: len(above)] != above or not added or remit.depth < last.depth + len(added):
        return _invalid("the request does not follow from the one that the credential came with")
    hop = _hop(remit, to=to, request_id=request_id, until_ms=now_ms + remit.time_ms, chain=added)
    block = BlockBuilder("")
    block.add_fact(_fact(number, _narrowed(hop, last)))
    biscuit = cast("Biscuit", held.biscuit) or Biscuit.from_base64(held.token, _public(held.signers[0]))
    signed = biscuit.third_party_request().create_block(_private(pair), block)
    return _fitting(biscuit.append_third_party(_public(pair.public), signed))


def _hop(remit: Remit, *, to: str, request_id: str, until_ms: int, chain: tuple[str, ...]) -> Hop:
    return Hop(
        to=raw(to),
        request=digest_of(request_id),
        user=remit.user,
        until_ms=until_ms,
        depth=remit.depth,
        max_depth=remit.max_depth,
        tokens=remit.tokens,
        may_delegate=remit.may_delegate,
        chain=chain,
        tools=remit.tools,
        targets=remit.targets,
        cost=remit.cost,
    )


def _narrowed(hop: Hop, above: Hop) -> Hop:
    # A request is already narrower than the one that it follows from; this guards against callers with one that is not.
    return msgspec.structs.replace(
        hop,
        until_ms=min(hop.until_ms, above.until_ms),
        max_depth=min(hop.max_depth, above.max_depth),
        tokens=min(hop.tokens, above.tokens),
        tools=meet_tools(hop.tools, above.tools),
        targets=meet(hop.targets, above.targets),
        cost=lower(hop.cost, above.cost),
    )


# Equal credentials are equal bytes: a set has no order of its own.
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def _fact(number: int, hop: Hop) -> Fact:
    return Fact(_FACT, {"number": number, "content": _encoder.encode(hop)})


def _fitting(biscuit: Biscuit) -> str | Fault:
    token = biscuit.to_base64()
    if len(token) > MAX_CHARS:
        return fault(
            Code.TOO_LARGE,
            f"the credential would have {len(token)} characters; a header takes {MAX_CHARS}",
            suggestion="Name fewer tools, conditions and targets for this request.",
        )
    return token


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_chain(token: str, roots: Collection[str]) -> CredentialChain | Fault:
    """Return the content of a credential that one of *roots* started.

    Each block must be signed by the hub that the previous one names, limit the request at least as much as the
    previous one, and be deeper.
    """
    if len(token) > MAX_CHARS:
        return _invalid(f"it has more than {MAX_CHARS} characters")
    rooted = _rooted(token, roots)
    if isinstance(rooted, Fault):
        return rooted
    root, biscuit = rooted
    count = biscuit.block_count()
    if count > MAX_HOPS:
        return _invalid(f"it was passed on more than {MAX_HOPS} times")
    if not all(_has_shape(biscuit, number) for number in range(count)):
        return _invalid("it holds content that no hub writes")
    keys = [biscuit.block_external_key(number) for number in range(1, count)]
    if None in keys:
        return _invalid("it holds a block that no hub signed")
    signers = (root, *map(str, keys))
    try:
        hops = tuple(_contents(biscuit, signers))
    except ValueError:
        return _invalid("it holds content that no hub writes")
    ids = tuple(biscuit.revocation_ids)
    return _broken(hops, signers) or CredentialChain(hops=hops, signers=signers, ids=ids, token=token, biscuit=biscuit)


def _has_shape(biscuit: Biscuit, number: int) -> bool:
    try:
        return _SHAPES[number].fullmatch(biscuit.block_source(number)) is not None
    except BiscuitBlockError:  # the library checks the signatures of blocks, and reads their content only here
        return False


class CredentialPrefix(Struct, frozen=True, kw_only=True):
    """All but the last block of a credential that was read: their content, and the place of the last block."""

    hops: tuple[Hop, ...]
    signers: tuple[str, ...]
    ids: tuple[str, ...]
    end: ChainEnd


def prefix_of(chain: CredentialChain, parts: ParsedCredential) -> CredentialPrefix | None:
    """Return all but the last block of a credential that was read; None if there is none, or of another encoding."""
    count = len(chain.hops) - 1
    end = parts.end(count - 1) if 0 < count < len(parts.starts) else None
    # The id of a block is its signature: this ensures that the parsed credential is the one that was read.
    if end is None or end.signature.hex() != chain.ids[count - 1]:
        return None
    return CredentialPrefix(hops=chain.hops[:-1], signers=chain.signers[:-1], ids=chain.ids[:-1], end=end)


def read_on(token: str, parts: ParsedCredential, prefix: CredentialPrefix) -> CredentialChain | None:
    """Return the content of a credential whose last block follows *prefix*; None unless `read_chain` would accept it.

    On None the caller uses `read_chain`, which says what is wrong.
    """
    number = len(prefix.hops)
    block = parts.block(number)
    if block is None or len(token) > MAX_CHARS:
        return None
    content = content_of(block.payload, number)
    if content is None or not block.follows(prefix.end) or not parts.is_held(block.next_key):
        return None
    try:
        hops = (*prefix.hops, msgspec.msgpack.decode(content, type=Hop))
    except ValueError:
        return None
    signers = (*prefix.signers, block.signer)
    if _broken(hops, signers) is not None:
        return None
    return CredentialChain(hops=hops, signers=signers, ids=(*prefix.ids, block.signature.hex()), token=token)


def ids_of(token: str) -> tuple[str, ...]:
    """Return the ids by which a credential can be revoked, its own last; raise a ValueError if it is invalid."""
    try:
        return tuple(UnverifiedBiscuit.from_base64(token[: MAX_CHARS + 1]).revocation_ids)
    except BiscuitValidationError as error:
        raise ValueError("not a credential") from error


def _rooted(token: str, roots: Collection[str]) -> tuple[str, Biscuit] | Fault:
    """Return who started a credential, and the credential once all its signatures are checked."""
    trusted: list[str] | None = None

    def root_of(number: int | None) -> PublicKey:
        nonlocal trusted
        trusted = [root for root in roots if _key_id(root) == number]
        return _public(trusted[0])

    try:
        biscuit = Biscuit.from_base64(token, cast("Any", root_of))
        return cast("list[str]", trusted)[0], biscuit
    except (BiscuitValidationError, UnicodeError):
        if trusted is None:
            return _invalid("it cannot be read")
    # The number is a hint of 32 bits, which somebody may have made to match two keys.
    for root in trusted[1:]:
        with suppress(BiscuitValidationError):
            return root, Biscuit.from_base64(token, _public(root))
    return _invalid("its signatures are invalid" if trusted else "it was issued by a hub that is not trusted here")


def _broken(hops: tuple[Hop, ...], signers: tuple[str, ...]) -> Fault | None:
    """Return why blocks do not follow from each other; None if they do."""
    if hops[0].depth < len(hops[0].chain):
        return _invalid("it states a depth that its chain contradicts")
    for number, (above, hop) in enumerate(pairwise(hops), start=1):
        if signers[number] != written(above.to):
            return _invalid(f"block {number} is not signed by the hub that the previous block names")
        if hop.user != above.user:
            why = "User ID mismatch - security violation: the credential names two users"
            return fault(
                Code.USER_MISMATCH, why, suggestion="Get a new credential from the hub that passed the request on."
            )
        if not above.may_delegate:
            return fault(
                Code.NESTED_CALLS_FORBIDDEN, f"block {number - 1} of the credential forbids asking another hub"
            )
        if not hop.chain or hop.depth < above.depth + len(hop.chain):
            return _invalid(f"block {number} is not deeper than the previous block")
    if sum(len(hop.chain) for hop in hops) > MAX_AGENTS:
        return _invalid(f"its chain is longer than {MAX_AGENTS} agents")
    return None


def _contents(biscuit: Biscuit, signers: tuple[str, ...]) -> Iterator[Hop]:
    builder = AuthorizerBuilder("")
    limits = cast("Any", builder).limits()  # the library's annotations omit these two
    limits.max_time = _MAX_TIME
    cast("Any", builder).set_limits(limits)
    authorizer = builder.build(biscuit)
    for number, signer in enumerate(signers):
        # A hub may occur in a chain twice; the query then returns all its facts.
        facts = authorizer.query(_query(signer if number else None))
        hops: dict[int, Any] = {fact.terms[0]: fact.terms[1] for fact in facts}
        yield msgspec.msgpack.decode(hops[number], type=Hop)


@lru_cache(_READY)
def _query(signer: str | None) -> Rule:
    if signer is None:
        return Rule(_QUERY)
    return Rule(f"{_QUERY} trusting {{signer}}", {}, {"signer": _public(signer)})


@lru_cache(_READY)
def _public(public: str) -> PublicKey:
    return PublicKey(public)


def _private(pair: Pair) -> PrivateKey:
    return PrivateKey(f"ed25519-private/{pair.seed.hex()}")


def _key_id(public: str) -> int:
    """Return the number by which a credential names the hub that started it: a hint, not a proof."""
    return int.from_bytes(raw(public)[:4], "big")


def _invalid(why: str) -> Fault:
    return fault(Code.CREDENTIAL_INVALID, f"invalid credential: {why}")
