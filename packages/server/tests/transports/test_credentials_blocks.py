"""Several requests of one run: of their credentials the last block alone is checked, and that as strictly as all."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from biscuit_auth import BlockBuilder, KeyPair, PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from chains import NOW_MS, Way, a_hop, a_remit, content_of, content_said, joined, signed_on, taken_apart, with_block
from remit.protocol.errors import Code, Fault
from remit_server.transports.credentials import verify as verify_module
from remit_server.transports.credentials.chain import MAX_HOPS, apart, attenuate, payload_of, read_chain
from remit_server.transports.credentials.chain import content_of as content_in
from remit_server.transports.credentials.keys import Pair
from remit_server.transports.credentials.proof import CredentialChain, Verified
from remit_server.transports.credentials.verify import Chains, verify


class Run:
    """A hub that was asked under a credential of several hops, and passes requests on to the next hub."""

    def __init__(self, way: Way, hops: int = 3) -> None:
        self.way = way
        self.held = way.chain(way.token(way.remits(hops - 1, a_remit(max_depth=100))))
        self.number = hops - 1
        self.chains = Chains()
        assert isinstance(self.chains.read(self.request("first"), way.root), CredentialChain)

    def request(self, name: str) -> str:
        return self.way.onward(self.held, name)

    def forged(self, signer: Pair | KeyPair | None = None, *, code: str = "", **otherwise: Any) -> str:
        """Return a credential whose last block says anything, signed by anyone."""
        hop = replace(a_hop(self.number, self.way.pairs[self.number + 1]), **otherwise)
        signer = signer or self.way.pairs[self.number]
        return signed_on(self.held.biscuit, signer, self.number, content_of(hop), code=code).to_base64()


@pytest.fixture
def run() -> Run:
    return Run(Way())


def all_checked(*_: object) -> Any:
    raise AssertionError("all of it was checked")


# ── what is as it should be ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("hops", [2, 3, 6, MAX_HOPS])
def test_of_the_second_request_of_a_run_the_last_block_alone_is_checked_and_says_the_same(
    hops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(Way(hops + 2), hops)
    monkeypatch.setattr(verify_module, "read_chain", all_checked)
    second = run.request("second")
    assert content_said(run.chains.read(second, run.way.root)) == content_said(read_chain(second, run.way.root))


def test_what_was_read_so_is_passed_on_like_any_other(run: Run) -> None:
    way, second = run.way, run.request("second")
    chain = run.chains.read(second, way.root)
    assert isinstance(chain, CredentialChain)
    assert chain.biscuit is None
    onward = way.onward(chain, "r3")
    assert content_said(way.chain(onward)) == content_said(way.chain(way.chain(onward).biscuit.to_base64()))
    assert isinstance(way.verify(onward, 4), Verified)


def test_all_that_does_not_depend_on_signatures_is_asked_of_each(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "read_chain", all_checked)
    way, second = run.way, run.request("second")
    good: dict[str, Any] = {
        "peer_key": way.pairs[2].public,
        "me": {way.pairs[3].public},
        "roots": way.root,
        "now_ms": NOW_MS,
        "request_id": "second",
        "chains": run.chains,
    }
    assert isinstance(verify(second, **good), Verified)
    last = run.chains.read(second, way.root)
    assert isinstance(last, CredentialChain)
    wrongs: list[dict[str, Any]] = [
        {"peer_key": way.pairs[1].public},
        {"me": {way.pairs[4].public}},
        {"request_id": "first"},
        *({"revoked": {each}} for each in last.ids),
    ]
    for wrong in wrongs:
        outcome = verify(second, **{**good, **wrong})
        assert isinstance(outcome, Fault)
        assert outcome.code is Code.CREDENTIAL_INVALID
    good["now_ms"] += 10**9
    late = verify(second, **good)
    assert isinstance(late, Fault)
    assert late.code is Code.CREDENTIAL_EXPIRED


def test_a_hub_that_is_not_trusted_any_more_starts_nothing(run: Run) -> None:
    outcome = run.chains.read(run.request("second"), {run.way.pairs[1].public})
    assert isinstance(outcome, Fault)
    assert "not trusted" in outcome.message


def test_only_so_many_are_kept() -> None:
    way, chains = Way(), Chains(2)
    for _ in range(4):
        held = way.chain(way.token(way.remits(2)))
        assert isinstance(chains.read(way.onward(held, "r"), way.root), CredentialChain)
    assert len(chains._prefixes) == len(chains._chains) == 2  # pyright: ignore[reportPrivateUsage]


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ATTACKS: dict[str, Callable[[Run], str]] = {
    "another hub signs": lambda run: run.forged(run.way.pairs[0]),
    "the receiver signs": lambda run: run.forged(run.way.pairs[3]),
    "a key of another kind signs": lambda run: run.forged(
        KeyPair.from_private_key(PrivateKey("secp256r1-private/" + "07" * 32))
    ),
    "whoever holds it signs in the name of the hub": lambda run: posed(run, hub=False),
    "a hub signs what it made for another place": lambda run: posed(run, hub=True, place=False),
    "a hub signs with no key of the place": lambda run: posed(run, hub=True, key=False),
    "nobody signs": lambda run: run.held.biscuit.append(BlockBuilder("hop(2, hex:00)")).to_base64(),
    "another user": lambda run: run.forged(user="bob"),
    "too long for a header": lambda run: run.forged(tools=frozenset(f"{number:064}" for number in range(300))),
    "no deeper": lambda run: run.forged(depth=run.held.hops[-1].depth),
    "nobody added": lambda run: run.forged(chain=()),
    "too many agents": lambda run: run.forged(depth=200, chain=("a@b",) * 100),
    "a rule besides": lambda run: run.forged(code="check if true"),
    "a fact besides": lambda run: run.forged(code="hop(0, hex:00)"),
    "another number": lambda run: signed_on(
        run.held.biscuit, run.way.pairs[2], 1, content_of(a_hop(2, run.way.pairs[3]))
    ).to_base64(),
    "no hop": lambda run: signed_on(run.held.biscuit, run.way.pairs[2], 2, b"\xc0").to_base64(),
    "no bytes": lambda run: signed_on(run.held.biscuit, run.way.pairs[2], 2, "text").to_base64(),
    "no block": lambda run: with_block(run.held.token, b"", run.way.pairs[run.number]),
    "half a block": lambda run: with_block(run.held.token, b"\x0a\x03ho", run.way.pairs[run.number]),
    "a block of another run": lambda run: grafted(run, last_of(Run(run.way).request("r"))),
    "a block of another run with its secret": lambda run: grafted(
        run, last_of(other := Run(run.way).request("r")), taken_apart(other).secret
    ),
    "the secret of another block": lambda run: joined(taken_apart(run.request("r")).signed, bytes(32)),
    "the last block twice": lambda run: joined(
        taken_apart(run.request("r")).signed + last_of(run.request("r")), bytes(32)
    ),
    "without its last block": lambda run: joined(taken_apart(run.request("r")).above, bytes(32)),
}


def posed(run: Run, *, hub: bool = False, place: bool = True, key: bool = True) -> str:
    """Return a credential of the run with a block that names the right hub: who signed it, and for which place?"""
    payload = payload_of(run.number, content_of(a_hop(run.number, run.way.pairs[run.number + 1])))
    thief = Pair(b"t" * 32)
    return with_block(
        run.held.token,
        payload,
        run.way.pairs[run.number],
        signer=None if hub else thief,
        key=None if key else thief,
        place=b"" if place else bytes(64),
    )


def test_what_is_forged_here_would_count_if_it_were_signed(run: Run) -> None:
    """So that the attacks fail for no other reason."""
    token = posed(run, hub=True)
    assert isinstance(alone := read_chain(token, run.way.root), CredentialChain)
    assert content_said(run.chains.read(token, run.way.root)) == content_said(alone)


def last_of(token: str) -> bytes:
    parts = taken_apart(token)
    return parts.signed[parts.starts[-1] :]


def grafted(run: Run, block: bytes, secret: bytes | None = None) -> str:
    """Return a credential of the run with another's last block."""
    parts = taken_apart(run.request("r"))
    return joined(parts.above + block, secret or parts.secret)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_refused_alone_is_refused_behind_what_was_read_before(run: Run, attack: str) -> None:
    token = ATTACKS[attack](run)
    alone = read_chain(token, run.way.root)
    assert isinstance(alone, Fault)
    assert run.chains.read(token, run.way.root) == alone


def test_a_hub_that_may_not_ask_another_adds_nothing() -> None:
    way = Way()
    remits = way.remits(2, may_delegate=False)
    held = way.chain(way.token(remits))
    chains = Chains()
    # Two siblings that a hub made which was forbidden to: the first is refused, and so nothing stands for the second.
    for _ in range(2):
        block = signed_on(held.biscuit, way.pairs[2], 2, content_of(a_hop(2, way.pairs[3])))
        outcome = chains.read(block.to_base64(), way.root)
        assert isinstance(outcome, Fault)
        assert outcome.code is Code.NESTED_CALLS_FORBIDDEN


def test_no_byte_can_be_changed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is changed leads to the library, which checks everything; none passes by what was read before."""
    given = urlsafe_b64decode(run.request("second"))
    tokens: list[str] = []

    def refused(token: str, _: object) -> Fault:
        tokens.append(token)
        return Fault(code=Code.CREDENTIAL_INVALID, message="")

    monkeypatch.setattr(verify_module, "read_chain", refused)
    for place in range(len(given)):
        changed = bytearray(given)
        changed[place] ^= 1 << place % 8
        assert isinstance(run.chains.read(urlsafe_b64encode(changed).decode(), run.way.root), Fault), place
    assert len(tokens) == len(given)


@pytest.mark.parametrize("cut", [1, 36, 200])
def test_what_is_cut_off_or_goes_on_is_read_by_the_library(run: Run, cut: int) -> None:
    given = urlsafe_b64decode(run.request("second"))
    # Zeros in place of the end would change nothing where it happens to be zero.
    other = bytes(each ^ 0xFF for each in given[-cut:])
    for changed in (given[:-cut], given + given[-cut:], given[:-cut] + other):
        token = urlsafe_b64encode(changed).decode()
        outcome = run.chains.read(token, run.way.root)
        assert content_said(outcome) == content_said(read_chain(token, run.way.root))
        # The library takes a proof that comes twice, and checks all the same.
        assert isinstance(outcome, Fault) or outcome.biscuit is not None


def test_another_way_of_writing_the_same_is_read_by_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    token, tokens = run.request("second"), list[str]()

    def noted(token: str, roots: Any) -> CredentialChain | Fault:
        tokens.append(token)
        return read_chain(token, roots)

    monkeypatch.setattr(verify_module, "read_chain", noted)
    for other in {token.rstrip("="), f"{token}=", f"{token}\n", f"{token[:8]} {token[8:]}"} - {token}:
        assert content_said(run.chains.read(other, run.way.root)) == content_said(read_chain(other, run.way.root))
        assert tokens.pop() == other


def test_a_request_that_is_wider_is_narrowed_by_all_before_it(run: Run) -> None:
    wide = run.forged(tokens=10**9, max_depth=999, until_ms=NOW_MS + 10**9)
    verified = verify(
        wide,
        peer_key=run.way.pairs[2].public,
        me={run.way.pairs[3].public},
        roots=run.way.root,
        now_ms=NOW_MS,
        request_id="r2",
        chains=run.chains,
    )
    assert isinstance(verified, Verified)
    assert verified.chain.biscuit is None, "the last block alone was read"
    assert (verified.grant.tokens, verified.grant.max_depth) == (8_000, 100)


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.binary(max_size=400))
@example(b"")
@example(b"\x12\x00\x22\x22\x0a\x20" + bytes(32))
@example(b"\x08" + b"\xff" * 12)
def test_bytes_of_anyone_are_taken_apart_or_are_nothing(given: bytes) -> None:
    token = urlsafe_b64encode(given).decode()
    parts = apart(token)
    if parts is not None:
        assert joined(parts.signed, parts.secret) == token
        assert [parts.block(number) for number in range(len(parts.starts))] == [None] * len(parts.starts)
        assert [parts.end(number) for number in range(len(parts.starts))] == [None] * len(parts.starts)


@given(st.integers(0, MAX_HOPS), st.binary(max_size=400), st.binary(max_size=20))
def test_what_a_block_says_is_said_in_one_way(number: int, content: bytes, noise: bytes) -> None:
    payload = payload_of(number, content)
    assert content_in(payload, number) == content
    assert content_in(payload, number + 1) is None
    assert content_in(noise, number) is None
    if noise:
        assert content_in(payload + noise, number) is None
        assert content_in(noise + payload, number) is None


def test_what_stands_in_another_order_twice_or_in_more_bytes_is_not_taken_apart(run: Run) -> None:
    parts = taken_apart(run.request("r"))
    first, second, third = parts.starts
    root, authority, blocks = parts.signed[:first], parts.signed[first:second], parts.signed[second:]
    proof = b"\x22\x22\x0a\x20" + parts.secret
    assert apart(urlsafe_b64encode(root + authority + blocks + proof).decode()) == parts
    assert apart(urlsafe_b64encode(authority + blocks + proof).decode()) is not None, "the number is optional"
    longer = authority[:1] + bytes([authority[1] | 0x80, authority[2] | 0x80, 0]) + authority[3:]
    for changed in (
        root + root + authority + blocks + proof,
        root + authority + authority + blocks + proof,
        root + authority + proof + blocks,
        root + blocks + authority + proof,
        authority + root + blocks + proof,
        root + authority + blocks + proof + proof,
        root + authority + blocks,
        root + longer + blocks + proof,
        root + authority + blocks + b"\x38\x00" + proof,
        root + authority + blocks + b"\x22\x42\x12\x40" + bytes(64),
    ):
        assert apart(urlsafe_b64encode(changed).decode()) is None
    assert parts.signed[third:] == last_of(urlsafe_b64encode(root + authority + blocks + proof).decode())


def test_a_token_that_is_no_text_of_base64_is_nothing() -> None:
    for token in ("", "é", "a", "\udc80", "====", "x" * 20_000):
        assert apart(token) is None
        assert isinstance(Chains().read(token, set()), Fault)


def test_a_block_that_is_made_is_one_that_can_be_taken_apart(run: Run) -> None:
    """What the library writes today is what is read here; if it wrote otherwise, each would be checked whole."""
    parts = taken_apart(run.request("r"))
    assert parts.end(0) is not None
    assert all(parts.block(number) is not None for number in range(1, len(parts.starts)))
    made = attenuate(
        run.held,
        run.way.pairs[2],
        a_remit(depth=9, chain=(*run.held.agents, "x@y")),
        to=run.way.pairs[3].public,
        request_id="r",
        now_ms=NOW_MS,
    )
    assert isinstance(made, str)
    assert len(taken_apart(made).starts) == 3
