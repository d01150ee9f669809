"""`remit devices group`: devices under one name, and where it can be used."""

import signal
from pathlib import Path

import pytest

from command_line import document, remit
from remit_relay.device.peers import Peers
from remit_relay.team.device import create_device, using_device
from shared_teams import BOB, BOBS_CODE, NOWHERE, introduce, link_of, make_annas, relay, team_in, up


def make_bob(folder: Path, gateway: str = NOWHERE) -> Path:
    """Return a folder with a team that shares an agent, and its device with the name of the folder."""
    folder.mkdir()
    (folder / "bobs_code.py").write_text(BOBS_CODE.replace("heard", f"{folder.name} heard"))
    (folder / "remit.toml").write_text(BOB.format(gateway=gateway))
    create_device(team_in(folder), folder.name).state.close()
    return folder


def make_group(path: Path, gateway: str = NOWHERE) -> Path:
    """Return Anna's folder; she knows a desktop and a laptop, and her profile may ask the group `bobs`."""
    annas = make_annas(path / "annas", gateway)
    file = annas / "remit.toml"
    file.write_text(file.read_text().replace('["bob"]', '["bobs"]'))
    for name in ("desktop", "laptop"):
        introduce(annas, make_bob(path / name, gateway))
    return annas


@pytest.fixture
def annas(tmp_path: Path) -> Path:
    return make_group(tmp_path)


def test_devices_are_put_into_a_group_and_removed_from_it(annas: Path) -> None:
    missing = remit("devices", "group", "bobs", folder=annas)
    assert missing.returncode != 0
    assert "there is no group `bobs`" in missing.stderr
    made = document("devices", "group", "bobs", "desktop", "laptop", folder=annas)
    assert (made["schema"], made["group"]) == ("remit.device-group/1", "bobs")
    assert [(each["name"], each["groups"]) for each in made["devices"]] == [("desktop", ["bobs"]), ("laptop", ["bobs"])]
    assert remit("devices", "group", "bobs", folder=annas).stdout == "bobs: desktop, laptop\n"
    listed = remit("devices", "list", folder=annas).stdout.splitlines()
    assert [line.split() for line in listed[-2:]] == [["GROUP", "DEVICES"], ["bobs", "desktop,", "laptop"]]
    left = remit("devices", "group", "bobs", "laptop", "--remove", folder=annas)
    assert (left.stdout, left.stderr) == ("", "bobs: desktop\n")
    gone = remit("devices", "group", "bobs", "--remove", folder=annas)
    assert gone.stderr == "The group bobs is removed.\n"
    assert "DEVICES" not in remit("devices", "list", folder=annas).stdout
    again = remit("devices", "group", "bobs", "--remove", folder=annas)
    assert again.returncode != 0


def test_a_group_and_a_device_never_have_one_name(annas: Path, tmp_path: Path) -> None:
    refused = remit("devices", "group", "laptop", "desktop", folder=annas)
    assert refused.returncode != 0
    assert "a device is called 'laptop', so a group cannot be" in refused.stderr
    document("devices", "group", "carls", "desktop", folder=annas)
    paired = remit("devices", "pair", link_of(make_bob(tmp_path / "carls")), "--verified", folder=annas)
    assert paired.returncode != 0
    assert "the device is called 'carls', which is the name of a group here" in paired.stderr
    assert "remit devices group carls --remove" in paired.stderr
    one = remit("devices", "revoke", "carls", folder=annas)
    assert "`carls` is a group of desktop, and one device is needed here" in one.stderr


def test_a_grant_to_a_group_is_one_to_each_of_its_devices(annas: Path) -> None:
    document("devices", "group", "bobs", "desktop", "laptop", folder=annas)
    granted = document("devices", "allow", "bobs", "--profile", "mine", folder=annas)
    assert [each["profiles"] for each in granted["devices"]] == [["mine"], ["mine"]]
    stderr = remit("devices", "allow", "bobs", "--profile", "mine", "--remove", folder=annas).stderr
    assert stderr.count("Profiles that may ask it: none by a grant.") == 2
    with using_device(team_in(annas)) as anna:
        assert all(not each.profiles for each in Peers(anna.state).list())


def test_a_chat_with_a_group_is_one_with_the_device_that_is_connected(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        annas = make_group(tmp_path, gateway.said["address"])
        document("devices", "group", "bobs", "desktop", "laptop", folder=annas)
        with up("share", "--jsonl", folder=tmp_path / "laptop") as laptop:
            talked = document("chat", "mine", "bobs", "--objective", "the API", folder=annas)
            assert talked["state"] == "completed", talked
            with using_device(team_in(tmp_path / "laptop")) as own:
                assert talked["device"] == own.id
            laptop.end(signal.SIGINT)
