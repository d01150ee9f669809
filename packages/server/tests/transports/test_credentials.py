"""Credentials that pass from hub to hub: they narrow, they are good for one request, and attacks on them fail."""

import base64
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from biscuit_auth import Biscuit, BlockBuilder, KeyPair, PrivateKey, PublicKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chains import NOW_MS, Way, a_hop, a_remit, content_of, credential_of, rooted, signed_on
from properties import share
from remit.protocol.conditions import ValueBounds
from remit.protocol.errors import Code, Fault
from remit.protocol.remit import Grant, Remit, Tools, tools_within
from remit_server.transports.credentials import chain as chain_module
from remit_server.transports.credentials.chain import MAX_CHARS, MAX_HOPS, attenuate, mint, read_chain
from remit_server.transports.credentials.proof import WINDOW_MS, CredentialChain, Hop, Verified
from remit_server.transports.credentials.verify import Chains
from waiting import PATIENCE_S

EVIL = 'ann"); allow if true; hop(0, hex:00); check if false or user("'


@pytest.fixture
def way() -> Way:
    return Way()


def grant_of(outcome: Verified | Fault) -> Grant:
    assert isinstance(outcome, Verified), outcome
    return outcome.grant


def refusal(outcome: object) -> tuple[Code, str]:
    assert isinstance(outcome, Fault), outcome
    return outcome.code, outcome.message


def invalid(why: str) -> tuple[Code, str]:
    return Code.CREDENTIAL_INVALID, f"invalid credential: {why}"


# ── what it grants ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hub_that_is_asked_directly_gets_what_the_request_says(way: Way) -> None:
    remit = a_remit(depth=2, chain=("a@one", "b@one"), tools=frozenset({"ledger"}), targets=frozenset({"tax"}))
    assert grant_of(way.verify(way.token([remit]), 1)) == Grant(
        user="ann",
        depth=2,
        chain=("a@one", "b@one"),
        tokens=8_000,
        time_ms=60_000 + WINDOW_MS,
        max_depth=5,
        targets=frozenset({"tax"}),
        tools=frozenset({"ledger"}),
        may_delegate=True,
    )


def test_after_several_hops_the_narrowest_counts_and_the_chain_is_whole(way: Way) -> None:
    first = a_remit(tools=frozenset({"a", "b"}))
    second = first.narrow(caller="x@one", time_ms=50_000, tokens=5_000, tools=frozenset({"b", "c"}))
    third = second.narrow(caller="y@two", time_ms=40_000, tokens=6_000, max_depth=3, may_delegate=False)
    assert grant_of(way.verify(way.token([first, second, third]), 3)) == Grant(
        user="ann",
        depth=2,
        chain=("x@one", "y@two"),
        tokens=5_000,
        time_ms=40_000 + WINDOW_MS,
        max_depth=3,
        tools=frozenset({"b"}),
        may_delegate=False,
    )


def test_agents_between_two_hubs_count_as_deeper(way: Way) -> None:
    first = a_remit()
    inner = first.narrow(caller="x@one", time_ms=9_000, tokens=900)
    outer = inner.narrow(caller="y@one", time_ms=9_000, tokens=900)
    grant = grant_of(way.verify(way.token([first, outer]), 2))
    assert (grant.depth, grant.chain) == (2, ("x@one", "y@one"))


def test_a_hub_may_stand_in_a_chain_twice(way: Way) -> None:
    way.pairs[2] = way.pairs[0]
    way.pairs[3] = way.pairs[1]
    token = way.token(way.remits(4))
    assert grant_of(way.verify(token, 4)).depth == 3


def test_a_request_that_is_wider_than_what_its_hub_was_granted_is_narrowed(way: Way) -> None:
    first = a_remit(tools=frozenset({"a"}), targets=frozenset({"t"}), max_depth=3)
    wider = Remit(user="ann", depth=1, max_depth=9, time_ms=10**9, tokens=10**9, chain=("x@one",))
    chain = way.chain(way.token([first, wider]))
    assert chain.hops[1] == replace(
        chain.hops[0],
        to=chain.hops[1].to,
        request=chain.hops[1].request,
        depth=1,
        chain=("x@one",),
    )


def test_what_is_kept_of_a_credential_shows_hubs_and_nothing_that_could_be_used(way: Way) -> None:
    token = way.token(way.remits(2))
    shown = repr(way.verify(token, 2))
    assert f"CredentialChain({', '.join(pair.public for pair in way.pairs[:3])})" in shown
    assert token not in shown


# ── names are data ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [EVIL, "a'b", "a\\b", "{user}", "$user", "hex:00", "//", "日本", "\U0001f600", "a b"])
def test_no_name_is_ever_datalog(way: Way, name: str) -> None:
    remit = a_remit(
        user=name, chain=(f"{name[:100]}@one",), depth=1, tools=frozenset({name}), targets=frozenset({name})
    )
    remits = [remit, remit.narrow(caller=f"{name[:100]}@two", time_ms=1_000, tokens=100)]
    grant = grant_of(way.verify(way.token(remits), 2))
    assert (grant.user, grant.tools, grant.chain) == (name, frozenset({name}), remits[1].chain)


@pytest.mark.parametrize("user", ["", "a\nb", "a\x00b", "\x1b[2J", "a\u2028b", "x" * 201])
def test_a_name_that_is_none_is_refused_whoever_signed_it(way: Way, user: str) -> None:
    token = credential_of(way, a_hop(0, way.pairs[1], user=user))
    assert refusal(way.verify(token, 1)) == invalid("it holds content that no hub writes")


# ── widening ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"tokens": 500}, {"tokens": 10**6}),
        ({"tools": frozenset({"a"})}, {"tools": None}),
        ({"tools": frozenset({"a"})}, {"tools": frozenset({"a", "b"})}),
        ({"tools": frozenset[str]()}, {"tools": frozenset({"a"})}),
        ({"tools": {"a": ({"x": "<= 5"},)}}, {"tools": frozenset({"a", "b"})}),
        ({"tools": {"a": ({"x": "<= 5"},)}}, {"tools": None}),
        ({"cost": 500}, {"cost": None}),
        ({"cost": 500}, {"cost": 600}),
        ({"targets": frozenset({"a"})}, {"targets": None}),
        ({"targets": frozenset({"a"})}, {"targets": frozenset({"a", "b"})}),
        ({"max_depth": 2}, {"max_depth": 50}),
        ({"until_ms": NOW_MS + 10}, {"until_ms": NOW_MS + 10**9}),
    ],
)
def test_what_a_later_block_widens_stays_as_narrow_as_it_was(
    way: Way, first: dict[str, Any], second: dict[str, Any]
) -> None:
    narrow, wide = a_hop(0, way.pairs[1], **first), a_hop(1, way.pairs[2], **second)
    grant = grant_of(way.verify(credential_of(way, narrow, wide), 2))
    (key,) = first
    if key == "until_ms":
        assert grant.time_ms == 10 + WINDOW_MS
    else:
        assert getattr(grant, key) == first[key]


def test_a_block_for_another_user_is_refused(way: Way) -> None:
    token = credential_of(way, a_hop(0, way.pairs[1]), a_hop(1, way.pairs[2], user="bob"))
    assert refusal(way.verify(token, 2))[0] is Code.USER_MISMATCH
    assert (
        refusal(
            attenuate(
                way.chain(way.token([a_remit()])),
                way.pairs[1],
                a_remit(user="bob", depth=1, chain=("x@one",)),
                to=way.pairs[2].public,
                request_id="r1",
                now_ms=NOW_MS,
            )
        )[0]
        is Code.USER_MISMATCH
    )


def test_a_hub_that_may_not_delegate_cannot(way: Way) -> None:
    token = credential_of(way, a_hop(0, way.pairs[1], may_delegate=False), a_hop(1, way.pairs[2]))
    assert refusal(way.verify(token, 2))[0] is Code.NESTED_CALLS_FORBIDDEN
    remits = way.remits(2, a_remit(may_delegate=False))
    with pytest.raises(AssertionError, match="NESTED_CALLS_FORBIDDEN"):
        way.token(remits)


def test_a_target_that_an_earlier_hub_did_not_allow_is_refused(way: Way) -> None:
    """A confused deputy: who may ask for tax only, asks a hub that would do more for the one in between."""
    token = credential_of(
        way, a_hop(0, way.pairs[1], targets=frozenset({"tax"})), a_hop(1, way.pairs[2], targets=frozenset({"x"}))
    )
    assert refusal(way.verify(token, 2, target="payroll"))[0] is Code.PERMISSION_DENIED
    assert refusal(way.verify(token, 2, target="x"))[0] is Code.PERMISSION_DENIED
    assert grant_of(way.verify(token, 2, target="tax")).targets == frozenset()
    assert grant_of(way.verify(credential_of(way, a_hop(0, way.pairs[1], targets=frozenset({"x"}))), 1, target="tax"))


# ── depth ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_forged_depth_is_refused(way: Way, depth: int) -> None:
    """C2: depth is what the blocks say, and every one stands deeper than the last."""
    token = credential_of(way, a_hop(0, way.pairs[1], depth=2), a_hop(1, way.pairs[2], depth=depth))
    assert refusal(way.verify(token, 2)) == invalid("block 1 is not deeper than the previous block")


def test_a_hop_that_adds_nobody_to_the_chain_is_refused(way: Way) -> None:
    token = credential_of(way, a_hop(0, way.pairs[1]), a_hop(1, way.pairs[2], chain=()))
    assert refusal(way.verify(token, 2)) == invalid("block 1 is not deeper than the previous block")


def test_a_depth_that_its_own_chain_contradicts_is_refused(way: Way) -> None:
    forged = credential_of(way, a_hop(0, way.pairs[1], chain=("a@one", "b@one"), depth=1))
    assert refusal(way.verify(forged, 1)) == invalid("it states a depth that its chain contradicts")
    token = credential_of(way, a_hop(0, way.pairs[1]), a_hop(1, way.pairs[2], chain=("a@one", "b@one"), depth=1))
    assert refusal(way.verify(token, 2)) == invalid("block 1 is not deeper than the previous block")
    made = mint(way.pairs[0], a_remit(chain=("x@y",)), to=way.pairs[1].public, request_id="r0", now_ms=NOW_MS)
    assert refusal(made)[0] is Code.CREDENTIAL_INVALID


def test_a_chain_is_not_longer_than_a_remit_can_hold(way: Way) -> None:
    many = tuple(f"a{number}@one" for number in range(99))
    token = credential_of(
        way, a_hop(0, way.pairs[1], chain=many, depth=99), a_hop(1, way.pairs[2], chain=("a@b", "c@b"), depth=101)
    )
    assert refusal(way.verify(token, 2)) == invalid("its chain is longer than 100 agents")


@pytest.mark.parametrize("chain", [(), ("stranger@two",), ("x@one",), ("x@two", "x@one")])
def test_a_request_that_does_not_follow_from_the_credential_gets_none(way: Way, chain: tuple[str, ...]) -> None:
    held = way.chain(way.token([a_remit(chain=("x@one",), depth=1)]))
    remit = a_remit(chain=chain, depth=5)
    made = attenuate(held, way.pairs[1], remit, to=way.pairs[2].public, request_id="r1", now_ms=NOW_MS)
    assert refusal(made) == invalid("the request does not follow from the one that the credential came with")


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stolen_credential_is_of_no_use_to_another_hub(way: Way) -> None:
    """The thief has proven its own key, and that is not the one which the credential was made out by."""
    token = way.token(way.remits(2))
    thief = way.pairs[5].public
    assert refusal(way.verify(token, 2, peer_key=thief)) == invalid("it was issued by another hub than the sender")


def test_a_credential_for_another_hub_is_refused(way: Way) -> None:
    """A hub that received a credential cannot send it on as it is, nor use it against a third hub."""
    token = way.token(way.remits(2))
    assert refusal(way.verify(token, 2, me={way.pairs[3].public})) == invalid("it was issued to another hub")


def test_a_credential_for_another_request_is_refused(way: Way) -> None:
    token = way.token(way.remits(2))
    assert refusal(way.verify(token, 2, request_id="r0")) == invalid("it was issued for another request")


def test_a_hub_that_answers_to_two_keys_takes_credentials_for_both(way: Way) -> None:
    token = way.token(way.remits(2))
    assert grant_of(way.verify(token, 2, me={way.pairs[4].public, way.pairs[2].public}))


def test_a_credential_that_was_started_by_a_stranger_is_refused(way: Way) -> None:
    token = way.token(way.remits(3))
    stranger = invalid("it was issued by a hub that is not trusted here")
    assert refusal(way.verify(token, 3, roots={way.pairs[1].public})) == stranger
    assert refusal(way.verify(token, 3, roots=set())) == stranger


def test_whoever_claims_to_be_a_trusted_root_has_to_have_signed(way: Way) -> None:
    """The number that says whose key it is may be chosen freely, and two keys may even share one."""
    trusted = int.from_bytes(bytes.fromhex(way.pairs[0].public.removeprefix("ed25519/"))[:4], "big")
    forged = rooted(way.pairs[5], 0, content_of(a_hop(0, way.pairs[1])), root_id=trusted).to_base64()
    assert refusal(way.verify(forged, 1)) == invalid("its signatures are invalid")


def test_two_trusted_hubs_whose_keys_begin_alike_do_not_disturb_each_other(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alike(_: str) -> int:
        return 7

    monkeypatch.setattr(chain_module, "_key_id", alike)
    roots = {pair.public for pair in way.pairs[:3]}
    for pair in way.pairs[:3]:
        token = mint(pair, a_remit(), to=way.pairs[5].public, request_id="r0", now_ms=NOW_MS)
        assert isinstance(token, str)
        chain = read_chain(token, sorted(roots))
        assert isinstance(chain, CredentialChain)
        assert chain.signers == (pair.public,)
    unknown = mint(way.pairs[4], a_remit(), to=way.pairs[5].public, request_id="r0", now_ms=NOW_MS)
    assert isinstance(unknown, str)
    assert refusal(read_chain(unknown, roots)) == invalid("its signatures are invalid")


# ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def parts_of(token: str) -> tuple[bytes, list[bytes], bytes]:
    """Return the bytes of a credential's first block, of each further one, and of what follows."""
    parts, at = list[tuple[int, bytes]](), 0
    content = base64.urlsafe_b64decode(token)
    while at < len(content):  # the outermost fields of a message in Protocol Buffers
        start, tag = at, content[at]
        at += 1
        size = shift = 0
        while True:
            byte = content[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += size if tag & 7 == 2 else 0
        parts.append((tag >> 3, content[start:at]))
    head, tail = (b"".join(part for field, part in parts if field in fields) for fields in ((1, 2), (4,)))
    return head, [part for field, part in parts if field == 3], tail


def joined(head: bytes, blocks: list[bytes], tail: bytes) -> str:
    return base64.urlsafe_b64encode(b"".join([head, *blocks, tail])).decode()


def test_the_tool_that_takes_credentials_apart_can_put_them_together(way: Way) -> None:
    token = way.token(way.remits(4))
    assert joined(*parts_of(token)) == token


@pytest.mark.parametrize("kept", [(2, 3), (1, 3), (1, 2), (3,), (1,), (), (1, 3, 2), (2, 1, 3), (1, 2, 2, 3)])
def test_blocks_cannot_be_dropped_nor_swapped(way: Way, kept: tuple[int, ...]) -> None:
    head, blocks, tail = parts_of(way.token(way.remits(4)))
    token = joined(head, [blocks[number - 1] for number in kept], tail)
    for hops in range(1, 6):
        assert refusal(way.verify(token, hops)) == invalid("its signatures are invalid")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_block_cannot_be_taken_from_another_credential(way: Way, number: int) -> None:
    """Not even one that the same hubs signed with the same words, which may have been for more."""
    head, blocks, tail = parts_of(way.token(way.remits(4)))
    _, others, _ = parts_of(way.token(way.remits(4)))
    token = joined(head, [*blocks[: number - 1], others[number - 1], *blocks[number:]], tail)
    assert refusal(way.verify(token, 4)) == invalid("its signatures are invalid")


def test_a_hop_that_was_left_out_shows_by_its_signature(way: Way) -> None:
    """Two hubs that work together cannot hide a third: the one that a block names has to sign the next."""
    biscuit = rooted(way.pairs[0], 0, content_of(a_hop(0, way.pairs[1])))
    token = signed_on(biscuit, way.pairs[2], 1, content_of(a_hop(1, way.pairs[3]))).to_base64()
    refused = invalid("block 1 is not signed by the hub that the previous block names")
    assert refusal(way.verify(token, 3, peer_key=way.pairs[2].public, request_id="r1")) == refused


def test_a_block_that_nobody_signed_is_refused(way: Way) -> None:
    """A plain biscuit lets any bearer add a block; here that would be a hop that is not counted."""
    plain = BlockBuilder("hop(1, hex:00)")
    token = Biscuit.from_base64(way.token([a_remit()]), PublicKey(way.pairs[0].public)).append(plain).to_base64()
    assert refusal(way.verify(token, 1)) == invalid("it holds a block that no hub signed")


def test_a_block_that_is_signed_with_a_key_of_another_kind_is_refused(way: Way) -> None:
    biscuit = rooted(way.pairs[0], 0, content_of(a_hop(0, way.pairs[1])))
    other = KeyPair.from_private_key(PrivateKey("secp256r1-private/" + "07" * 32))
    token = signed_on(biscuit, other, 1, content_of(a_hop(1, way.pairs[2]))).to_base64()
    refused = invalid("block 1 is not signed by the hub that the previous block names")
    assert refusal(way.verify(token, 2)) == refused


@pytest.mark.parametrize(
    "code",
    [
        "check if false",
        "hop(1, $content) <- hop(0, $content)",
        "hop(0, hex:00)",
        'user("root")',
        "reject if true",
        "a($x) <- hop($x, $y)",
    ],
)
def test_a_block_that_says_anything_else_is_refused(way: Way, code: str) -> None:
    """So no check is passed over, and no rule of a stranger is ever evaluated."""
    refused = invalid("it holds content that no hub writes")
    first = content_of(a_hop(0, way.pairs[1]))
    assert refusal(way.verify(rooted(way.pairs[0], 0, first, code=code).to_base64(), 1)) == refused
    later = signed_on(
        rooted(way.pairs[0], 0, first), way.pairs[1], 1, content_of(a_hop(1, way.pairs[2])), code=code
    ).to_base64()
    assert refusal(way.verify(later, 2)) == refused


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\xc1", b"\x90", "text", 7, True, ["x"], {"x"}, {"x": 1}, b"\xdd\xff\xff\xff\xff", b"\x91" * 5_000],
    ids=lambda content: str(content)[:20],
)
def test_a_block_whose_content_is_none_is_refused(way: Way, content: Any) -> None:
    """Also one of a kind that the library cannot make a Python value of, and would end the process over."""
    token = rooted(way.pairs[0], 0, content).to_base64()
    assert refusal(way.verify(token, 1)) == invalid("it holds content that no hub writes")


@pytest.mark.parametrize("number", [1, 2, -1, 10**12])
def test_a_block_that_counts_wrong_is_refused(way: Way, number: int) -> None:
    refused = invalid("it holds content that no hub writes")
    assert (
        refusal(way.verify(rooted(way.pairs[0], number, content_of(a_hop(0, way.pairs[1]))).to_base64(), 1)) == refused
    )
    first = rooted(way.pairs[0], 0, content_of(a_hop(0, way.pairs[1])))
    if number != 1:
        token = signed_on(first, way.pairs[1], number, content_of(a_hop(1, way.pairs[2]))).to_base64()
        assert refusal(way.verify(token, 2)) == refused


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_credential_ends_with_the_time_of_its_request_and_clocks_may_differ_a_little(way: Way) -> None:
    token = way.token([a_remit(time_ms=1_000)])
    ends_ms = NOW_MS + 1_000 + WINDOW_MS
    assert grant_of(way.verify(token, 1, now_ms=ends_ms - 1)).time_ms == 1
    assert refusal(way.verify(token, 1, now_ms=ends_ms))[0] is Code.CREDENTIAL_EXPIRED


def test_a_credential_whose_parent_has_expired_is_expired(way: Way) -> None:
    token = credential_of(
        way, a_hop(0, way.pairs[1], until_ms=NOW_MS - WINDOW_MS), a_hop(1, way.pairs[2], until_ms=NOW_MS + 60_000)
    )
    assert refusal(way.verify(token, 2))[0] is Code.CREDENTIAL_EXPIRED


# ── revocation ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_revokes_a_block_revokes_everything_that_follows_from_it(way: Way) -> None:
    remits = way.remits(3)
    token = way.token(remits)
    chain = way.chain(token)
    for each in chain.ids:
        assert refusal(way.verify(token, 3, revoked={each})) == invalid("it was revoked")
    sibling = attenuate(
        way.chain(way.token(remits[:1])),
        way.pairs[1],
        remits[1],
        to=way.pairs[2].public,
        request_id="r1",
        now_ms=NOW_MS,
    )
    assert grant_of(way.verify(way.chain(sibling).biscuit.to_base64(), 2, revoked=set(chain.ids)))


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_read_once_is_not_checked_again_and_all_the_rest_is(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    token, chains = way.token(way.remits(3)), Chains()
    first = grant_of(way.verify(token, 3, chains=chains))

    def unread(*_: object) -> Any:
        raise AssertionError("it was read again")

    monkeypatch.setattr("remit_server.transports.credentials.verify.read_chain", unread)
    assert grant_of(way.verify(token, 3, chains=chains)) == first
    assert refusal(way.verify(token, 3, chains=chains, peer_key=way.pairs[0].public))[0] is Code.CREDENTIAL_INVALID
    assert refusal(way.verify(token, 3, chains=chains, request_id="r9"))[0] is Code.CREDENTIAL_INVALID
    assert refusal(way.verify(token, 3, chains=chains, now_ms=NOW_MS + 10**9))[0] is Code.CREDENTIAL_EXPIRED
    revoked = {way.chain(token).ids[1]}
    assert refusal(way.verify(token, 3, chains=chains, revoked=revoked)) == invalid("it was revoked")
    with pytest.raises(AssertionError, match="read again"):
        way.verify(token, 3, chains=chains, roots={way.pairs[1].public})


def test_only_so_many_are_kept_those_used_last(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    chains, reads = Chains(kept=2), list[str]()

    def counted(token: str, roots: Any) -> Any:
        reads.append(token)
        return read_chain(token, roots)

    monkeypatch.setattr("remit_server.transports.credentials.verify.read_chain", counted)
    one, two, three = (way.token([a_remit(tokens=tokens)]) for tokens in (1, 2, 3))
    for token in (one, two, one, three, one, two):
        assert grant_of(way.verify(token, 1, chains=chains))
    assert reads == [one, two, three, two]


# ── garbage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "token",
    ["", "x", "!!!", "AAAA", "\x00", "ü", "\ud800", "A" * MAX_CHARS, "A" * (MAX_CHARS + 1), "=" * 100, "-_" * 5_000],
    ids=lambda token: repr(token)[:20],
)
def test_what_is_no_credential_is_refused(way: Way, token: str) -> None:
    assert refusal(way.verify(token, 1))[0] is Code.CREDENTIAL_INVALID


def test_a_huge_one_is_refused_unread(way: Way) -> None:
    assert refusal(way.verify("A" * 100_000_000, 1)) == invalid(f"it has more than {MAX_CHARS} characters")


def test_a_credential_that_was_cut_off_is_refused_wherever_that_was(way: Way) -> None:
    token = way.token(way.remits(3))
    for size in range(0, len(token), 7):
        assert refusal(way.verify(token[:size], 3))[0] is Code.CREDENTIAL_INVALID


@given(data=st.data())
@share(3)
def test_a_changed_credential_is_refused_or_says_the_same(data: st.DataObject) -> None:
    content = bytearray(base64.urlsafe_b64decode(TOKEN))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    outcome = WAY.verify(base64.urlsafe_b64encode(bytes(content)).decode(), 3)
    if isinstance(outcome, Verified):
        assert outcome.grant == GRANT


@given(st.binary(max_size=2_000))
@share(3)
def test_bytes_of_anybody_raise_nothing(content: bytes) -> None:
    assert isinstance(WAY.verify(base64.urlsafe_b64encode(content).decode(), 1), Fault)


@given(st.binary(max_size=300))
@share(2)
def test_a_trusted_hub_that_signs_nonsense_raises_nothing(content: bytes) -> None:
    assert isinstance(WAY.verify(rooted(WAY.pairs[0], 0, content or b"\x00").to_base64(), 1), Fault)


def test_a_credential_is_passed_on_a_bounded_number_of_times() -> None:
    way = Way(MAX_HOPS + 2)
    remits = way.remits(MAX_HOPS + 1, a_remit(max_depth=100))
    token = way.token(remits[:-1])
    assert grant_of(way.verify(token, MAX_HOPS)).depth == MAX_HOPS - 1
    more = attenuate(
        way.chain(token), way.pairs[MAX_HOPS], remits[-1], to=way.pairs[-1].public, request_id="r", now_ms=NOW_MS
    )
    assert refusal(more)[0] is Code.MAX_DEPTH_EXCEEDED
    forged = signed_on(
        way.chain(token).biscuit, way.pairs[MAX_HOPS], MAX_HOPS, content_of(a_hop(MAX_HOPS, way.pairs[-1]))
    )
    assert refusal(way.verify(forged.to_base64(), MAX_HOPS + 1)) == invalid(
        f"it was passed on more than {MAX_HOPS} times"
    )


def test_what_would_not_fit_into_a_header_is_not_made(way: Way) -> None:
    many = a_remit(tools=frozenset(f"a-tool-with-a-long-name-{number}" for number in range(1_000)))
    made = mint(way.pairs[0], many, to=way.pairs[1].public, request_id="r0", now_ms=NOW_MS)
    assert refusal(made)[0] is Code.TOO_LARGE


def test_who_holds_another_key_than_the_credential_names_adds_nothing(way: Way) -> None:
    held = way.chain(way.token([a_remit()]))
    remit = a_remit(depth=1, chain=("x@one",))
    made = attenuate(held, way.pairs[2], remit, to=way.pairs[3].public, request_id="r1", now_ms=NOW_MS)
    assert refusal(made) == invalid("it was issued to another hub, or to another key of this hub")


# ── the law ───────────────────────────────────────────────────────────────────────────────────────────────────────────

WAY = Way(7)
TOKEN = WAY.token(WAY.remits(3))
GRANT = grant_of(WAY.verify(TOKEN, 3))

NAMES = st.none() | st.frozensets(st.sampled_from(["a", "b", "c", EVIL]))
TERMS = st.dictionaries(st.sampled_from(["x", EVIL]), st.sampled_from([1, "<= 5", (EVIL,), ValueBounds(below=3)]))
TOOLS = NAMES | st.dictionaries(st.sampled_from(["a", "b", EVIL]), TERMS | st.lists(TERMS, max_size=2).map(tuple))


@st.composite
def chains(draw: st.DrawFn) -> list[Hop]:
    """Return what hubs in a row say, honest or not; depth and chain follow the rules, or nothing would be granted."""
    hops, depth = list[Hop](), draw(st.integers(0, 3))
    for number in range(draw(st.integers(1, 5))):
        added = tuple(f"a{each}@hub{number}" for each in range(draw(st.integers(1, 2)) if number else 0))
        depth += len(added) + draw(st.integers(0, 2)) if number else 0
        hops.append(
            a_hop(
                number,
                WAY.pairs[number + 1],
                user=EVIL,
                depth=depth,
                chain=added,
                max_depth=draw(st.integers(0, 9)),
                tokens=draw(st.integers(0, 10_000)),
                until_ms=NOW_MS + draw(st.integers(0, 90_000)),
                tools=draw(TOOLS),
                targets=draw(NAMES),
                cost=draw(st.none() | st.integers(0, 99)),
            )
        )
    return [*hops[:-1], replace(hops[-1], may_delegate=draw(st.booleans()))]


@given(chains())
def test_no_chain_of_blocks_grants_more_than_any_of_them(hops: list[Hop]) -> None:
    grant = grant_of(WAY.verify(credential_of(WAY, *hops), len(hops)))
    assert grant.user == EVIL
    assert grant.chain == tuple(agent for hop in hops for agent in hop.chain)
    assert grant.depth >= max(hop.depth for hop in hops)
    for hop in hops:
        assert grant.tokens <= hop.tokens
        assert grant.max_depth <= hop.max_depth
        assert grant.time_ms <= hop.until_ms + WINDOW_MS - NOW_MS
        assert hop.tools is None or (grant.tools is not None and tools_within(grant.tools, hop.tools))
        assert hop.cost is None or (grant.cost is not None and grant.cost <= hop.cost)
        assert hop.targets is None or (grant.targets is not None and grant.targets <= hop.targets)
        assert hop.may_delegate or not grant.may_delegate


@given(st.lists(st.tuples(TOOLS, NAMES, st.integers(0, 10_000), st.integers(0, 9)), min_size=1, max_size=4))
@share(1 / 2)
def test_what_honest_hubs_pass_on_is_the_remit_that_they_pass_on(
    wishes: list[tuple[Tools | None, frozenset[str] | None, int, int]],
) -> None:
    remits = [a_remit()]
    for number, (tools, targets, tokens, max_depth) in enumerate(wishes, start=1):
        narrower = {"tools": tools, "targets": targets, "tokens": tokens, "max_depth": max_depth, "time_ms": 30_000}
        remits.append(remits[-1].narrow(caller=f"x@hub{number}", **narrower))  # pyright: ignore[reportArgumentType]
    grant, last = grant_of(WAY.verify(WAY.token(remits), len(remits))), remits[-1]
    assert (grant.user, grant.depth, grant.chain, grant.tools, grant.targets, grant.tokens, grant.max_depth) == (
        last.user,
        last.depth,
        last.chain,
        last.tools,
        last.targets,
        last.tokens,
        last.max_depth,
    )


# ── without the extra ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_extra_the_import_says_what_to_install() -> None:
    script = """
        import sys
        sys.modules["biscuit_auth"] = sys.modules["joserfc"] = None
        for module in ("chain", "verify", "jwt"):
            try:
                __import__(f"remit_server.transports.credentials.{module}")
            except ImportError as error:
                assert "[credentials]'" in str(error), error
            else:
                raise SystemExit(f"{module} was imported")
        from remit_server.transports.credentials import incoming, keys, outgoing, proof, trusted_files
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=PATIENCE_S)
