"""Who a device is, what others can check of it, and what two people compare."""

import os
import re
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from remit.installed import install_command
from remit.protocol.errors import Code, RemitError
from remit_relay.device import state as device_files
from remit_relay.device.identity import (
    DeviceBundle,
    PreKey,
    choose_prekey,
    comparable_code,
    device_id,
    make_card,
    make_prekey,
    read_bundle,
    read_card,
    read_link,
)
from remit_relay.device.peers import KeyChanged
from remit_relay.device.state import DeviceFile, open_keys
from remit_relay.e2e.account import Device, olm
from remit_server.transports.credentials.keys import Pair, is_signed, raw
from sealed_devices import close, open_device, pair, prekey_of


def pair_of(number: int) -> Pair:
    return Pair(bytes([number]) * 32)


# ── cards and links ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_id_follows_from_its_key_alone():
    assert device_id(pair_of(1).public) == device_id(pair_of(1).public)
    assert device_id(pair_of(1).public) != device_id(pair_of(2).public)
    assert device_id(pair_of(1).public) == "dklrrreoi425pqbxmrhxnii5qw"


@pytest.mark.parametrize("page", ["", "https://remit.example/pair"])
def test_a_card_survives_being_a_link(page: str):
    card = make_card(pair_of(1), b"o" * 32, name="Ada's laptop 💻", gateway="wss://relay.example:8443/v1")
    assert read_link(f"  {card.link(page)}\n") == card
    assert card.link(page).startswith(f"{page}#" if page else "remit:pair#")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("device", device_id(pair_of(2).public), "device"),
        ("key", pair_of(2).public, "device"),
        ("olm", "00" * 32, "signature"),
        ("name", "Eve", "signature"),
        ("gateway", "wss://eve.example", "signature"),
        ("signature", "00" * 64, "signature"),
    ],
)
def test_no_field_of_a_card_can_be_changed_by_who_carries_it(field: str, value: str, named: str):
    card = structs.replace(make_card(pair_of(1), b"o" * 32, name="Ada"), **{field: value})
    with pytest.raises(RemitError) as caught:
        read_link(card.link())
    assert caught.value.fault.code == Code.CREDENTIAL_INVALID
    assert [problem.path for problem in caught.value.fault.problems] == [named]


def test_a_card_with_the_id_of_one_device_and_all_else_of_another_is_refused():
    mine = make_card(pair_of(2), b"o" * 32, name="Ada")
    with pytest.raises(RemitError, match="this is not the id of the card's key"):
        read_card(msgspec.json.encode(structs.replace(mine, device=device_id(pair_of(1).public))))


@pytest.mark.parametrize(
    "link",
    [
        "",
        "remit:pair",
        "remit:pair#",
        "remit:pair#%%",
        "http://a.example/#abc",
        "remit:pair#e30",
        "remit:pair#" + "a" * 9999,
    ],
)
def test_what_is_no_link_is_refused_with_what_to_do(link: str):
    with pytest.raises(RemitError) as caught:
        read_link(link)
    assert caught.value.fault.code == Code.INPUT_VALIDATION_FAILED
    assert caught.value.fault.suggestion


def test_a_link_that_was_cut_off_is_refused():
    link = make_card(pair_of(1), b"o" * 32, name="Ada").link()
    for length in range(len("remit:pair#"), len(link), 7):
        with pytest.raises(RemitError):
            read_link(link[:length])


@pytest.mark.parametrize("name", ["", " Ada", "a\x1b[2J", "a\nb", "a" * 65])
def test_a_name_that_would_disturb_a_terminal_or_a_list_is_refused(name: str):
    with pytest.raises(RemitError, match="invalid name of the device"):
        make_card(pair_of(1), b"o" * 32, name=name)


@pytest.mark.parametrize(
    "gateway", ["relay.example", "ftp://relay.example", "wss://", "wss://[", "javascript:alert(1)"]
)
def test_a_gateway_that_cannot_be_reached_is_refused(gateway: str):
    with pytest.raises(RemitError, match="invalid gateway of the device"):
        make_card(pair_of(1), b"o" * 32, name="Ada", gateway=gateway)


# ── codes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_sides_see_the_same_code():
    ada, bob = make_card(pair_of(1), b"o" * 32, name="Ada"), make_card(pair_of(2), b"p" * 32, name="Bob")
    code = comparable_code(ada, bob)
    assert code == comparable_code(bob, ada)
    assert [len(group) for group in code.split()] == [5] * 8
    assert code.replace(" ", "").isdigit()


def test_a_code_changes_with_any_of_the_four_keys_and_with_nothing_else():
    ada, bob = make_card(pair_of(1), b"o" * 32, name="Ada"), make_card(pair_of(2), b"p" * 32, name="Bob")
    others = [
        (make_card(pair_of(3), b"o" * 32, name="Ada"), bob),
        (make_card(pair_of(1), b"x" * 32, name="Ada"), bob),
        (ada, make_card(pair_of(3), b"p" * 32, name="Bob")),
        (ada, make_card(pair_of(2), b"x" * 32, name="Bob")),
        (make_card(pair_of(1), b"p" * 32, name="Ada"), make_card(pair_of(2), b"o" * 32, name="Bob")),
    ]
    codes = {comparable_code(*each) for each in [(ada, bob), *others]}
    assert len(codes) == len(others) + 1
    renamed = make_card(pair_of(1), b"o" * 32, name="Ada 2", gateway="wss://new.example")
    assert comparable_code(renamed, bob) == comparable_code(ada, bob)


# ── keys for sessions ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_published_keys_are_signed_and_all_different(tmp_path: Path):
    ada = open_device(tmp_path / "ada")
    first, second = ada.device.publish(20), ada.device.publish(20)
    keys = [msgspec.msgpack.decode(each, type=PreKey) for each in (*first.one_time, *second.one_time)]
    assert len({key.key for key in keys}) == 40
    assert all(key.is_of(ada.device.card) and key.use == "once" for key in keys)
    assert read_bundle(first.bundle).fallback.key != read_bundle(second.bundle).fallback.key
    assert read_bundle(first.bundle).card == ada.device.card
    # What the gateway takes: 16 KiB for a bundle, 1 KiB for a key.
    assert len(first.bundle) < 2_048
    assert max(map(len, first.one_time)) < 256


def test_a_gateway_can_neither_make_nor_swap_a_key(tmp_path: Path):
    ada, eve = open_device(tmp_path / "ada"), open_device(tmp_path / "eve")
    mine, hers = ada.device.publish(1), eve.device.publish(1)
    key = msgspec.msgpack.decode(mine.one_time[0], type=PreKey)
    evil = msgspec.msgpack.decode(hers.one_time[0], type=PreKey)
    swapped = [
        evil,
        structs.replace(evil, device=ada.device.id),
        structs.replace(key, key=evil.key),
        structs.replace(key, use="fallback"),
        structs.replace(key, signature=evil.signature),
    ]
    for each in swapped:
        with pytest.raises(RemitError) as caught:
            choose_prekey(ada.device.card, mine.bundle, msgspec.msgpack.encode(each))
        assert caught.value.fault.code == Code.CREDENTIAL_INVALID
    with pytest.raises(RemitError, match="than those known here"):
        choose_prekey(ada.device.card, hers.bundle, None)
    mixed = DeviceBundle(card=ada.device.card, fallback=read_bundle(hers.bundle).fallback)
    for bundle in (msgspec.msgpack.encode(mixed), b"", b"\xff"):
        with pytest.raises(RemitError):
            choose_prekey(ada.device.card, bundle, None)
    with pytest.raises(RemitError, match="invalid one-time key"):
        choose_prekey(ada.device.card, mine.bundle, b"\x00")


def test_a_key_for_one_olm_identity_is_refused_for_another():
    """A gateway that hands out the keys of an earlier life of the same device gets nothing sent to them."""
    before, after = make_card(pair_of(9), b"a" * 32, name="Ada"), make_card(pair_of(9), b"b" * 32, name="Ada")
    key = make_prekey(pair_of(9), b"a" * 32, use="once", key=b"k" * 32)
    assert key.is_of(before)
    assert not key.is_of(after)


def test_nothing_is_sent_to_a_key_that_the_device_did_not_sign(tmp_path: Path):
    ada, bob, eve = (open_device(tmp_path / name) for name in ("ada", "bob", "eve"))
    pair(ada, bob)
    ada.seal(bob.device.id, b"secret")
    for attempt in (ada.begin, ada.renew):
        with pytest.raises(RemitError, match="invalid signature of the session key"):
            attempt(bob.device.id, structs.replace(prekey_of(eve), device=bob.device.id))
    assert ada.outbox() == []


# ── at rest ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_comes_back_as_it_was_and_keeps_its_keys_when_it_is_renamed(tmp_path: Path):
    first = open_device(tmp_path / "ada")
    before = first.device.card
    card = first.device.rename(name="Ada at work", gateway="wss://other.example").checked()
    assert (card.device, card.key, card.olm) == (first.device.id, before.key, before.olm)
    close(first)
    second = open_device(tmp_path / "ada")
    assert (second.device.card, second.device.public) == (card, card.key)
    assert is_signed(card.key, second.device.sign(b"hello"), b"hello")


def test_a_file_holds_one_device(tmp_path: Path):
    first = open_device(tmp_path / "ada")
    with pytest.raises(RemitError, match="already contains a device"):
        Device.create(first.device.state, name="another")


def test_only_the_owner_can_read_the_files(tmp_path: Path):
    close(open_device(tmp_path / "ada"))
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "ada").iterdir()} == {0o600}
    os.chmod(tmp_path / "ada" / "device.key", 0o644)
    with pytest.raises(RemitError, match="chmod 600"):
        open_device(tmp_path / "ada")


def test_a_state_file_without_its_key_reads_nothing(tmp_path: Path):
    """S1: what a thief of the file gets is ciphertext."""
    ada, bob = open_device(tmp_path / "ada"), open_device(tmp_path / "bob")
    pair(ada, bob)
    ada.seal(bob.device.id, b"CANARY-BODY", requester="CANARY-REQUESTER")
    card = ada.device.card
    close(ada)
    (tmp_path / "ada" / "device.key").unlink()
    with pytest.raises(RemitError, match="wrong key for"):
        open_device(tmp_path / "ada")
    stolen = b"".join(each.read_bytes() for each in (tmp_path / "ada").glob("device.db*"))
    known = [b"CANARY", b"relay.example", bob.device.id.encode(), card.device.encode(), card.olm.encode()]
    known += [bytes.fromhex(card.olm), bytes.fromhex(bob.device.card.olm), raw(bob.device.public)]
    assert [each for each in known if each in stolen] == []


def test_a_passphrase_is_needed_where_one_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Six keys are derived here; packages/cli/tests/config/test_team_relay.py derives some at the real cost.
    monkeypatch.setattr(device_files, "_COST", 2**10)
    path = tmp_path / "device.key"
    keys = open_keys(path, "correct horse")
    locked = keys.lock(b"value", "place")
    assert open_keys(path, "correct horse").unlock(locked, "place") == b"value"
    with pytest.raises(RemitError, match="is protected by a passphrase"):
        open_keys(path)
    with pytest.raises(RemitError, match="wrong passphrase for"):
        open_keys(path, "Correct horse")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{}", '{"kind":"remit-device-key/1","secret":"zz"}', "\xff"])
def test_a_damaged_key_file_is_named_and_not_shown(tmp_path: Path, content: str):
    path = tmp_path / "device.key"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(RemitError) as caught:
        open_keys(path)
    assert "does not contain a device key" in caught.value.fault.message
    assert caught.value.__cause__ is None


def test_a_row_that_was_moved_or_changed_is_not_believed(tmp_path: Path):
    ada, bob, eve = (open_device(tmp_path / name) for name in ("ada", "bob", "eve"))
    ada.peers.pair(bob.device.card)
    ada.peers.pair(eve.device.card)
    ada.peers.allow(bob.device.id)
    state = ada.device.state
    with state.writing():
        state.execute("UPDATE peers SET content = (SELECT content FROM peers WHERE id = 1) WHERE id = 2")
    with pytest.raises(RemitError, match="was not written there by this device"):
        ada.peers.get(eve.device.id)


def test_a_file_of_another_version_or_kind_is_left_alone(tmp_path: Path):
    ada = open_device(tmp_path / "ada")
    ada.device.state.execute("PRAGMA user_version = 99")
    close(ada)
    with pytest.raises(RemitError, match="has version 99"):
        open_device(tmp_path / "ada")
    (tmp_path / "text.db").write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(RemitError, match="not a SQLite database"):
        DeviceFile.open(tmp_path / "text.db", open_keys(tmp_path / "k"))
    with pytest.raises(RemitError):
        DeviceFile.open(tmp_path, open_keys(tmp_path / "k"))


# ── known devices ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_that_was_paired_may_do_nothing_until_it_is_allowed(tmp_path: Path):
    ada, bob = open_device(tmp_path / "ada"), open_device(tmp_path / "bob")
    known = ada.peers.pair(bob.device.card)
    assert (known.verified, known.shared, known.allowed, known.revoked, known.may_talk) == (False,) * 5
    with pytest.raises(RemitError) as caught:
        ada.seal(bob.device.id, b"x")
    assert caught.value.fault.code == Code.PERMISSION_DENIED
    assert ada.peers.verify(bob.device.id).verified
    assert ada.peers.allow(bob.device.id).may_talk
    assert not ada.peers.allow(bob.device.id, allowed=False).may_talk


def test_what_is_shared_with_me_is_listed(tmp_path: Path):
    ada, bob, eve = (open_device(tmp_path / name) for name in ("ada", "bob", "eve"))
    for other in (eve, bob):
        ada.peers.pair(other.device.card)
    ada.peers.share(eve.device.id)
    assert [(peer.card.name, peer.shared) for peer in ada.peers.list()] == [("bob", False), ("eve", True)]
    assert ada.peers.get("a" * 26) is None


def test_a_known_device_may_change_its_name_and_gateway(tmp_path: Path):
    ada, bob = open_device(tmp_path / "ada"), open_device(tmp_path / "bob")
    pair(ada, bob)
    again = ada.peers.pair(bob.device.rename(name="Bob at home", gateway="wss://new.example"))
    assert (again.card.name, again.shared) == ("Bob at home", True)
    assert len(ada.peers.list()) == 1


def test_a_known_device_with_another_olm_key_and_a_stranger_with_its_name_are_refused_loudly(tmp_path: Path):
    ada = open_device(tmp_path / "ada")
    card = make_card(pair_of(5), b"o" * 32, name="Bob")
    ada.peers.pair(card)
    ada.peers.allow(card.device)
    impostor = make_card(pair_of(6), b"o" * 32, name="Bob")
    for shown in (make_card(pair_of(5), b"x" * 32, name="Bob"), impostor):
        with pytest.raises(KeyChanged, match="THE KEYS OF A KNOWN DEVICE CHANGED") as caught:
            ada.peers.pair(shown)
        assert (caught.value.known, caught.value.shown) == (card, shown)
    kept = ada.peers.get(card.device)
    assert kept is not None
    assert (kept.card, kept.allowed) == (card, True)
    assert ada.peers.get(impostor.device) is None
    ada.peers.revoke(card.device)
    assert ada.peers.pair(impostor).card == impostor


def test_a_revoked_device_stays_out(tmp_path: Path):
    ada, bob = open_device(tmp_path / "ada"), open_device(tmp_path / "bob")
    pair(ada, bob)
    ada.seal(bob.device.id, b"waits")
    ada.begin(bob.device.id, prekey_of(bob))
    assert ada.peers.revoke(bob.device.id).revoked
    assert (ada.outbox(), ada.wanting(), ada.unsettled(bob.device.id)) == ([], [], 0)
    for attempt in (
        lambda: ada.peers.pair(bob.device.card),
        lambda: ada.peers.allow(bob.device.id),
        lambda: ada.peers.share(bob.device.id),
        lambda: ada.seal(bob.device.id, b"x"),
    ):
        with pytest.raises(RemitError, match="revoked") as caught:
            attempt()
        assert caught.value.fault.code == Code.PERMISSION_DENIED


def test_without_the_library_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "vodozemac", None)
    olm.cache_clear()
    with pytest.raises(RemitError, match=re.escape(install_command("relay"))) as caught:
        open_device(tmp_path / "ada")
    assert caught.value.fault.code == Code.TEAM_INVALID


def test_a_device_that_is_not_known_is_named(tmp_path: Path):
    ada = open_device(tmp_path / "ada")
    with pytest.raises(RemitError, match="unknown device") as caught:
        ada.peers.allow("a" * 26)
    assert caught.value.fault.code == Code.NOT_FOUND
