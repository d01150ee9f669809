"""What a credential says, once its signatures are checked: who passed a request on to whom, within which bounds."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from remit.policy.reception import Grant
from remit.protocol.remit import Count, Name, Names
from remit.transports.credentials.keys import written
from remit.transports.credentials.proof import Digest


class Hop(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What a block says: to whom the sender passes a request on, and within which bounds."""

    to: Digest
    """The key of the hub that is asked, and that alone may add the next block."""
    request: Digest
    user: Name
    until_ms: Count
    """The one clock reading that travels."""
    depth: Count
    """Of the agent that is asked, counted from the user's."""
    max_depth: Count
    tokens: Count
    may_delegate: bool
    chain: Annotated[tuple[Name, ...], Meta(max_length=100)]
    """The agents that were added to the chain since the hop before, as `agent@hub`."""
    tools: Names | None
    targets: Names | None


class CredentialChain(Struct, frozen=True, kw_only=True):
    """A credential whose signatures hold: what its blocks say, who signed each, and by which id it can be revoked.

    Whether it is good for a given request is another question, which `verify` answers.
    """

    hops: tuple[Hop, ...]
    signers: tuple[str, ...]
    ids: tuple[str, ...]
    token: str
    """The credential itself, as it was sent."""
    biscuit: Any = None
    """The same as the library has it, to which a block can be added; None if it was read without that."""

    @property
    def to(self) -> str:
        """The key of the hub for which it is meant."""
        return written(self.hops[-1].to)

    @property
    def until_ms(self) -> int:
        """When it ends."""
        return min(hop.until_ms for hop in self.hops)

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents between the user and whoever is asked."""
        return tuple(agent for hop in self.hops for agent in hop.chain)

    def __repr__(self) -> str:
        return f"CredentialChain({', '.join((*self.signers, self.to))})"


class Verified(Struct, frozen=True, kw_only=True):
    """A credential that is good for its request, and what it grants."""

    grant: Grant
    chain: CredentialChain
