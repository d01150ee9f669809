"""Keys of hubs, proofs of requests, and what requests under one credential may spend."""

import asyncio
import base64
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chains import NOW_MS, Way, a_hop, credential_of
from properties import share
from remit.ports import OutgoingRequest
from remit.protocol.errors import Code, Fault, RemitError
from remit_server.transports.credentials import incoming as module
from remit_server.transports.credentials.incoming import Share, Spending
from remit_server.transports.credentials.keys import HubKey, Pair, fingerprint, is_signed, public_of, written
from remit_server.transports.credentials.proof import EMPTY, WINDOW_MS, Proofs, Statement, Verified, digest_of, prove
from remit_server.transports.credentials.trusted_files import WatchedFile, revoked_ids, trusted_keys
from remit_testing.memory import MemoryStore

DAY_MS = 86_400_000
# Of RFC 8032, 7.1, test 1.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = "ed25519/d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def without_key(given: Any) -> str | None:
    """Name a test without the keys in it, which are others in each process."""
    return given.replace(A.public, "A") if isinstance(given, str) else None


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_written_and_signs_as_the_standard_says() -> None:
    pair = Pair(SEED)
    assert pair.public == PUBLIC
    assert pair.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")
    assert is_signed(PUBLIC, pair.sign(b"words"), b"words")
    assert not is_signed(PUBLIC, pair.sign(b"words"), b"other words")
    assert not is_signed(PUBLIC, b"short", b"words")
    assert fingerprint(PUBLIC) == "SHA256:If4x36FUomFia/hUBG/SJxt77UtqvkWqWId+9H+XIbk"


def test_a_key_that_was_copied_by_hand_is_read_whatever_its_case() -> None:
    assert public_of(f" {PUBLIC.upper()}\n") == PUBLIC


@pytest.mark.parametrize("text", ["", "ed25519/", PUBLIC[:-1], PUBLIC + "0", PUBLIC.removeprefix("ed25519/"), "x" * 72])
def test_what_is_no_key_is_refused_with_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        public_of(text)


def test_the_secret_half_shows_nowhere(tmp_path: Path) -> None:
    key = HubKey((*HubKey.create(NOW_MS).stages,))
    secret = key.signing(NOW_MS).seed.hex()
    for each in (key, key.stages, key.signing(NOW_MS)):
        assert secret not in repr(each)
    file = tmp_path / "hub.key"
    file.write_bytes(b'{"kind":"remit-hub-key/1","versions":[{"seed":"%s","signs_from_ms":"x"}]}' % secret.encode())
    file.chmod(0o600)
    with pytest.raises(RemitError) as raised:
        HubKey.load(file)
    assert secret not in str(raised.value)
    assert raised.value.__cause__ is None


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_comes_back_from_its_file_which_is_its_owners_alone(tmp_path: Path) -> None:
    file, key = tmp_path / "hub.key", HubKey.create(NOW_MS).rotated(NOW_MS, DAY_MS)
    previous = os.umask(0)
    try:
        key.save(file)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    loaded = HubKey.load(file)
    assert [(each.pair.seed, each.signs_from_ms, each.accepted_until_ms) for each in loaded.stages] == [
        (each.pair.seed, each.signs_from_ms, each.accepted_until_ms) for each in key.stages
    ]
    assert list(tmp_path.iterdir()) == [file]


def test_a_key_is_never_written_over_by_mistake(tmp_path: Path) -> None:
    file = tmp_path / "hub.key"
    first, second = HubKey.create(NOW_MS), HubKey.create(NOW_MS)
    first.save(file)
    with pytest.raises(FileExistsError):
        second.save(file)
    assert HubKey.load(file).signing(NOW_MS).public == first.signing(NOW_MS).public
    second.save(file, replace=True)
    assert HubKey.load(file).signing(NOW_MS).public == second.signing(NOW_MS).public
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "hub.key"
    HubKey.create(NOW_MS).save(file)
    file.chmod(mode)
    with pytest.raises(RemitError, match=r"can be read by other users[\s\S]*chmod 600") as raised:
        HubKey.load(file)
    assert raised.value.fault.code is Code.TEAM_INVALID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b"remit-ed25519 00",
        b'{"kind":"remit-hub-key/1","versions":[]}',
        b'{"kind":"remit-hub-key/2"}',
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "hub.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(RemitError, match=r"hub.key is damaged"):
        HubKey.load(file)
    assert file.read_bytes() == content


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RemitError, match=r"no hub key found[\s\S]*remit keys init"):
        HubKey.load(tmp_path / "hub.key")
    with pytest.raises(RemitError, match="cannot be read"):
        HubKey.load(tmp_path)


# ── rotation ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def publics(key: HubKey, now_ms: int) -> list[str]:
    return [stage.pair.public for stage in key.accepted(now_ms)]


def test_for_half_of_the_overlap_the_old_key_signs_and_all_the_time_both_count() -> None:
    first = HubKey.create(NOW_MS)
    old = first.signing(NOW_MS).public
    key = first.rotated(NOW_MS, DAY_MS)
    (new,) = set(publics(key, NOW_MS)) - {old}
    for at_ms, signs, count in [
        (NOW_MS, old, [old, new]),
        (NOW_MS + DAY_MS // 2 - 1, old, [old, new]),
        (NOW_MS + DAY_MS // 2, new, [old, new]),
        (NOW_MS + DAY_MS - 1, new, [old, new]),
        (NOW_MS + DAY_MS, new, [new]),
    ]:
        assert (key.signing(at_ms).public, publics(key, at_ms)) == (signs, count)
    assert key.pair(old, NOW_MS) is not None
    assert key.pair(old, NOW_MS + DAY_MS) is None
    assert key.pair("ed25519/" + "0" * 64, NOW_MS) is None


def test_a_key_that_was_stolen_is_given_up_at_once() -> None:
    first = HubKey.create(NOW_MS)
    key = first.rotated(NOW_MS, 0)
    assert len(key.stages) == 1
    assert key.signing(NOW_MS).public != first.signing(NOW_MS).public


def test_rotating_twice_in_a_row_lengthens_no_keys_life() -> None:
    first = HubKey.create(NOW_MS)
    old = first.signing(NOW_MS).public
    key = first.rotated(NOW_MS, DAY_MS).rotated(NOW_MS + 1_000, 10 * DAY_MS)
    assert len(publics(key, NOW_MS + 1_000)) == 3
    assert old not in publics(key, NOW_MS + DAY_MS)
    assert key.signing(NOW_MS + 1_000).public == old
    assert len(publics(key, NOW_MS + 20 * DAY_MS)) == 1


def test_a_clock_that_was_set_back_leaves_a_hub_with_its_key() -> None:
    key = HubKey.create(NOW_MS)
    assert key.signing(NOW_MS - DAY_MS).public == key.signing(NOW_MS).public


@given(st.lists(st.tuples(st.integers(0, DAY_MS), st.integers(0, 3 * DAY_MS)), max_size=6), st.integers(0, 9 * DAY_MS))
def test_the_key_that_signs_is_always_one_that_counts(rotations: list[tuple[int, int]], later_ms: int) -> None:
    key, at_ms = HubKey.create(NOW_MS), NOW_MS
    for after_ms, overlap_ms in rotations:
        at_ms += after_ms
        key = key.rotated(at_ms, overlap_ms)
        assert key.signing(at_ms).public in publics(key, at_ms)
    assert key.signing(at_ms + later_ms).public in publics(key, at_ms + later_ms)


# ── proofs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

# The same in every process: what a test is called must not differ between those that share the work.
A, B, C = (Pair(bytes([number]) * 32) for number in (1, 2, 3))
SENDING = OutgoingRequest("POST", "/v1/delegations", b"{}")
BODY = sha256(SENDING.body).digest()
SENT: dict[str, Any] = {
    "now_ms": NOW_MS,
    "credential": "token",
    "method": SENDING.method,
    "path": SENDING.path,
    "body": BODY,
}


def proof(pair: Pair = A, *, now_ms: int = NOW_MS) -> str:
    return prove(pair, SENDING, to=B.public, request_id="r-1", now_ms=now_ms, credential="token")


def take(header: str, proofs: Proofs | None = None, **otherwise: Any) -> Statement | Fault:
    expected: dict[str, Any] = {"known": {A.public, C.public}, "me": {B.public}, **SENT}
    return (proofs or Proofs()).take(header, **{**expected, **otherwise})


def signer(outcome: Statement | Fault) -> str:
    assert isinstance(outcome, Statement), outcome
    return outcome.signer


def why(outcome: Statement | Fault) -> str:
    assert isinstance(outcome, Fault), outcome
    assert outcome.code is Code.UNAUTHENTICATED
    return outcome.message.removeprefix("hub authentication failed: ")


def test_a_proof_says_who_sends_what() -> None:
    stated = take(proof())
    assert isinstance(stated, Statement)
    assert (stated.signer, stated.request) == (A.public, digest_of("r-1"))
    assert signer(take(proof(C))) == C.public


@pytest.mark.parametrize(
    ("otherwise", "reason"),
    [
        ({"known": {C.public}}, f"the key {A.public} does not belong to any peer"),
        ({"me": {C.public}}, "its proof is for another hub"),
        ({"credential": ""}, "its proof is for another credential"),
        ({"credential": "tokem"}, "its proof is for another credential"),
        ({"credential": "\ud800"}, "its proof is for another credential"),
        ({"method": "GET"}, "its proof is for another method than GET"),
        ({"path": "/v1/delegations/x"}, "its proof is for another path"),
        ({"path": "/v1/delegations?x"}, "its proof is for another path"),
        ({"body": sha256(b"{ }").digest()}, "its proof is for another body"),
        ({"body": EMPTY}, "its proof is for another body"),
    ],
    ids=without_key,
)
def test_a_proof_is_good_for_what_it_was_made_for(otherwise: dict[str, Any], reason: str) -> None:
    assert why(take(proof(), **otherwise)) == reason


@pytest.mark.parametrize("off_ms", [-WINDOW_MS, 0, WINDOW_MS])
def test_clocks_may_differ_a_little(off_ms: int) -> None:
    assert signer(take(proof(), now_ms=NOW_MS + off_ms)) == A.public
    beyond = off_ms + (1 if off_ms > 0 else -1)
    if off_ms:
        when = "ago" if off_ms > 0 else "ahead of this clock"
        reason = f"its proof was made 30 seconds {when}; clocks may differ by 30 seconds"
        assert why(take(proof(), now_ms=NOW_MS + beyond)) == reason


def test_a_proof_is_taken_once() -> None:
    proofs, header = Proofs(), proof()
    assert signer(take(header, proofs)) == A.public
    for later_ms in range(-WINDOW_MS, WINDOW_MS + 1, 5_000):
        assert why(take(header, proofs, now_ms=NOW_MS + later_ms)) == "its proof was used before"
    assert signer(take(proof(), proofs)) == A.public


def test_what_was_taken_is_remembered_as_long_as_it_could_be_used_and_no_longer() -> None:
    proofs = Proofs(remembered=3)
    early = proof(now_ms=NOW_MS + WINDOW_MS)
    assert signer(take(early, proofs)) == A.public
    for at_ms in range(NOW_MS, NOW_MS + 2 * WINDOW_MS + 1, WINDOW_MS // 2):
        assert signer(take(proof(now_ms=at_ms), proofs, now_ms=at_ms)) == A.public
        assert why(take(early, proofs, now_ms=at_ms)) == "its proof was used before"


def test_more_proofs_than_can_be_remembered_are_turned_away_and_none_is_forgotten() -> None:
    proofs = Proofs(remembered=2)
    headers = [proof() for _ in range(3)]
    assert [signer(take(header, proofs)) for header in headers[:2]] == [A.public] * 2
    full = take(headers[2], proofs)
    assert isinstance(full, Fault)
    assert (full.code, full.retry_after_ms) == (Code.OVERLOADED, WINDOW_MS)
    assert why(take(headers[0], proofs)) == "its proof was used before"


def test_only_what_was_taken_can_be_looked_at_again() -> None:
    """A proof that nobody has checked says nothing, not even with the words of one that was."""
    proofs, header = Proofs(), proof()
    assert proofs.taken(header) is None
    stated = take(header, proofs)
    assert proofs.taken(header) == stated
    assert isinstance(stated, Statement)
    forged = b"\x00" * 64 + msgspec.msgpack.encode(replace(stated, request=digest_of("r-2")))
    assert proofs.taken(base64.urlsafe_b64encode(forged).decode()) is None
    assert proofs.taken("x") is None


@pytest.mark.parametrize(
    ("sent", "came", "same"),
    [
        ("/v1/delegations/a%40b/cancel", "/v1/delegations/a@b/cancel", True),
        ("/v1/delegations/a%2fb/cancel", "/v1/delegations/a%2Fb/cancel", True),
        ("/v1/delegations/a%2Fb/cancel", "/v1/delegations/a/b/cancel", False),
        ("/v1/runs?limit=1", "/v1/runs?limit=2", False),
        ("/v1/runs", "/v1/runs/", False),
        ("/v1/\u00e4", "/v1/%C3%A4", True),
    ],
)
def test_a_path_may_be_spelled_otherwise_and_not_be_another(sent: str, came: str, same: bool) -> None:
    """What stands between may spell the percent-encoding of a path in its own way."""
    header = prove(A, OutgoingRequest("GET", sent), to=B.public, request_id="r-1", now_ms=NOW_MS)
    outcome = take(header, credential="", method="GET", path=came, body=EMPTY)
    assert isinstance(outcome, Statement) is same


def test_a_proof_that_was_changed_is_not_believed() -> None:
    content = base64.urlsafe_b64decode(proof())
    for place in range(len(content)):
        changed = bytes([*content[:place], content[place] ^ 1, *content[place + 1 :]])
        assert isinstance(take(base64.urlsafe_b64encode(changed).decode()), Fault)


@pytest.mark.parametrize("header", ["", "x", "ü", "\ud800", "A" * 1_000, "A" * 10_000_000, "====", "\x00"])
def test_what_is_no_proof_is_refused(header: str) -> None:
    assert why(take(header)) == "its proof is malformed, or made by another version of Remit"


@given(st.binary(max_size=500))
def test_no_bytes_raise_anything(content: bytes) -> None:
    assert isinstance(take(base64.urlsafe_b64encode(content).decode()), Fault)


# ── files beside it ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_trusted_keys_are_read_oldest_first() -> None:
    text = (
        f"# our peers\nacme {A.public}  # since spring\n\nbolt {B.public.upper()}\nacme {C.public}\nacme {A.public}\n"
    )
    assert trusted_keys(text.encode()) == {"acme": (A.public, C.public), "bolt": (B.public,)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("acme", "line 1 is not a peer name followed by a key"),
        (f"\n{A.public}", "line 2 is not a peer name followed by a key"),
        (f"ac/me {A.public}", "line 1 is not a peer name followed by a key"),
        ("acme ed25519/12", "line 1: a public key is written"),
        (f"acme {A.public}\nbolt {A.public}", "line 2: the key already belongs to acme"),
    ],
    ids=without_key,
)
def test_a_line_that_trusts_nobody_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        trusted_keys(text.encode())


def test_a_list_of_revocations_is_read_or_not_at_all() -> None:
    one, two = "0a" * 64, "0B" * 64
    assert revoked_ids(f"{one} # stolen\n\n{two}\n".encode()) == {one, two.lower()}
    with pytest.raises(ValueError, match="line 2 is not a credential id of 128 hexadecimal digits"):
        revoked_ids(f"{one}\n{one[:-2]}\n".encode())


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, reads = tmp_path / "list", list[bytes]()

    def counted(content: bytes) -> str:
        reads.append(content)
        return content.decode()

    watched = WatchedFile(file, counted, missing="nothing")
    assert watched.value == "nothing"
    file.write_text("one", encoding="ascii")
    assert [watched.value, watched.value, reads] == ["one", "one", [b"one"]]
    file.write_text("three", encoding="ascii")
    assert watched.value == "three"
    file.unlink()
    assert watched.value == "nothing"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def strict(content: bytes) -> int:
        return int(content)

    with pytest.raises(RemitError, match="there is no such file"):
        _ = WatchedFile(tmp_path / "list", strict).value
    (tmp_path / "list").write_text("x", encoding="ascii")
    with pytest.raises(RemitError, match="list: invalid literal"):
        _ = WatchedFile(tmp_path / "list", strict).value
    with pytest.raises(RemitError, match="cannot be read"):
        _ = WatchedFile(tmp_path, strict).value
    with (tmp_path / "list").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(RemitError, match="it is too large"):
        _ = WatchedFile(tmp_path / "list", strict).value


@pytest.mark.parametrize(
    "key",
    [
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    ],
)
@pytest.mark.parametrize("sign", [0, 0x80])
def test_nothing_is_signed_by_a_key_that_needs_no_secret(key: str, sign: int) -> None:
    """For such keys some signatures hold for many messages, or for all."""
    raw = bytearray.fromhex(key)
    raw[-1] |= sign
    everything = [bytes(64), b"\x01" + bytes(63), bytes(raw) + bytes(32)]
    messages = [b"message %d" % number for number in range(64)]
    assert not any(is_signed(written(bytes(raw)), each, message) for each in everything for message in messages)


class Wall:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class CreditedHub:
    """A hub that is asked many times under one credential, in which the hubs before grant each other *tokens*."""

    def __init__(self, *tokens: int, way: Way | None = None) -> None:
        self.way = way or Way()
        hops = [a_hop(number, self.way.pairs[number + 1], tokens=each) for number, each in enumerate(tokens)]
        self.held = self.way.chain(credential_of(self.way, *hops))

    def request(self, request_id: str) -> Verified:
        """Return the credential of one more request."""
        token = self.way.onward(self.held, request_id)
        verified = self.way.verify(token, len(self.held.hops) + 1, request_id=request_id)
        assert isinstance(verified, Verified), verified
        return verified


def given_to(share: Share | Fault) -> int:
    assert isinstance(share, Share), share
    return share.tokens


def code_of(share: Share | Fault) -> Code:
    assert isinstance(share, Fault), share
    return share.code


def counted() -> Spending:
    return Spending(wall_ms=Wall())


async def in_store() -> Spending:
    store = MemoryStore(wall_ms=Wall())
    await store.open()
    return Spending(store.incr, wall_ms=Wall())


@pytest.fixture(params=["memory", "store"])
async def spending(request: pytest.FixtureRequest) -> Spending:
    return counted() if request.param == "memory" else await in_store()


async def test_requests_under_one_credential_share_its_tokens(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    assert given_to(await spending.reserve(hub.request("a"), 600)) == 600
    assert given_to(await spending.reserve(hub.request("b"), 600)) == 400
    assert code_of(await spending.reserve(hub.request("c"), 600)) is Code.TOKEN_BUDGET_EXCEEDED


async def test_what_was_not_used_is_there_for_the_next(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    first = await spending.reserve(hub.request("a"), 1_000)
    assert isinstance(first, Share)
    await spending.settle(first, 300)
    assert given_to(await spending.reserve(hub.request("b"), 1_000)) == 700


async def test_who_used_more_than_given_gets_nothing_back(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    first = await spending.reserve(hub.request("a"), 600)
    assert isinstance(first, Share)
    await spending.settle(first, 5_000)
    assert given_to(await spending.reserve(hub.request("b"), 1_000)) == 400


async def test_every_block_counts_for_itself(spending: Spending) -> None:
    """What the narrowest of them keeps back is not lost to the others."""
    way = Way()
    wide = CreditedHub(1_000, way=way)
    narrow = CreditedHub(1_000, way=way)
    narrow.held = way.chain(way.onward(wide.held, "middle", 300))
    assert given_to(await spending.reserve(narrow.request("a"), 900)) == 300
    assert code_of(await spending.reserve(narrow.request("b"), 900)) is Code.TOKEN_BUDGET_EXCEEDED
    assert given_to(await spending.reserve(wide.request("c"), 900)) == 700


async def test_a_hub_cannot_multiply_what_it_was_granted_by_passing_it_on_twice(spending: Spending) -> None:
    way = Way()
    root, forks = CreditedHub(1_000, way=way), [CreditedHub(1_000, way=way), CreditedHub(1_000, way=way)]
    for fork in forks:
        fork.held = way.chain(way.onward(root.held, "middle"))
    assert [given_to(await spending.reserve(fork.request("a"), 700)) for fork in forks] == [700, 300]


async def test_the_same_request_sent_again_is_counted_once(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    first = await spending.reserve(hub.request("a"), 600)
    again = await spending.reserve(hub.request("a"), 600)
    assert (given_to(first), given_to(again)) == (600, 600)
    assert isinstance(again, Share)
    await spending.settle(again, 600)
    assert given_to(await spending.reserve(hub.request("b"), 600)) == 400


async def test_a_request_that_never_started_is_counted_when_it_comes_again(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    for _ in range(3):
        share = await spending.reserve(hub.request("a"), 600)
        assert given_to(share) == 600
        assert isinstance(share, Share)
        await spending.settle(share, 0)
    assert given_to(await spending.reserve(hub.request("a"), 600)) == 600
    assert given_to(await spending.reserve(hub.request("b"), 600)) == 400


async def test_a_request_that_was_refused_for_lack_of_tokens_can_come_again(spending: Spending) -> None:
    hub = CreditedHub(1_000)
    first = await spending.reserve(hub.request("a"), 1_000)
    assert isinstance(first, Share)
    assert code_of(await spending.reserve(hub.request("b"), 10)) is Code.TOKEN_BUDGET_EXCEEDED
    await spending.settle(first, 400)
    assert given_to(await spending.reserve(hub.request("b"), 10**6)) == 600


async def test_money_is_shared_like_tokens_and_given_back(spending: Spending) -> None:
    way = Way()
    hub = CreditedHub(1_000, way=way)
    hub.held = way.chain(credential_of(way, a_hop(0, way.pairs[1], tokens=1_000, cost=50)))
    first = await spending.reserve(hub.request("a"), 100, cost=40)
    second = await spending.reserve(hub.request("b"), 100)
    assert isinstance(first, Share)
    assert isinstance(second, Share)
    assert (first.cost, second.cost) == (40, 10)
    why = await spending.reserve(hub.request("c"), 100)
    assert isinstance(why, Fault)
    assert why.message == "all money that the credential grants are spent or reserved"
    await spending.settle(first, 100, 15)
    third = await spending.reserve(hub.request("c"), 100, cost=0)
    fourth = await spending.reserve(hub.request("d"), 100, cost=90)
    assert isinstance(third, Share)
    assert isinstance(fourth, Share)
    assert (third.cost, fourth.cost) == (0, 25)


async def test_a_credential_that_was_not_passed_on_bounds_its_one_request(spending: Spending) -> None:
    way = Way()
    direct = way.verify(credential_of(way, a_hop(0, way.pairs[1], tokens=1_000)), 1)
    assert isinstance(direct, Verified)
    for _ in range(2):
        share = await spending.reserve(direct, 5_000)
        assert given_to(share) == 1_000
        assert isinstance(share, Share)
        await spending.settle(share, 1_000)


async def test_who_asks_for_nothing_gets_nothing_and_is_not_refused(spending: Spending) -> None:
    assert given_to(await spending.reserve(CreditedHub(1_000).request("a"), 0)) == 0


async def test_what_is_counted_is_forgotten_when_the_credential_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNTERS", 2)
    wall = Wall()
    spending, hub = Spending(wall_ms=wall), CreditedHub(1_000)
    share = await spending.reserve(hub.request("a"), 1_000)
    assert isinstance(share, Share)
    wall.now_ms += 60_000 + WINDOW_MS
    assert code_of(await spending.reserve(CreditedHub(1_000).request("b"), 1_000)) is Code.OVERLOADED
    wall.now_ms += 1
    await spending.settle(share, 1)  # too late to be of use, and no harm
    wall.now_ms -= 1
    later = CreditedHub(1_000)
    later.held = hub.way.chain(credential_of(hub.way, a_hop(0, hub.way.pairs[1], until_ms=wall.now_ms + 10)))
    later.way = hub.way
    wall.now_ms += 1
    assert given_to(await spending.reserve(later.request("c"), 1_000)) == 1_000


async def test_no_counter_is_given_up_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNTERS", 4)
    spending = counted()
    assert given_to(await spending.reserve(CreditedHub(1_000).request("a"), 1)) == 1
    assert given_to(await spending.reserve(CreditedHub(1_000).request("a"), 1)) == 1
    full = await spending.reserve(CreditedHub(1_000).request("a"), 1)
    assert isinstance(full, Fault)
    assert (full.code, full.retry_after_ms) == (Code.OVERLOADED, WINDOW_MS)


WAY = Way()


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1_500) | st.none()), max_size=6), st.booleans())
@share(1 / 2)
def test_together_they_never_get_more_than_was_granted(asks: list[tuple[int, int | None]], stored: bool) -> None:
    async def spend() -> None:
        spending = await in_store() if stored else counted()
        hub = CreditedHub(1_000, way=WAY)
        held = 0
        for number, (tokens, used) in enumerate(asks):
            share = await spending.reserve(hub.request(f"r-{number}"), tokens)
            if isinstance(share, Share):
                if used is not None:
                    await spending.settle(share, used)
                held += share.tokens if used is None else min(used, share.tokens)
            assert held <= 1_000

    asyncio.run(spend())
