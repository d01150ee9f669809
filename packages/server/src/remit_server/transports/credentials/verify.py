"""Whether a credential is valid for one request, sent by one hub to another, now; decided without any IO."""

from collections import OrderedDict
from collections.abc import Collection, Container
from functools import reduce
from hashlib import sha256
from typing import Any

from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Grant, lower, meet, meet_tools
from remit_server.transports.credentials.chain import (
    CredentialPrefix,
    ParsedCredential,
    apart,
    prefix_of,
    read_chain,
    read_on,
)
from remit_server.transports.credentials.proof import WINDOW_MS, CredentialChain, Hop, Verified, digest_of

# A credential is for one request, which may be repeated, followed and cancelled; 5 kB each.
KEPT = 256


class Chains:
    """The last read credentials: signatures are checked once, everything else each time.

    A hub that passes on several requests of one run adds a block for each to the credential that it received. So for
    the second of them only that block is checked.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._chains: OrderedDict[bytes, CredentialChain] = OrderedDict()
        self._prefixes: OrderedDict[bytes, CredentialPrefix] = OrderedDict()

    def read(self, token: str, roots: Collection[str]) -> CredentialChain | Fault:
        """Return the content of a credential, like `chain.read`."""
        key = sha256(token.encode("utf-8", "surrogatepass")).digest()
        if (cached := self._chains.get(key)) is not None and cached.signers[0] in roots:
            self._chains.move_to_end(key)
            return cached
        chain = self._read_on(token, roots) or read_chain(token, roots)
        if isinstance(chain, CredentialChain):
            self._chains[key] = chain
            _bound(self._chains, self._kept)
            self._keep_prefix(chain)
        return chain

    def _read_on(self, token: str, roots: Collection[str]) -> CredentialChain | None:
        """Read the last block alone, if the others were read before."""
        # A hub that is only called directly keeps none, and parses none.
        parts = apart(token) if self._prefixes else None
        prefix = None if parts is None else self._prefixes.get(_above(parts))
        # A hub that was trusted when the prefix was read may not be trusted any more.
        if parts is None or prefix is None or prefix.signers[0] not in roots:
            return None
        self._prefixes.move_to_end(_above(parts))
        return read_on(token, parts, prefix)

    def _keep_prefix(self, chain: CredentialChain) -> None:
        if chain.biscuit is None or len(chain.hops) == 1 or not self._kept:
            return  # it is kept already, or there is none
        parts = apart(chain.token)
        if parts is not None and (prefix := prefix_of(chain, parts)) is not None:
            self._prefixes[_above(parts)] = prefix
            _bound(self._prefixes, self._kept)


def _above(parts: ParsedCredential) -> bytes:
    return sha256(parts.above).digest()


def verify(
    token: str,
    *,
    peer_key: str,
    me: Container[str],
    roots: Collection[str],
    now_ms: int,
    request_id: str,
    revoked: Container[str] = (),
    target: str | None = None,
    chains: Chains | None = None,
) -> Verified | Fault:
    """Return what a credential grants for a request, or why it grants nothing.

    *peer_key* is the key that the sender proved (`Proofs.check`), *me* are the keys of this hub, *roots* those of the
    hubs that may start a credential. *target*, if given, must be an agent that all hubs before the sender allow. The
    grant is the narrowest of all blocks.
    """
    chain = (chains or Chains(0)).read(token, roots)
    if isinstance(chain, Fault):
        return chain
    if chain.signers[-1] != peer_key:
        return _invalid("it was issued by another hub than the sender")
    if chain.to not in me:
        return _invalid("it was issued to another hub")
    if chain.hops[-1].request != digest_of(request_id):
        return _invalid("it was issued for another request")
    if any(each in revoked for each in chain.ids):
        return _invalid("it was revoked")
    # The clock that wrote it may be ahead or behind. The request also states the time left, without a clock.
    time_ms = chain.until_ms + WINDOW_MS - now_ms
    if time_ms <= 0:
        return fault(
            Code.CREDENTIAL_EXPIRED,
            f"by the clock of this hub the credential expired {(WINDOW_MS - time_ms) // 1_000} seconds ago; "
            f"clocks may differ by {WINDOW_MS // 1_000} seconds",
        )
    above = _targets(chain.hops[:-1])
    if target is not None and above is not None and target not in above:
        return fault(
            Code.PERMISSION_DENIED,
            f"the credential does not allow asking `{target}`",
            suggestion="Ask an agent that the credential names, or get one that names this agent.",
        )
    return Verified(grant=_grant(chain, time_ms), chain=chain)


def _bound(kept: OrderedDict[bytes, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)


def _grant(chain: CredentialChain, time_ms: int) -> Grant:
    hops = chain.hops
    return Grant(
        user=hops[-1].user,
        depth=hops[-1].depth,
        chain=chain.agents,
        tokens=min(hop.tokens for hop in hops),
        time_ms=time_ms,
        max_depth=min(hop.max_depth for hop in hops),
        targets=_targets(hops),
        tools=reduce(meet_tools, (hop.tools for hop in hops)),
        cost=reduce(lower, (hop.cost for hop in hops)),
        may_delegate=hops[-1].may_delegate,
    )


def _targets(hops: tuple[Hop, ...]) -> frozenset[str] | None:
    return reduce(meet, (hop.targets for hop in hops), None)


def _invalid(why: str) -> Fault:
    return fault(Code.CREDENTIAL_INVALID, f"invalid credential: {why}")
