"""Who is let in, with what it may ask for; and what a hub sends along, which is nothing that anybody else gave it."""

import hmac
import json
import re
import subprocess
import sys
import textwrap
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt as jose
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey
from msgspec.structs import replace

import chains
from chains import NOW_MS, Way
from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive
from remit.ports import OutgoingRequest
from remit.protocol.envelope import VERSION, Request
from remit.protocol.errors import Code, Fault, RemitError
from remit.protocol.remit import Grant, Remit
from remit.protocol.submission import Submission
from remit_server.transports.credentials.incoming import (
    Authenticator,
    Bearers,
    KnownSender,
    RunCredentials,
    Share,
    bearer_of,
    unfit,
)
from remit_server.transports.credentials.jwt import (
    AGAIN_S,
    FRESH_S,
    LEEWAY_S,
    Issuer,
    KeysFile,
    KeysUrl,
    key_set,
)
from remit_server.transports.credentials.keys import HubKey
from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders
from remit_server.transports.credentials.proof import WINDOW_MS, prove
from remit_server.transports.credentials.trusted_files import WatchedFile
from waiting import PATIENCE_S

TOKEN = "a-token-that-is-long-enough"
OTHER = "another-token-of-that-length"
DAY_MS = 86_400_000
AT = ("POST", "/v1/delegations")
SENDING = OutgoingRequest(*AT)


class Wall:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class HubAt:
    """A hub with a key, which knows others by theirs."""

    def __init__(self, name: str, wall: Wall) -> None:
        self.name, self.wall = name, wall
        self.key = HubKey.create(NOW_MS)
        self.known: list[KnownSender] = []
        self.trusted: dict[str, tuple[str, ...]] = {}
        self.revoked = set[str]()
        self.held = RunCredentials(wall)
        self.papers = CredentialHeaders(
            key=lambda: self.key, trusted=lambda name: self.trusted.get(name, ()), held=self.held, wall_ms=wall
        )

    @property
    def public(self) -> str:
        return self.key.signing(self.wall.now_ms).public

    @cached_property
    def door(self) -> Authenticator:
        return Authenticator(
            self.known,
            key=lambda: self.key,
            trusted=lambda: self.trusted,
            revoked=lambda: self.revoked,
            held=self.held,
            wall_ms=self.wall,
        )

    def trusts(self, other: "HubAt", **bounds: Any) -> None:
        self.known.append(KnownSender(name=other.name, is_hub=True, keys=(other.public,), **bounds))

    async def send(self, request: Request, to: "HubAt", key: str | None = None) -> dict[str, str]:
        """Return the headers with which a request goes out."""
        made = await self.papers.credential(Addressee(name=to.name, keys=(key or to.public,)))(request, SENDING)
        return {name.lower(): value for name, value in made.items()}

    async def take(self, headers: Mapping[str, str], request: Request, **changes: Any) -> Request:
        """Return what this hub makes of a request, as a server does."""
        wanted: dict[str, Any] = {"id": request.id, "target": request.target, "remit": request.remit, **changes}
        sent = Submission(**wanted)
        sender = await self.door.sender(headers, *AT)
        grant = await self.door.grant(headers, sender, sent)
        return await self.door.received(self.receive(sent, sender, grant))

    def receive(self, sent: Submission, sender: Sender, grant: Grant | None) -> Request:
        received = receive(
            sent,
            sender,
            exposed=frozenset({"tax", "audit"}),
            run=f"run-of-{sent.id}-at-{self.name}",
            created_ms=NOW_MS,
            limits=Limits(),
            grant=grant,
        )
        if isinstance(received, Fault):
            raise RemitError(received)
        return received


def a_request(remit: Remit | None = None, **otherwise: Any) -> Request:
    fields: dict[str, Any] = {"id": "r-1", "origin": "user", "target": "tax", "run": "run-1", **otherwise}
    remit = remit or Remit(user="ann", depth=0, max_depth=5, time_ms=60_000, tokens=8_000)
    return Request(version=VERSION, remit=remit, **fields)


async def refused(trying: Awaitable[object]) -> Code:
    with pytest.raises(RemitError) as raised:
        await trying
    return raised.value.fault.code


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def hubs(wall: Wall) -> list[HubAt]:
    """Return three hubs, of which each trusts the ones before."""
    one, two, three = (HubAt(name, wall) for name in ("one", "two", "three"))
    two.trusts(one)
    three.trusts(one)
    three.trusts(two)
    return [one, two, three]


# ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_passes_over_three_hubs_and_each_knows_within_which_bounds(hubs: list[HubAt]) -> None:
    """K2: what travels with a request is bounded by whoever passed it on, on every machine."""
    one, two, three = hubs
    first = a_request()
    at_two = await two.take(await one.send(first, two), first)
    assert (at_two.via, at_two.remit.depth, at_two.remit.chain) == ("one", 0, ())
    inner = at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=500, tools=frozenset({"ledger"}))
    second = a_request(inner, id="r-2", run=at_two.run)
    headers = await two.send(second, three)
    at_three = await three.take(headers, second, origin="tax")
    assert (at_three.via, at_three.origin, at_three.remit.depth, at_three.remit.chain) == (
        "two",
        "tax@two",
        1,
        ("tax@two",),
    )
    chain = three.held.of(at_three.run)
    assert chain is not None
    assert chain.signers == (one.public, two.public)
    await two.door.ended(at_two.run, 100, 0)
    again = a_request(inner, id="r-3", run=at_two.run)
    at_three = await three.take(await two.send(again, three), again, origin="tax")
    chain = three.held.of(at_three.run)
    assert chain is not None
    assert chain.signers == (two.public,)


async def test_what_the_envelope_claims_beyond_the_credential_does_not_count(hubs: list[HubAt]) -> None:
    """C2: depth and chain are the credential's, and all the rest is the narrower of both."""
    one, two, _ = hubs
    request = a_request(Remit(user="ann", depth=3, max_depth=4, time_ms=1_000, tokens=10, chain=("a@x", "b@x")))
    claimed = Remit(user="ann", depth=0, max_depth=9, time_ms=10**6, tokens=10**6)
    remit = (await two.take(await one.send(request, two), request, remit=claimed)).remit
    assert (remit.depth, remit.max_depth, remit.tokens, remit.chain) == (3, 4, 10, ("a@x", "b@x"))
    another = replace(request.remit, user="bob")
    assert await refused(two.take(await one.send(request, two), request, remit=another)) is Code.USER_MISMATCH


async def test_what_was_recorded_on_the_way_cannot_be_sent_again(hubs: list[HubAt]) -> None:
    one, two, _ = hubs
    request = a_request()
    headers = await one.send(request, two)
    assert await two.take(headers, request)
    assert await refused(two.take(headers, request)) is Code.UNAUTHENTICATED
    assert await two.take(await one.send(request, two), request)


async def test_headers_are_good_for_the_request_that_they_came_with(hubs: list[HubAt]) -> None:
    one, two, _ = hubs
    headers = await one.send(a_request(), two)
    assert await refused(two.take(headers, a_request(id="r-2"))) is Code.CREDENTIAL_INVALID
    nameless = {"id": None}
    assert await refused(two.take(await one.send(a_request(), two), a_request(), **nameless)) is Code.CREDENTIAL_INVALID


async def test_a_target_that_an_earlier_hub_did_not_allow_is_refused(hubs: list[HubAt]) -> None:
    one, two, three = hubs
    first = a_request(replace(a_request().remit, targets=frozenset({"tax"})))
    at_two = await two.take(await one.send(first, two), first)
    second = a_request(at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=500), id="r-2", run=at_two.run)
    headers = await two.send(second, three)
    assert await refused(three.take(headers, second, target="audit", origin="tax")) is Code.PERMISSION_DENIED


async def test_who_received_a_credential_cannot_use_it_in_the_name_of_its_sender(hubs: list[HubAt]) -> None:
    one, two, three = hubs
    request = a_request()
    headers = await one.send(request, two)
    assert await refused(three.take(headers, request)) is Code.UNAUTHENTICATED
    mixed = {**await two.send(request, three), "remit-credential": headers["remit-credential"]}
    assert await refused(three.take(mixed, request)) is Code.UNAUTHENTICATED


def with_proof(headers: Mapping[str, str], by: HubAt, to: HubAt) -> dict[str, str]:
    """Return the headers with a proof by *by*, whoever made out the credential."""
    pair, token = by.key.signing(by.wall.now_ms), headers["remit-credential"]
    proof = prove(pair, SENDING, to=to.public, request_id="r-1", now_ms=by.wall.now_ms, credential=token)
    return {**headers, "remit-proof": proof}


async def test_a_thief_with_a_key_of_its_own_cannot_use_what_it_stole(hubs: list[HubAt]) -> None:
    """`three` trusts `two`, which sends what was made out to it as if it were its own."""
    one, two, three = hubs
    stolen = with_proof(await one.send(a_request(), two), two, three)
    with pytest.raises(RemitError, match="it was issued by another hub than the sender"):
        await three.take(stolen, a_request())


async def test_what_a_hub_proves_counts_for_its_own_requests_alone(hubs: list[HubAt]) -> None:
    one, two, three = hubs
    headers, others = await one.send(a_request(), three), await two.send(a_request(), three)
    sender = await three.door.sender(headers, *AT)
    sent = Submission(id="r-1", target="tax", remit=a_request().remit)
    assert await refused(three.door.grant(others, sender, sent)) is Code.UNAUTHENTICATED
    assert (await three.door.sender(others, *AT)).name == "two"
    assert await refused(three.door.grant(others, sender, sent)) is Code.UNAUTHENTICATED


async def test_what_does_not_fit_into_a_header_is_not_sent(hubs: list[HubAt]) -> None:
    tools = frozenset(f"a-tool-with-a-long-name-{number}" for number in range(1_000))
    request = a_request(replace(a_request().remit, tools=tools))
    assert await refused(hubs[0].send(request, hubs[1])) is Code.TOO_LARGE


async def test_an_unknown_hub_is_not_let_in(hubs: list[HubAt], wall: Wall) -> None:
    stranger = HubAt("stranger", wall)
    assert await refused(hubs[1].take(await stranger.send(a_request(), hubs[1]), a_request())) is Code.UNAUTHENTICATED


async def test_a_key_that_is_trusted_later_counts_at_once_for_a_peer_of_the_team_alone(
    hubs: list[HubAt], wall: Wall
) -> None:
    _, two, _ = hubs
    newcomer, request = HubAt("newcomer", wall), a_request()
    two.trusted["newcomer"] = (newcomer.public,)
    two.known.append(KnownSender(name="newcomer", token=TOKEN))  # a program of that name is no hub
    assert await refused(two.take(await newcomer.send(request, two), request)) is Code.UNAUTHENTICATED
    two.trusted["one"] = (newcomer.public,)
    assert (await two.take(await newcomer.send(request, two), request)).via == "one"
    two.trusted.clear()
    assert await refused(two.take(await newcomer.send(request, two), request)) is Code.UNAUTHENTICATED


async def test_what_was_revoked_counts_no_more(hubs: list[HubAt], caplog: pytest.LogCaptureFixture) -> None:
    """By the id that the log tells."""
    one, two, _ = hubs
    headers = await one.send(a_request(), two)
    with caplog.at_level("INFO", "remit"):
        await two.take(headers, a_request())
    match = re.fullmatch(r"one asks tax under credential ([0-9a-f]{128})", caplog.messages[-1])
    assert match is not None
    two.revoked.add(match[1])
    with pytest.raises(RemitError, match="it was revoked"):
        await two.take(with_proof(headers, one, two), a_request())


async def test_a_hub_that_delegates_with_its_key_needs_a_credential_and_to_be_known_it_needs_none(
    hubs: list[HubAt],
) -> None:
    one, two, _ = hubs
    pair = one.key.signing(NOW_MS)
    headers = {"remit-proof": prove(pair, SENDING, to=two.public, request_id="r-1", now_ms=NOW_MS)}
    sender = await two.door.sender(headers, *AT)
    assert sender == Sender(name="one", is_hub=True)
    sent = Submission(id="r-1", target="tax", remit=a_request().remit)
    assert await refused(two.door.grant(headers, sender, sent)) is Code.CREDENTIAL_INVALID


async def test_a_credential_without_a_proof_opens_nothing(hubs: list[HubAt]) -> None:
    one, two, _ = hubs
    two.known.append(KnownSender(name="portal", token=TOKEN))
    headers = await one.send(a_request(), two)
    del headers["remit-proof"]
    headers["authorization"] = f"Bearer {TOKEN}"
    assert await refused(two.take(headers, a_request())) is Code.UNAUTHENTICATED


async def test_a_hub_without_a_key_takes_no_proofs(hubs: list[HubAt]) -> None:
    one, two, _ = hubs
    door = Authenticator(two.known, wall_ms=two.wall)
    assert await refused(door.sender(await one.send(a_request(), two), *AT)) is Code.UNAUTHENTICATED


async def test_what_a_peer_may_ask_for_is_what_the_team_says(wall: Wall) -> None:
    one, two = HubAt("one", wall), HubAt("two", wall)
    two.trusts(one, users=frozenset({"ann"}), agents=frozenset({"tax"}))
    sender = await two.door.sender(await one.send(a_request(), two), *AT)
    assert sender == Sender(name="one", is_hub=True, users=frozenset({"ann"}), targets=frozenset({"tax"}))


async def test_both_hubs_can_change_their_keys_while_requests_pass(hubs: list[HubAt], wall: Wall) -> None:
    """For the whole overlap, whichever key of either the other knows."""
    one, two, three = hubs
    old = two.public
    first = a_request()
    at_two = await two.take(await one.send(first, two), first)
    inner = a_request(at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=500), id="r-2", run=at_two.run)
    for hub in hubs:
        hub.key = hub.key.rotated(wall.now_ms, DAY_MS)
    new = {hub.name: hub.key.stages[-1].pair.public for hub in hubs}
    two.trusted["one"] = (new["one"],)
    three.trusted |= {"one": (new["one"],), "two": (new["two"],)}
    for later_ms in (0, DAY_MS // 2, DAY_MS - 1):
        wall.now_ms = NOW_MS + later_ms
        for key in (old, new["two"]):
            another = a_request(id=f"r-{later_ms}-{key}")
            assert await two.take(await one.send(another, two, key), another)
    wall.now_ms = NOW_MS + 20_000
    assert await three.take(await two.send(inner, three), inner, origin="tax")
    wall.now_ms = NOW_MS + DAY_MS
    assert await refused(two.take(await one.send(first, two, old), first)) is Code.UNAUTHENTICATED
    assert await refused(two.send(inner, three)) is Code.CREDENTIAL_EXPIRED


async def test_all_requests_under_one_credential_share_its_tokens(hubs: list[HubAt]) -> None:
    one, two, three = hubs
    first = a_request(replace(a_request().remit, tokens=1_000))
    at_two = await two.take(await one.send(first, two), first)

    async def received(id: str) -> Request:
        inner = at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=600)
        request = a_request(inner, id=id, run=at_two.run)
        return await three.take(await two.send(request, three), request, origin="tax")

    runs = [await received("r-2"), await received("r-3")]
    assert [run.remit.tokens for run in runs] == [600, 400]
    assert runs[1].remit.context_tokens == 400
    assert await refused(received("r-4")) is Code.TOKEN_BUDGET_EXCEEDED
    await three.door.ended(runs[0].run, 100, 0)
    assert (await received("r-5")).remit.tokens == 500
    await three.door.ended("run-of-nobody", 5, 5)


async def test_a_hub_cannot_have_one_request_carried_out_twice_for_the_tokens_of_one(hubs: list[HubAt]) -> None:
    """In the names of two of its agents, the same id is two requests here, and both are counted."""
    one, two, three = hubs
    first = a_request(replace(a_request().remit, tokens=1_000))
    at_two = await two.take(await one.send(first, two), first)
    inner = a_request(at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=600), id="r-2", run=at_two.run)
    taken = [
        (await three.take(await two.send(inner, three), inner, origin=origin)).remit.tokens
        for origin in ("tax", "audit", "tax")
    ]
    assert taken == [600, 400, 600], "the last is the first once more, and is answered as that one was"


async def test_under_a_credential_a_request_has_an_id_by_which_it_is_counted(hubs: list[HubAt]) -> None:
    one, two, three = hubs
    first = a_request()
    at_two = await two.take(await one.send(first, two), first)
    inner = a_request(at_two.remit.narrow(caller="tax@two", time_ms=9_000, tokens=600), id="", run=at_two.run)
    headers = await two.send(inner, three)
    assert await refused(three.take(headers, inner, origin="tax", id=None)) is Code.CREDENTIAL_INVALID


def test_what_is_held_for_runs_that_nobody_ended_is_forgotten_in_time(
    wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_server.transports.credentials.incoming._MANY", 3)
    way, held = Way(), RunCredentials(wall)
    chain = way.chain(way.token([chains.a_remit()]))
    for number in range(3):
        held.hold(f"run-{number}", chain, Share(tokens=1))
    wall.now_ms += 60_000 + WINDOW_MS
    held.hold("run-3", chain, Share(tokens=1))
    assert held.of("run-0") is chain
    wall.now_ms += 1
    held.hold("run-4", chain, Share(tokens=1))
    assert [held.of(f"run-{number}") for number in range(5)] == [None] * 4 + [chain]


async def test_credentials_of_requests_that_never_become_runs_do_not_pile_up(
    hubs: list[HubAt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_server.transports.credentials.incoming._UNDER_WAY", 1)
    one, two, _ = hubs
    for id in ("r-1", "r-2"):
        request = a_request(id=id)
        headers = await one.send(request, two)
        sent = Submission(id=id, target="tax", remit=request.remit)
        grant = await two.door.grant(headers, await two.door.sender(headers, *AT), sent)
    received = [
        two.receive(Submission(id=id, target="tax", remit=a_request().remit), ONE, grant) for id in ("r-1", "r-2")
    ]
    for request in received:
        await two.door.received(request)
    assert [two.held.of(request.run) is None for request in received] == [True, False]


ONE = Sender(name="one", is_hub=True)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_door(*known: KnownSender, wall: Wall | None = None) -> Authenticator:
    return Authenticator(known, wall_ms=wall or Wall())


async def enter(door: Authenticator, authorization: str | None) -> Sender:
    return await door.sender({} if authorization is None else {"authorization": authorization})


async def test_a_token_says_who_sends() -> None:
    door = a_door(
        KnownSender(name="portal", token=TOKEN, users=frozenset({"ann"}), agents=frozenset({"tax"})),
        KnownSender(name="acme", token=OTHER, is_hub=True),
    )
    portal = Sender(name="portal", users=frozenset({"ann"}), targets=frozenset({"tax"}))
    assert await enter(door, f"Bearer {TOKEN}") == portal
    acme = await enter(door, f"bearer  {OTHER} ")
    assert acme == Sender(name="acme", is_hub=True)
    sent = Submission(target="tax", user="ann")
    assert await door.grant({"authorization": f"Bearer {OTHER}"}, acme, sent) is None
    request = a_request(via="acme")
    assert await door.received(request) is request


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        "Bearer ü",
        "Bearer " + "x" * 100_000,
        "Bearer a.b.c",
    ],
)
async def test_whoever_brings_no_token_of_anyone_is_not_let_in(header: str | None) -> None:
    with pytest.raises(RemitError) as raised:
        await enter(a_door(KnownSender(name="portal", token=TOKEN)), header)
    assert raised.value.fault.code is Code.UNAUTHENTICATED
    assert TOKEN not in str(raised.value)


def test_of_tokens_only_digests_are_kept() -> None:
    door = a_door(KnownSender(name="portal", token=TOKEN))
    assert Bearers({"portal": TOKEN}).who(TOKEN) == "portal"
    assert TOKEN not in repr(vars(Bearers({"portal": TOKEN})))
    assert TOKEN not in repr(KnownSender(name="portal", token=TOKEN))
    assert [each.token for each in door._known.values()] == [None]  # pyright: ignore[reportPrivateUsage]
    assert TOKEN not in repr(Addressee(name="acme", token=TOKEN))


@pytest.mark.parametrize(
    ("token", "fits"), [("x" * 19, False), ("x" * 20, True), ("x y" * 20, False), ("é" * 20, False)]
)
def test_a_token_that_could_be_guessed_or_not_be_sent_is_unfit(token: str, fits: bool) -> None:
    assert (unfit(token) is None) is fits
    assert token not in (unfit(token) or "")


def test_a_header_holds_one_token() -> None:
    assert bearer_of("Bearer abc.def-ghi_~+/==") == "abc.def-ghi_~+/=="
    assert bearer_of("Bearer a\nb") is None


async def test_between_hubs_that_agree_on_a_token_that_is_all_that_is_sent(wall: Wall) -> None:
    papers = CredentialHeaders(wall_ms=wall)
    headers = await papers.headers(Addressee(name="acme", token=TOKEN), a_request(), SENDING)
    assert headers == {"Authorization": f"Bearer {TOKEN}"}
    with pytest.raises(RemitError, match=r"\[peers.acme\]"):
        await papers.headers(Addressee(name="acme"), a_request(), SENDING)


def code_of(outcome: object) -> Code:
    assert isinstance(outcome, Fault), outcome
    return outcome.code


# ── identity providers ────────────────────────────────────────────────────────────────────────────────────────────────

SIGNING = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
ISSUER = "https://id.example.org"
NOW_S = NOW_MS // 1_000


def a_jwks(*keys: Any) -> bytes:
    return json.dumps(KeySet(list(keys)).as_dict(private=False)).encode()


class Provider:
    """What answers at the address of a provider's keys."""

    def __init__(self, *keys: Any) -> None:
        self.content = a_jwks(*(keys or (SIGNING,)))
        self.requests = list[str]()
        self.fails = False

    async def fetch(self, url: str) -> bytes:
        self.requests.append(url)
        if self.fails:
            raise ConnectionRefusedError
        return self.content

    def issuer(self, **otherwise: Any) -> Issuer:
        keys = KeysUrl(f"{ISSUER}/jwks", self.fetch)
        fields: dict[str, Any] = {"issuer": ISSUER, "audience": "remit", "keys": keys, **otherwise}
        return Issuer(**fields)


def a_token(key: Any = SIGNING, header: dict[str, Any] | None = None, **claims: Any) -> str:
    content = {"iss": ISSUER, "aud": "remit", "sub": "ann", "exp": NOW_S + 60, **claims}
    header = {"alg": "ES256", "kid": "one", **(header or {})}
    content = {name: value for name, value in content.items() if value is not None}
    return jose.encode(header, content, key, algorithms=[header["alg"]])


def user_client(provider: Provider, **otherwise: Any) -> KnownSender:
    return KnownSender(name="portal", issuer=provider.issuer(), **otherwise)


async def test_a_user_comes_with_a_token_of_the_provider() -> None:
    provider = Provider()
    door = a_door(user_client(provider, agents=frozenset({"tax"})), KnownSender(name="script", token=OTHER))
    sender = await enter(door, f"Bearer {a_token()}")
    assert sender == Sender(name="portal", users=frozenset({"ann"}), targets=frozenset({"tax"}))
    assert await enter(door, f"Bearer {a_token(aud=['other', 'remit'])}") == sender
    assert provider.requests == [f"{ISSUER}/jwks"]


async def test_users_can_be_told_by_another_claim_and_bounded_by_the_team() -> None:
    provider = Provider()
    issuer = provider.issuer(user_claim="email")
    assert await issuer.user_of(a_token(email="ann@example.org"), NOW_S) == "ann@example.org"
    door = a_door(user_client(provider, users=frozenset({"bob"})))
    assert await refused(enter(door, f"Bearer {a_token()}")) is Code.USER_MISMATCH


async def test_of_several_providers_the_one_that_knows_a_token_says_why_it_does_not_count() -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "two"})
    others = [KnownSender(name=f"p{each}", issuer=Provider(stranger).issuer(issuer=f"{each}")) for each in range(2)]
    door = a_door(others[0], user_client(Provider()), others[1])
    assert (await enter(door, f"Bearer {a_token()}")).name == "portal"
    assert await refused(enter(door, f"Bearer {a_token(exp=NOW_S - 60)}")) is Code.CREDENTIAL_EXPIRED
    assert await refused(enter(door, f"Bearer {a_token(iss='3')}")) is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.org"},
        {"iss": None},
        {"aud": "someone-else"},
        {"aud": ["someone-else"]},
        {"aud": None},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": NOW_S + LEEWAY_S + 1},
        {"iat": NOW_S + LEEWAY_S + 1},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["ann"]},
        {"sub": "ann\nbob"},
        {"sub": "\x1b[2J"},
        {"sub": "x" * 201},
    ],
    ids=str,
)
async def test_a_token_that_says_something_else_does_not_count(claims: dict[str, Any]) -> None:
    assert code_of(await Provider().issuer().user_of(a_token(**claims), NOW_S)) is Code.UNAUTHENTICATED


async def test_clocks_of_providers_may_differ_a_little() -> None:
    issuer = Provider().issuer()
    assert await issuer.user_of(a_token(exp=NOW_S - LEEWAY_S + 1, nbf=NOW_S + LEEWAY_S), NOW_S) == "ann"
    assert code_of(await issuer.user_of(a_token(exp=NOW_S - LEEWAY_S), NOW_S)) is Code.CREDENTIAL_EXPIRED


def part(value: object) -> str:
    return encoded(json.dumps(value).encode())


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


CLAIMS = {"iss": ISSUER, "aud": "remit", "sub": "ann", "exp": NOW_S + 60}


def signed_with_the_public_key() -> str:
    """Return a token that is signed with a secret, which is the text of the key that everybody knows."""
    signed = part({"alg": "HS256", "kid": "one"}) + "." + part(CLAIMS)
    return f"{signed}.{encoded(hmac.digest(SIGNING.as_pem(private=False), signed.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    "token",
    [
        part({"alg": "none", "kid": "one"}) + "." + part(CLAIMS) + ".",
        part({"alg": "None", "kid": "one"}) + "." + part(CLAIMS) + ".",
        part({"alg": "ES256"}) + "." + part(CLAIMS) + ".AAAA",
        part({"alg": ["ES256"]}) + "." + part(CLAIMS) + ".AAAA",
        part([]) + "." + part(CLAIMS) + ".AAAA",
        part("x" * 10) + "." + part([]) + ".",
        "..",
        "a.b.c",
        "a" * 9_000 + ".b.c",
        "=.=.=",
        signed_with_the_public_key(),
        a_token(ECKey.generate_key("P-256", {"kid": "one"})),
        a_token(header={"jwk": SIGNING.as_dict(private=False), "kid": "two"}),
        a_token()[:-2],
    ],
    ids=lambda token: token[:30],
)
async def test_a_token_that_the_provider_did_not_sign_as_agreed_does_not_count(token: str) -> None:
    """No signature, a public key taken for a secret, another key, a key that came with the token."""
    assert code_of(await Provider().issuer().user_of(token, NOW_S)) is Code.UNAUTHENTICATED


async def test_a_token_that_was_signed_by_another_algorithm_does_not_count() -> None:
    # Such a key takes long to find, so it is made where it is needed and not wherever this module is read.
    token = a_token(RSAKey.generate_key(2048, {"kid": "one"}), {"alg": "RS256"})
    assert code_of(await Provider().issuer().user_of(token, NOW_S)) is Code.UNAUTHENTICATED


async def test_an_algorithm_counts_if_the_team_names_it() -> None:
    rsa = RSAKey.generate_key(2048, {"kid": "two"})
    edwards = OKPKey.generate_key("Ed25519", {"kid": "three"})
    provider = Provider(SIGNING, rsa, edwards)
    assert await provider.issuer().user_of(a_token(rsa, {"alg": "RS256", "kid": "two"}), NOW_S) == "ann"
    token = a_token(edwards, {"alg": "Ed25519", "kid": "three"})
    assert code_of(await provider.issuer().user_of(token, NOW_S)) is Code.UNAUTHENTICATED
    assert await provider.issuer(algorithms=("Ed25519",)).user_of(token, NOW_S) == "ann"


async def test_a_new_key_of_the_provider_is_fetched_when_a_token_names_it_but_not_at_every_strangers_will() -> None:
    provider = Provider()
    issuer = provider.issuer()
    assert await issuer.user_of(a_token(), NOW_S) == "ann"
    newer = ECKey.generate_key("P-256", {"kid": "two"})
    token = a_token(newer, {"kid": "two"})
    for _ in range(3):
        assert code_of(await issuer.user_of(token, NOW_S + 1)) is Code.UNAUTHENTICATED
    assert len(provider.requests) == 1
    provider.content = a_jwks(SIGNING, newer)
    assert await issuer.user_of(token, NOW_S + AGAIN_S) == "ann"
    assert len(provider.requests) == 2


async def test_keys_are_fetched_again_after_a_while_and_the_old_ones_count_if_that_fails() -> None:
    provider = Provider()
    issuer = provider.issuer()
    assert await issuer.user_of(a_token(), NOW_S) == "ann"
    provider.fails = True
    later = NOW_S + FRESH_S
    for _ in range(3):
        assert await issuer.user_of(a_token(exp=later + 60), later) == "ann"
    assert len(provider.requests) == 2
    provider.fails, provider.content = False, b"<html>"
    assert await issuer.user_of(a_token(exp=later + 60), later + AGAIN_S) == "ann"
    assert len(provider.requests) == 3


async def test_without_keys_nobody_is_let_in_and_told_when_to_come_back() -> None:
    provider = Provider()
    provider.fails = True
    issuer = provider.issuer()
    for _ in range(3):
        why = await issuer.user_of(a_token(), NOW_S)
        assert isinstance(why, Fault)
        assert (why.code, why.retry_after_ms) == (Code.UNAUTHENTICATED, AGAIN_S * 1_000)
    assert len(provider.requests) == 1
    provider.fails = False
    assert await issuer.user_of(a_token(), NOW_S + AGAIN_S) == "ann"


async def test_keys_can_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(a_jwks(SIGNING))
    issuer = Issuer(issuer=ISSUER, audience="remit", keys=KeysFile(WatchedFile(file, key_set)))
    assert await issuer.user_of(a_token(), NOW_S) == "ann"
    newer = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
    file.write_bytes(a_jwks(SIGNING, newer))
    assert await issuer.user_of(a_token(newer, {"kid": "two"}), NOW_S) == "ann"
    file.unlink()
    door = a_door(KnownSender(name="portal", issuer=issuer))
    assert await refused(enter(door, f"Bearer {a_token()}")) is Code.TEAM_INVALID


def test_of_a_document_of_keys_those_for_signatures_are_taken() -> None:
    secret = OctKey.generate_key(256, {"kid": "s"}).as_dict(private=True)
    sealing = ECKey.generate_key("P-256", {"kid": "e", "use": "enc"}).as_dict(private=False)
    odd = [{"kty": "AKP"}, {"kty": "EC"}, "x", {"kty": "RSA", "n": 1, "e": 2}]
    document = {"keys": [*odd, secret, sealing, SIGNING.as_dict(private=False)]}
    assert [key.kid for key in key_set(json.dumps(document).encode())] == ["one"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"keys":1}', b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AA"}]}', b" " * 300_000]
)
def test_a_document_without_keys_is_none(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        key_set(content)


# ── what is never forwarded, and what works without the extra ─────────────────────────────────────────────────────────


async def test_nothing_that_a_user_came_with_leaves_the_hub(hubs: list[HubAt]) -> None:
    """X9: between services a service's credential, never a user's token."""
    one, two, _ = hubs
    token = a_token()
    one.known.append(KnownSender(name="portal", issuer=Provider().issuer()))
    sender = await enter(one.door, f"Bearer {token}")
    request = one.receive(Submission(target="tax"), sender, None)
    sent = await one.send(request, two)
    assert set(sent) == {"remit-credential", "remit-proof"}
    assert not any(piece in str(sent) for piece in token.split("."))


def test_without_the_extra_tokens_work_and_credentials_say_what_to_install() -> None:
    script = f"""
        import asyncio, sys
        sys.modules["biscuit_auth"] = sys.modules["joserfc"] = None
        from remit.protocol.envelope import Request, VERSION
        from remit.protocol.errors import RemitError
        from remit.protocol.remit import Remit
        from remit.protocol.submission import Submission
        from remit.ports import OutgoingRequest
        from remit_server.transports.credentials.incoming import Authenticator, KnownSender
        from remit_server.transports.credentials.keys import HubKey
        from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders
        from remit_server.transports.credentials.proof import prove

        me, other, now = HubKey.create(0), HubKey.create(0), lambda: 5
        mine, theirs = me.signing(now()), other.signing(now())

        async def main():
            known = [
                KnownSender(name="portal", token="{TOKEN}"),
                KnownSender(name="acme", is_hub=True, keys=(theirs.public,)),
            ]
            door = Authenticator(known, key=lambda: me, wall_ms=now)
            assert (await door.sender({{"authorization": "Bearer {TOKEN}"}})).name == "portal"
            sending = OutgoingRequest("POST", "/v1/delegations")
            proof = prove(theirs, sending, to=mine.public, request_id="r", now_ms=now(), credential="x")
            headers = {{"remit-proof": proof, "remit-credential": "x"}}
            sender = await door.sender(headers, *sending[:2])
            remit = Remit(user="ann", depth=0, max_depth=5, time_ms=1, tokens=1)
            request = Request(version=VERSION, id="r", origin="user", target="tax", run="r", remit=remit)
            acme = Addressee(name="acme", keys=(theirs.public,))
            papers = CredentialHeaders(key=lambda: me, wall_ms=now)
            sent = Submission(id="r", target="tax")
            for trying in (door.grant(headers, sender, sent), papers.headers(acme, request, sending)):
                try:
                    await trying
                except RemitError as error:
                    assert "[credentials]'" in str(error), error
                else:
                    raise SystemExit("it worked")

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=PATIENCE_S)
