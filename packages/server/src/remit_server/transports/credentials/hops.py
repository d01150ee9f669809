"""The content of a credential with valid signatures: who passed a request on to whom, within which limits."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from remit.protocol.remit import Count, Grant, Name, Names
from remit_server.transports.credentials.keys import written
from remit_server.transports.credentials.proof import Digest


class Hop(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The content of a block: to whom the sender passes a request on, and within which limits."""

    to: Digest
    """The key of the hub that is called; only that hub may add the next block."""
    request: Digest
    user: Name
    until_ms: Count
    """The one clock reading that travels."""
    depth: Count
    """The depth of the called agent, counted from the user's."""
    max_depth: Count
    tokens: Count
    may_delegate: bool
    chain: Annotated[tuple[Name, ...], Meta(max_length=100)]
    """The agents added to the chain since the previous hop, as `agent@hub`."""
    tools: Names | None
    targets: Names | None


class CredentialChain(Struct, frozen=True, kw_only=True):
    """A credential with valid signatures: the content of its blocks, who signed each, and its revocation ids.

    Whether it is valid for a given request is decided by `verify`.
    """

    hops: tuple[Hop, ...]
    signers: tuple[str, ...]
    ids: tuple[str, ...]
    token: str
    """The credential as it was sent."""
    biscuit: Any = None
    """The library's object, to which a block can be added; None if it was read without the library."""

    @property
    def to(self) -> str:
        """The key of the hub that it was issued to."""
        return written(self.hops[-1].to)

    @property
    def until_ms(self) -> int:
        """When it expires."""
        return min(hop.until_ms for hop in self.hops)

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents between the user and the called agent."""
        return tuple(agent for hop in self.hops for agent in hop.chain)

    def __repr__(self) -> str:
        return f"CredentialChain({', '.join((*self.signers, self.to))})"


class Verified(Struct, frozen=True, kw_only=True):
    """A credential that is valid for its request, and what it grants."""

    grant: Grant
    chain: CredentialChain
