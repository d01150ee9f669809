"""The headers by which a hub authenticates its requests to another hub, and states their limits."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.remit import Name
from remit.runtime.ports import Credential, OutgoingRequest
from remit_server.transports.credentials.headers import BEARER, CONTENT_DIGEST, CREDENTIAL, PROOF, content_digest
from remit_server.transports.credentials.hops import CredentialChain
from remit_server.transports.credentials.incoming import RunCredentials
from remit_server.transports.credentials.keys import HubKey, Pair
from remit_server.transports.credentials.proof import prove


class Addressee(Struct, frozen=True, kw_only=True):
    """A hub that is called."""

    name: Name
    keys: tuple[str, ...] = ()
    """Its public keys, oldest first: the newest is named, and it accepts all of them."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"Addressee({self.name!r})"  # a token is shown in no traceback


class CredentialHeaders:
    """Makes the headers of outgoing requests. They never hold anything that a user or a client sent.

    *key* returns this hub's current identity, *trusted* further keys of a peer, *held* the credentials of running runs
    (`Authenticator`).
    """

    def __init__(
        self,
        *,
        key: Callable[[], HubKey] | None = None,
        trusted: Callable[[str], Sequence[str]] = lambda _: (),
        held: RunCredentials | None = None,
        wall_ms: Callable[[], int],
    ) -> None:
        self._key = key
        self._trusted = trusted
        self._wall_ms = wall_ms
        self._held = held or RunCredentials(self._wall_ms)

    def credential(self, peer: Addressee) -> Credential:
        """Return the function that makes the headers of each request to a peer."""
        return partial(self.headers, peer)

    async def headers(self, peer: Addressee, request: Request, sending: OutgoingRequest) -> dict[str, str]:
        """Return the headers of one request: credential and proof, else the shared token; or raise a `RemitError`."""
        keys = (*peer.keys, *self._trusted(peer.name))
        if self._key is None or not keys:
            return _bearer(peer)
        now_ms, held = self._wall_ms(), self._held.of(request.run)
        # The block is signed with the key that the previous one names: an older one during a rotation.
        pair = self._key().signing(now_ms) if held is None else self._key().pair(held.to, now_ms)
        if pair is None:
            why = "the request came with a credential for a key that was retired since"
            raise RemitError(fault(Code.CREDENTIAL_EXPIRED, why))
        token = _credential(held, pair, request, keys[-1], now_ms)
        if isinstance(token, Fault):
            raise RemitError(token)
        proof = prove(pair, sending, to=keys[-1], request_id=request.id, now_ms=now_ms, credential=token)
        found = {CREDENTIAL: token, PROOF: proof}
        return found | {CONTENT_DIGEST: content_digest(sending.body)} if sending.body else found


def _credential(held: CredentialChain | None, pair: Pair, request: Request, to: str, now_ms: int) -> str | Fault:
    try:
        from remit_server.transports.credentials.chain import attenuate, mint
    except ImportError as error:
        return fault(Code.TEAM_INVALID, str(error))
    if held is None:
        return mint(pair, request.remit, to=to, request_id=request.id, now_ms=now_ms)
    return attenuate(held, pair, request.remit, to=to, request_id=request.id, now_ms=now_ms)


def _bearer(peer: Addressee) -> dict[str, str]:
    if peer.token is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"this hub has no token or key to authenticate to {peer.name}",
                suggestion=f"Give `[peers.{peer.name}]` a `token`, or make a key (`remit keys init`) and trust theirs.",
            )
        )
    return {BEARER: f"Bearer {peer.token}"}
