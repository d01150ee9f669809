"""The keys of hubs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs


class OwnKey(Struct, frozen=True, kw_only=True):
    """A key of this hub."""

    public: Annotated[str, Meta(description="The key as others write it down.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare it.")]
    state: Annotated[
        Literal["signs", "next", "old"],
        Meta(description="It `signs`, will do so `next`, or is `old` and still accepted."),
    ]
    signs_from_ms: AtMs
    accepted_until_ms: Annotated[int | None, Meta(description="When it ends; null: not yet decided.")] = None


class PeerKey(Struct, frozen=True, kw_only=True):
    """A key of another hub."""

    peer: Annotated[str, Meta(description="Whose it is.")]
    public: Annotated[str, Meta(description="The key.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare it.")]
    file: Annotated[str, Meta(description="Where it stands.")]
    counts: Annotated[bool, Meta(description="Whether the team file has a peer of that name; without, it is no use.")]


class KeysShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.keys/1"):
    """The keys of this hub and its peers, as they are now. Printed by the commands below `remit keys` with `--json`."""

    file: Annotated[str, Meta(description="Where this hub's own key is.")]
    keys: Annotated[tuple[OwnKey, ...], Meta(description="This hub's keys, oldest first; empty if it has none.")]
    peers: Annotated[tuple[PeerKey, ...], Meta(description="The keys of other hubs.")]
    revoked: Annotated[int, Meta(description="How many credentials are revoked.")]
