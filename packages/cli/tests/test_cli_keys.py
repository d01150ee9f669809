"""`remit keys`: this hub's key, and those of others."""

import json
import stat
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from command_line import document, remit
from remit_cli.config.load import load_team
from remit_server.transports.credentials.keys import HubKey
from remit_server.transports.credentials.trusted_files import revoked_ids, trusted_keys

KEY = "ed25519/d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
PRINT = "SHA256:If4x36FUomFia/hUBG/SJxt77UtqvkWqWId+9H+XIbk"
OTHER = "ed25519/" + "ab" * 32
ID = "0f" * 64


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder whose hub has a key."""
    assert remit("keys", "init", folder=tmp_path).returncode == 0
    return tmp_path


def publics(shown: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["public"], each["state"]) for each in shown["keys"]]


def seeds(folder: Path) -> list[str]:
    return [each["seed"] for each in json.loads((folder / ".remit" / "hub.key").read_text("ascii"))["versions"]]


def test_a_key_is_made_for_its_owner_alone_and_only_its_public_half_is_shown(tmp_path: Path) -> None:
    done = remit("keys", "init", folder=tmp_path)
    file = tmp_path / ".remit" / "hub.key"
    assert (done.returncode, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    public = HubKey.load(file).stages[0].pair.public
    assert public in done.stdout
    assert "→ Send peers the line above" in done.stderr
    assert (tmp_path / ".remit" / ".gitignore").read_text(encoding="ascii") == "*\n"
    shown = remit("keys", "show", folder=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, done.stdout, "")
    for output in (done.stdout, done.stderr, remit("keys", "show", "--json", folder=tmp_path).stdout):
        assert not any(seed in output for seed in seeds(tmp_path))


def test_a_key_that_exists_is_left_as_it_is(place: Path) -> None:
    before = (place / ".remit" / "hub.key").read_bytes()
    done = remit("keys", "init", folder=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert ".remit/hub.key already exists." in done.stderr
    assert (place / ".remit" / "hub.key").read_bytes() == before


def test_the_team_says_where_keys_are(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(
        '[identity]\nkey = "safe/mine.key"\ntrusted = "safe/theirs"\n', encoding="utf-8"
    )
    (tmp_path / "below").mkdir()
    made = document("keys", "init", folder=tmp_path / "below")
    assert made["file"] == str(tmp_path / "safe" / "mine.key")
    document("keys", "trust", "acme", KEY, folder=tmp_path)
    assert (tmp_path / "safe" / "theirs").read_text(encoding="ascii") == f"acme {KEY}\n"
    assert not (tmp_path / "safe" / ".gitignore").exists()
    assert load_team(tmp_path / "remit.toml", environ={})


def test_a_hub_without_a_key_says_how_to_make_one(tmp_path: Path) -> None:
    shown = remit("keys", "show", folder=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "→ Create one with `remit keys init`." in shown.stderr
    rotated = remit("keys", "rotate", folder=tmp_path)
    assert rotated.returncode == 3
    assert "remit keys init" in rotated.stderr
    assert list(tmp_path.iterdir()) == []


def test_rotating_keeps_the_old_key_for_a_while(place: Path) -> None:
    ((old, _),) = publics(document("keys", "show", folder=place))
    rotated = document("keys", "rotate", "--overlap", "2h", folder=place)
    (first, (new, state)) = publics(rotated)
    assert (first, state) == ((old, "signs"), "next")
    assert rotated["keys"][0]["accepted_until_ms"] - rotated["keys"][1]["signs_from_ms"] == 3_600_000
    assert stat.S_IMODE((place / ".remit" / "hub.key").stat().st_mode) == 0o600
    (place / "remit.toml").write_text('name = "office"\n', encoding="utf-8")
    done = remit("keys", "rotate", "--overlap", "0s", folder=place)
    ((newest, state),) = publics(document("keys", "show", folder=place))
    assert (done.returncode, f"remit keys trust office {newest}\n" in done.stderr) == (0, True)
    assert state == "signs"
    assert newest not in (old, new)


def test_an_overlap_that_is_no_time_changes_nothing(place: Path) -> None:
    before = (place / ".remit" / "hub.key").read_bytes()
    for overlap in ("", "1 hour", "2hours", "-1h"):
        done = remit("keys", "rotate", "--overlap", overlap, folder=place)
        assert (done.returncode, "such as 30m or 168h" in done.stderr) == (2, True)
    assert (place / ".remit" / "hub.key").read_bytes() == before


def test_a_key_of_a_peer_is_trusted_and_shown_with_where_it_stands(place: Path) -> None:
    (place / "remit.toml").write_text(f'[peers.acme]\nkeys = ["{OTHER}"]\n', encoding="utf-8")
    done = remit("keys", "trust", "acme", KEY.upper().replace("ED25519", "ed25519"), folder=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINT in done.stdout
    shown = document("keys", "show", folder=place)
    assert [(each["peer"], each["public"], each["file"], each["counts"]) for each in shown["peers"]] == [
        ("acme", OTHER, "team file", True),
        ("acme", KEY, ".remit/trusted.keys", True),
    ]
    assert stat.S_IMODE((place / ".remit" / "trusted.keys").stat().st_mode) == 0o600


def test_a_key_of_a_hub_that_the_team_does_not_know_is_kept_and_said_not_to_count(place: Path) -> None:
    done = remit("keys", "trust", "acme", KEY, folder=place)
    assert (done.returncode, "→ It takes effect when the team file has [peers.acme]." in done.stderr) == (0, True)
    (peer,) = document("keys", "show", folder=place)["peers"]
    assert (peer["peer"], peer["fingerprint"], peer["counts"]) == ("acme", PRINT, False)


def test_trusting_a_key_again_makes_it_the_newest_and_what_people_wrote_stays(place: Path) -> None:
    file = place / ".remit" / "trusted.keys"
    file.write_text(f"# called them on Monday\nacme {KEY} # the first\nacme {OTHER}\n", encoding="ascii")
    document("keys", "trust", "acme", KEY, folder=place)
    assert file.read_text(encoding="ascii") == f"# called them on Monday\nacme {OTHER}\nacme {KEY}\n"
    assert trusted_keys(file.read_bytes()) == {"acme": (OTHER, KEY)}


def test_trust_can_be_taken_back_one_key_or_all(place: Path) -> None:
    for name, key in (("acme", KEY), ("acme", OTHER), ("bolt", "ed25519/" + "cd" * 32)):
        document("keys", "trust", name, key, folder=place)
    left = document("keys", "trust", "acme", KEY, "--remove", folder=place)["peers"]
    assert [(each["peer"], each["public"]) for each in left] == [("acme", OTHER), ("bolt", "ed25519/" + "cd" * 32)]
    assert [each["peer"] for each in document("keys", "trust", "acme", "--remove", folder=place)["peers"]] == ["bolt"]
    again = remit("keys", "trust", "acme", "--remove", folder=place)
    assert (again.returncode, "has no key of acme" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("peer", "left"),
    [
        ("", "Remove [peers.acme] from the team file, too"),
        (f'keys = ["{OTHER}"]', "still trusted, by the keys above"),
        ('token = "$ACME"', "still trusted, by its `token`"),
    ],
)
def test_whoever_takes_trust_back_reads_by_what_the_peer_is_still_known(place: Path, peer: str, left: str) -> None:
    """Nobody should think that a hub is out that is not, nor meet a team file that is refused at the next start."""
    (place / "remit.toml").write_text(f"[peers.acme]\n{peer}\n", encoding="utf-8")
    document("keys", "trust", "acme", KEY, folder=place)
    done = remit("keys", "trust", "acme", "--remove", folder=place)
    assert (done.returncode, left in done.stderr) == (0, True)


def test_what_cannot_be_trusted_changes_nothing(place: Path) -> None:
    own = document("keys", "show", folder=place)["keys"][0]["public"]
    document("keys", "trust", "acme", KEY, folder=place)
    before = (place / ".remit" / "trusted.keys").read_bytes()
    for arguments, message in [
        (("acme", "ed25519/12"), "64 hexadecimal digits"),
        (("acme",), "Missing argument KEY"),
        (("ac/me", OTHER), "use only letters"),
        (("acme", own), "this is the key of this hub"),
        (("bolt", KEY), "the key already belongs to acme"),
    ]:
        done = remit("keys", "trust", *arguments, folder=place)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert (place / ".remit" / "trusted.keys").read_bytes() == before


def test_a_credential_is_revoked_by_its_id_or_as_it_came(place: Path) -> None:
    from chains import Way

    way = Way()
    token = way.token(way.remits(2))
    ids = way.chain(token).ids
    assert document("keys", "revoke", ID.upper(), folder=place)["revoked"] == 1
    assert document("keys", "revoke", token, folder=place)["revoked"] == 2
    done = remit("keys", "revoke", token, folder=place)
    assert (done.returncode, ids[1] in done.stderr) == (0, True)
    assert revoked_ids((place / ".remit" / "revoked").read_bytes()) == {ID, ids[1]}


def test_what_is_no_credential_is_not_revoked(tmp_path: Path) -> None:
    for credential in ("", "0f" * 63, "A" * 500, "ü"):
        done = remit("keys", "revoke", credential, folder=tmp_path)
        assert (done.returncode, "128 hexadecimal digits" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["trusted.keys", "revoked"])
def test_a_file_that_was_damaged_is_named_and_left_alone(place: Path, name: str) -> None:
    file = place / ".remit" / name
    file.write_bytes(b"\xff what is this\n")
    for command in (["show"], ["trust", "acme", KEY], ["revoke", ID]):
        done = remit("keys", *command, folder=place)
        assert (done.returncode != 0 or name not in str(command), "Traceback" in done.stderr) == (True, False)
    assert remit("keys", "show", folder=place).returncode == 3
    assert file.read_bytes() == b"\xff what is this\n"


def test_a_folder_that_cannot_be_written_is_named(place: Path) -> None:
    (place / "file").write_text("in the way", encoding="ascii")
    (place / "remit.toml").write_text('[identity]\nkey = "file/hub.key"\ntrusted = "file/keys"\n', encoding="utf-8")
    for command in (["init"], ["trust", "acme", KEY]):
        done = remit("keys", *command, folder=place)
        assert (done.returncode, "Traceback" in done.stderr, "file" in done.stderr) == (2, False, True)


def test_what_is_printed_fits_its_schema(place: Path) -> None:
    schema = json.loads(remit("schema", "outputs", folder=place).stdout)
    document("keys", "rotate", folder=place)
    shown = document("keys", "trust", "acme", KEY, folder=place)
    assert shown["schema"] == "remit.keys/1"
    jsonschema_rs.validate(schema, shown)
