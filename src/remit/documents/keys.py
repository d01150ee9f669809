"""The keys of hubs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs


class OwnKey(Struct, frozen=True, kw_only=True):
    """A key of this hub."""

    public: Annotated[str, Meta(description="The public key, as peers enter it.")]
    fingerprint: Annotated[str, Meta(description="Fingerprint for two people to compare.")]
    state: Annotated[
        Literal["signs", "next", "old"],
        Meta(description="`signs`: in use; `next`: will sign next; `old`: still accepted."),
    ]
    signs_from_ms: AtMs
    accepted_until_ms: Annotated[int | None, Meta(description="When it stops being accepted; null: no end set.")] = None


class PeerKey(Struct, frozen=True, kw_only=True):
    """A key of another hub."""

    peer: Annotated[str, Meta(description="The peer that owns the key.")]
    public: Annotated[str, Meta(description="The public key.")]
    fingerprint: Annotated[str, Meta(description="Fingerprint for two people to compare.")]
    file: Annotated[str, Meta(description="The file that contains it.")]
    counts: Annotated[
        bool, Meta(description="Whether the key is in use: the team file must have a peer with this name.")
    ]


class KeysShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.keys/1"):
    """The current keys of this hub and its peers. Printed by all `remit keys` commands with `--json`."""

    file: Annotated[str, Meta(description="The file with this hub's key.")]
    keys: Annotated[tuple[OwnKey, ...], Meta(description="This hub's keys, oldest first; empty if it has none.")]
    peers: Annotated[tuple[PeerKey, ...], Meta(description="The keys of other hubs.")]
    revoked: Annotated[int, Meta(description="Number of revoked credentials.")]
