"""Authentication of incoming requests: who sends a request, and what it may ask for."""

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from heapq import heappop, heappush
from hmac import compare_digest
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Permission, Sender, not_for
from remit.ports import USED, SingleUseProof
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.remit import Grant, Name, Names, lower
from remit.protocol.submission import Submission
from remit_server.transports.credentials.keys import HubKey, Pair
from remit_server.transports.credentials.proof import (
    BEARER,
    CONTENT_DIGEST,
    CREDENTIAL,
    EMPTY,
    PROOF,
    WINDOW_MS,
    CredentialChain,
    Proofs,
    Verified,
    addressee_of,
    digest_in,
    once_of,
)

# ── bearer tokens: secrets that identify a sender ─────────────────────────────────────────────────────────────────────

# Shorter tokens can be guessed; `openssl rand -hex 32` makes 64 characters.
LEAST_CHARS = 20
MAX_BEARER_CHARS = 8_192

# RFC 6750: what may follow `Bearer`.
_BEARER_TOKEN = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


def bearer_of(header: str) -> str | None:
    """Return the token in an `Authorization` header; None if it holds none."""
    match = _BEARER_TOKEN.fullmatch(header) if len(header) <= MAX_BEARER_CHARS else None
    return None if match is None else match[1]


def unfit(token: str) -> str | None:
    """Return why a text is not a valid token; None if it is."""
    if len(token) < LEAST_CHARS:
        return (
            f"it has fewer than {LEAST_CHARS} characters and could be guessed; `openssl rand -hex 32` makes a good one"
        )
    if bearer_of(f"Bearer {token}") != token:
        return "it holds characters that are not allowed in a header; `openssl rand -hex 32` makes a good one"
    return None


class Bearers:
    """The tokens of all clients and peers."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Take the tokens by the name of their owner."""
        self._digests = {name: sha256(token.encode()).digest() for name, token in tokens.items()}

    def who(self, token: str) -> str | None:
        """Return the owner of a token, in a time that reveals nothing about any token."""
        given = sha256(token.encode("utf-8", "surrogatepass")).digest()
        matched = None
        for name, digest in self._digests.items():
            if compare_digest(digest, given):
                matched = name
        return matched

    def digest(self, name: str) -> bytes | None:
        """Return the digest of an owner's token; None if it has none."""
        return self._digests.get(name)


# ── what credentials allow ────────────────────────────────────────────────────────────────────────────────────────────

Count = Callable[[str, int, int], Awaitable[int]]
"""`incr` of a store: add to the counter of a key, within a window of that many milliseconds, and return its total."""

# Credentials live for minutes: this many at once, of 200 bytes each, are an attack.
MAX_COUNTERS = 100_000


class Counter(Struct, frozen=True):
    """A counter, and when it ends.

    Counted from 1970, a window that is as long as the expiry time ends when the credential does, and none begins
    before.
    """

    key: str
    until_ms: int


class Share(Struct, frozen=True, kw_only=True):
    """What one request was given, to be settled when it has ended."""

    tokens: int
    cost: int | None = None
    """The money; None: nobody sets a limit."""
    counters: tuple[Counter, ...] = ()
    cost_counters: tuple[Counter, ...] = ()
    once: Counter | None = None


class Spending:
    """Counts what is spent under each block of a credential that others can add blocks to.

    *count* is the `incr` of the hub's store, if several processes share one; else this process counts alone.
    """

    def __init__(self, count: Count | None = None, *, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._memory = _Counters(self._wall_ms)
        self._incr = count or self._memory.incr

    async def reserve(
        self, verified: Verified, tokens: int, sender: str = "", *, cost: int | None = None
    ) -> Share | Fault:
        """Reserve as much of *tokens* and of *cost* as the credential has left; none left is a fault.

        A repeated request of the same *sender* is counted once: it runs once.
        """
        wanted, money = min(tokens, verified.grant.tokens), lower(cost, verified.grant.cost)
        # The last block is for one request, and limits that alone; those before may have been passed on many times.
        hops, ids = verified.chain.hops[:-1], verified.chain.ids[:-1]
        if not hops:
            return Share(tokens=wanted, cost=money)
        ends = [min(hop.until_ms for hop in hops[: number + 1]) + WINDOW_MS for number in range(len(hops))]
        counters = tuple(Counter(f"credential:{id}", end + 1) for id, end in zip(ids, ends, strict=True))
        limited = [(hop.cost, place) for place, hop in enumerate(hops) if hop.cost is not None]
        cost_counters = tuple(Counter(f"credential-cost:{ids[place]}", ends[place] + 1) for _, place in limited)
        request = verified.chain.hops[-1].request.hex()
        once = Counter(f"{counters[-1].key}:{request}:{sender}", counters[-1].until_ms)
        if not self._memory.has_room(len(counters) + len(cost_counters) + 1):
            return fault(Code.OVERLOADED, "too many credentials in use at once", retry_after_ms=WINDOW_MS)
        if await self._add(once, 1) > 1:
            return Share(tokens=wanted, cost=money)
        share = Share(
            tokens=await self._take(wanted, [hop.tokens for hop in hops], counters),
            cost=money and await self._take(money, [most for most, _ in limited], cost_counters),
            counters=counters,
            cost_counters=cost_counters,
            once=once,
        )
        for what, left, wanted_amount in (("tokens", share.tokens, tokens), ("money", share.cost, money)):
            if left == 0 != wanted_amount:
                await self.settle(share, 0)
                return fault(Code.TOKEN_BUDGET_EXCEEDED, f"all {what} that the credential grants are spent or reserved")
        return share

    async def settle(self, share: Share, used: int, cost: int = 0) -> None:
        """Give back what a request was given and has not used, of its tokens and its money."""
        for counters, granted, spent in ((share.counters, share.tokens, used), (share.cost_counters, share.cost, cost)):
            unused = max(0, (granted or 0) - spent)
            for counter in counters if unused else ():
                await self._add(counter, -unused)
        if used == 0 and share.once is not None:
            # It may not even have started, and then be sent again.
            await self._add(share.once, -1)

    async def _take(self, wanted: int, limits: list[int], counters: tuple[Counter, ...]) -> int:
        """Return how many of *wanted* fit under each limit, and count them."""
        taken: list[int] = []
        for limit, counter in zip(limits, counters, strict=True):
            over = await self._add(counter, wanted) - limit
            taken.append(wanted)
            wanted -= min(max(over, 0), wanted)
        for amount, counter in zip(taken, counters, strict=True):
            if amount > wanted:
                await self._add(counter, wanted - amount)
        return wanted

    async def _add(self, counter: Counter, amount: int) -> int:
        # After its end a counter may be gone; what is given back then has no use.
        return await self._incr(counter.key, amount, counter.until_ms) if self._wall_ms() < counter.until_ms else 0


class _Counters:
    """Counters in memory, each dropped when its window ends and not before."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._totals: dict[str, int] = {}
        self._ends: list[tuple[int, str]] = []

    def has_room(self, more: int) -> bool:
        """Return whether this many more can be counted."""
        now_ms = self._wall_ms()
        while self._ends and self._ends[0][0] <= now_ms:
            del self._totals[heappop(self._ends)[1]]
        return len(self._totals) + more <= MAX_COUNTERS

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        if key not in self._totals:
            heappush(self._ends, (window_ms, key))
        self._totals[key] = total = self._totals.get(key, 0) + n
        return total


T = TypeVar("T")

log = logging.getLogger("remit")

_CREDENTIAL, _PROOF, _BEARER, _DIGEST = (each.lower() for each in (CREDENTIAL, PROOF, BEARER, CONTENT_DIGEST))
# The run starts at once after its credential is read: few are ever in between.
_UNDER_WAY = 1_024
# Above this number of runs with credentials, expired ones are removed: nobody reported their end.
_MANY = 1_024


class UserTokens(Protocol):
    """An identity provider, whose tokens say who a user is."""

    async def user_of(self, token: str, now_s: float) -> str | Fault:
        """Return the user that a token was issued for, or why it is invalid."""
        ...


class KnownSender(Struct, frozen=True, kw_only=True):
    """A hub or client that may send requests, and what it may ask for."""

    name: Name
    is_hub: bool = False
    keys: tuple[str, ...] = ()
    """The public keys of a hub, oldest first."""
    token: str | None = None
    issuer: UserTokens | None = None
    users: Names | None = None
    """The users that it may act for; None: any user."""
    agents: Names | None = None
    """The agents that it may ask; None: all exposed agents."""
    permissions: frozenset[Permission] = frozenset()
    may_approve: bool = False
    """Whether answers of its users to questions about their own runs count as a person's answers."""

    def __repr__(self) -> str:
        return f"KnownSender({self.name!r})"  # a token is shown in no traceback


class RunCredentials:
    """The credentials of running runs, each with its share of the tokens."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._held: dict[str, tuple[CredentialChain, Share]] = {}

    def hold(self, run: str, chain: CredentialChain, share: Share) -> None:
        """Keep the credential of a run's request until it is released or has expired."""
        if len(self._held) >= _MANY:
            over_ms = self._wall_ms() - WINDOW_MS
            for each in [run for run, (old, _) in self._held.items() if old.until_ms < over_ms]:
                del self._held[each]
        self._held[run] = (chain, share)

    def let_go(self, run: str) -> Share | None:
        """Forget the credential of a run that has ended, and return its share."""
        return self._held.pop(run, (None, None))[1]

    def of(self, run: str) -> CredentialChain | None:
        """Return the credential of a run; None if its request came without one."""
        return self._held.get(run, (None, None))[0]


class Authenticator:
    """Authenticates senders: hubs by key and credential, hubs and clients by token, users by their identity provider.

    *key* returns this hub's current identity, *trusted* further keys of peers by name, *revoked* the revoked ids; all
    three are called each time, so that a change of their files counts at once. *held* gets what is needed to pass
    requests on (`CredentialHeaders`), *spending* counts what is spent under one credential. *count* is the `incr` of
    the hub's store, which ensures that a proof is accepted once, even after a restart and by several processes; without
    it, once in this process.
    """

    def __init__(
        self,
        known: Iterable[KnownSender],
        *,
        key: Callable[[], HubKey] | None = None,
        trusted: Callable[[], Mapping[str, Sequence[str]]] = dict,
        revoked: Callable[[], Container[str]] = frozenset,
        held: RunCredentials | None = None,
        spending: Spending | None = None,
        count: Count | None = None,
        wall_ms: Callable[[], int],
    ) -> None:
        known = tuple(known)
        self._bearers = Bearers({each.name: each.token for each in known if each.token is not None})
        self._known = {each.name: replace(each, token=None) for each in known}
        self._key = key
        self._trusted = trusted
        self._revoked = revoked
        self._wall_ms = wall_ms
        self._held = held or RunCredentials(self._wall_ms)
        self._spending = spending or Spending(wall_ms=self._wall_ms)
        self._count = count
        self._proofs = Proofs()
        self._verify: Callable[..., Verified | Fault] | None = None
        self._under_way: OrderedDict[tuple[str, str], Verified] = OrderedDict()

    # ── who ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def sender(
        self, headers: Mapping[str, str], method: str = "", path: str = "", *, submits: bool = False
    ) -> Sender:
        """Return the sender of a request by its *headers*, whose names are lower-case, or raise a `RemitError`.

        A proof must be for this *method* and *path*, and for the body that `Content-Digest` names; the reader of the
        body compares both. Unless the request *submits* what `once` returns, its proof is used up here.
        """
        if _PROOF in headers:
            prover = self._prover(headers, method, path)
            if not submits:
                await self._take(headers[_PROOF])
            return _sender(prover)
        if _CREDENTIAL in headers:
            raise _unknown(f"a credential was sent without the header {PROOF}", _PROVE)
        token = bearer_of(headers.get(_BEARER, ""))
        if token is None:
            raise _unknown("no token was sent")
        name = self._bearers.who(token)
        return await self._user(token) if name is None else _sender(self._known[name])

    def client(self, name: str) -> tuple[Sender, bytes] | None:
        """Return a client that has a token, and the digest of that token; None if there is none of that name."""
        known, token = self._known.get(name), self._bearers.digest(name)
        return None if known is None or known.is_hub or token is None else (_sender(known), token)

    async def _user(self, token: str) -> Sender:
        why = _unknown("unknown token").fault
        for each in self._known.values():
            if each.issuer is None or token.count(".") != 2:
                continue
            user = await each.issuer.user_of(token, self._wall_ms() / 1_000)
            if isinstance(user, str):
                if each.users is None or user in each.users:
                    return replace(_sender(each), users=frozenset({user}))
                user = not_for(_sender(each), user)
            # The provider that got furthest says why the token is invalid: that it has expired, rather than that it is
            # unknown.
            why = user if why.code is Code.UNAUTHENTICATED else why
        raise RemitError(why)

    def reply_pair(self, headers: Mapping[str, str]) -> Pair | None:
        """Return the key that signs the reply to a request: the one that its proof is for; None if it has no proof."""
        if self._key is None or _PROOF not in headers:
            return None
        return self._key().pair(addressee_of(headers[_PROOF]), self._wall_ms())

    def once(self, headers: Mapping[str, str]) -> SingleUseProof | None:
        """Return what the store must remember of a request that `sender` admitted; None: nothing."""
        return once_of(headers[_PROOF]) if _PROOF in headers and self._count is not None else None

    async def _take(self, proof: str) -> None:
        once = once_of(proof)
        if self._count is not None and await self._count(once.key, 1, once.until_ms) > 1:
            raise RemitError(USED)

    def _prover(self, headers: Mapping[str, str], method: str, path: str) -> KnownSender:
        if self._key is None:
            raise _unknown(
                "this hub has no key and cannot accept proofs",
                "Make a key there with `remit keys init`, or agree on a token.",
            )
        owners, now_ms = self._owners(), self._wall_ms()
        stated = self._proofs.take(
            headers[_PROOF],
            known=owners,
            me=self._me(),
            now_ms=now_ms,
            method=method,
            path=path,
            body=_or_raise(_body_digest(headers)),
            credential=headers.get(_CREDENTIAL, ""),
        )
        return owners[_or_raise(stated).signer]

    def _owners(self) -> dict[str, KnownSender]:
        """Return the owner of each key; only peers of the team file count."""
        trusted = self._trusted()
        return {
            key: each
            for name, each in self._known.items()
            if each.is_hub
            for key in (*each.keys, *trusted.get(name, ()))
        }

    def _me(self) -> list[str]:
        assert self._key is not None, "a hub without a key cannot accept proofs"
        return [stage.pair.public for stage in self._key().accepted(self._wall_ms())]

    # ── for what ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        """Return what the credential of a request allows; raise a `RemitError` if it is not valid for it.

        None: the sender used a token, and only local limits apply. A hub that proved its key needs a credential.
        """
        if _PROOF not in headers:
            return None
        stated = self._proofs.taken(headers[_PROOF])
        owners = self._owners()
        # The headers must be those of `sender`; a mix of two requests is refused.
        if stated is None or stated.signer not in owners or owners[stated.signer].name != sender.name:
            raise _unknown("its proof was rejected", _PROVE)
        token = headers.get(_CREDENTIAL, "")
        if not token:
            raise _without_credential(sender)
        if sent.id is None:
            # What a request spends is counted once, by its id alone.
            raise RemitError(
                fault(
                    Code.CREDENTIAL_INVALID,
                    "a request under a credential needs an id of its own",
                    suggestion="Send it with an `id`.",
                )
            )
        verified = self._verifier()(
            token,
            peer_key=stated.signer,
            me=self._me(),
            roots=owners,
            now_ms=self._wall_ms(),
            request_id=sent.id,
            revoked=self._revoked(),
            target=sent.target,
        )
        self._under_way[sender.name, sent.id] = accepted = _or_raise(verified)
        # This id in the log allows a revocation; each of several hubs that passed it on has one of its own.
        log.info("%s asks %s under credential %s", sender.name, sent.target, accepted.chain.ids[-1])
        while len(self._under_way) > _UNDER_WAY:
            self._under_way.popitem(last=False)
        return accepted.grant

    def _verifier(self) -> Callable[..., Verified | Fault]:
        if self._verify is None:
            try:
                from remit_server.transports.credentials.verify import Chains, verify
            except ImportError as error:
                raise RemitError(fault(Code.TEAM_INVALID, str(error))) from error
            self._verify = partial(verify, chains=Chains())
        return self._verify

    async def received(self, request: Request) -> Request:
        """Return a request limited to what is left of its credential; whatever follows from it is passed on under it.

        The request is the one that `receive` made from the grant. Raises a `RemitError` if nothing is left.
        """
        verified = self._under_way.pop((request.via or "", request.id), None)
        if verified is None:
            return request
        remit = request.remit
        share = _or_raise(await self._spending.reserve(verified, remit.tokens, request.sender, cost=remit.cost))
        self._held.hold(request.run, verified.chain, share)
        narrower = replace(
            remit,
            tokens=min(remit.tokens, share.tokens),
            context_tokens=min(remit.context_tokens, share.tokens),
            cost=share.cost,
        )
        return replace(request, remit=narrower)

    async def ended(self, run: str, used: int, cost: int) -> None:
        """Settle what a run has used of its credential's tokens and money; 0 if it never started."""
        if (share := self._held.let_go(run)) is not None:
            await self._spending.settle(share, used, cost)


def _body_digest(headers: Mapping[str, str]) -> bytes | Fault:
    """Return the digest of a request's body: the stated one, or that of an empty body."""
    if headers.get("content-length", "0").strip() in ("", "0") and "transfer-encoding" not in headers:
        return EMPTY
    stated = digest_in(headers.get(_DIGEST, ""))
    if stated is None:
        how = f"Send the digest of the body in the header {CONTENT_DIGEST}."
        return _unknown(f"a body was sent without its SHA-256 digest in {CONTENT_DIGEST}", how).fault
    return stated


def _sender(known: KnownSender) -> Sender:
    return Sender(
        name=known.name,
        is_hub=known.is_hub,
        users=known.users,
        targets=known.agents,
        permissions=known.permissions,
        may_approve=known.may_approve,
    )


_PROVE = f"Send a proof of the hub's key with each request, in the header {PROOF}."


def _unknown(why: str, suggestion: str | None = None) -> RemitError:
    return RemitError(fault(Code.UNAUTHENTICATED, f"unknown sender: {why}", suggestion=suggestion))


def _without_credential(sender: Sender) -> RemitError:
    return RemitError(
        fault(
            Code.CREDENTIAL_INVALID,
            f"{sender.name} proved its key but sent no credential with the request",
            suggestion="Install the extra `credentials` where the sending hub runs, or agree on a token.",
        )
    )


def _or_raise(outcome: T | Fault) -> T:
    if isinstance(outcome, Fault):
        raise RemitError(outcome)
    return outcome
