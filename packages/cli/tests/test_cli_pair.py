"""`remit pair`: one command on each side connects two devices, and nothing is written by hand."""

import io
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import segno

from command_line import REMIT, document, environment, remit
from commands import popen
from remit_relay.pairing.code import PairingLink, read_code
from shared_teams import BOBS_CODE, device_of, make_annas, make_bobs, relay, up
from terminals import Terminal
from waiting import PATIENCE_S

ANNA = '[profiles.mine]\nrun = ["true"]\n'
BOB = '[agents.helper]\nrun = "bobs_code:helper"\n[shared.helper]\n'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with relay(tmp_path_factory.mktemp("relay")) as started:
        yield started.said["address"]


@pytest.fixture
def annas(tmp_path: Path) -> Path:
    return _team(tmp_path / "annas", ANNA)


@pytest.fixture
def bobs(tmp_path: Path) -> Path:
    folder = _team(tmp_path / "bobs", BOB)
    (folder / "bobs_code.py").write_text(BOBS_CODE)
    return folder


def _team(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "remit.toml").write_text(text)
    return folder


@contextmanager
def hosting(*options: str, folder: Path) -> Generator["tuple[str, subprocess.Popen[str]]"]:
    """Have a `remit pair` that waits; its code, and the process."""
    process = popen(
        [REMIT, "pair", *options],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        code = process.stdout.readline().strip()
        assert code, process.communicate()[1]
        yield code, process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def known(folder: Path) -> dict[str, Any]:
    (device,) = document("devices", "list", folder=folder)["devices"]
    return device


def test_two_commands_connect_two_people_and_grant_what_they_said(gateway: str, annas: Path, bobs: Path) -> None:
    options = ("--gateway", gateway, "--name", "bob", "--let-ask", "helper")
    with hosting(*options, folder=bobs) as (code, process):
        joined = remit("pair", code, "--gateway", gateway, "--name", "anna", "--use", "mine", folder=annas)
        assert joined.returncode == 0, joined.stderr
        words, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr
    assert joined.stdout == words, "both see the same words"
    assert len(words.split()) == 4
    assert "anna is paired and verified." in stderr
    assert "bob is paired and verified." in joined.stderr
    mine, theirs = known(annas), known(bobs)
    assert (mine["verified"], mine["profiles"], mine["allowed"]) == (True, ["mine"], False)
    assert (theirs["verified"], theirs["agents"], theirs["allowed"]) == (True, ["helper"], True)
    assert (annas / "remit.toml").read_text() == ANNA, "nothing was written by hand or by the command"
    # What was granted is changed by a command, and the gateway is kept.
    taken = document("devices", "allow", "anna", "--agent", "helper", "--remove", folder=bobs)["device"]
    assert taken["agents"] == []
    given = remit("devices", "allow", "anna", "--agent", "helper", folder=bobs)
    listed = remit("devices", "list", folder=bobs).stdout.splitlines()
    assert "MAY ASK" in listed[0]
    assert "helper" in next(line for line in listed if line.startswith("anna"))
    assert "may ask: helper.\n" in given.stderr
    assert document("devices", "show", folder=annas)["gateway"] == gateway
    wrong = remit("devices", "allow", "anna", "--agent", "helpr", folder=bobs)
    assert wrong.returncode == 2
    assert "did you mean `helper`?" in wrong.stderr


def test_doctor_knows_the_gateway_in_the_file_of_the_device_and_stale_grants(
    gateway: str, annas: Path, bobs: Path
) -> None:
    options = ("--gateway", gateway, "--name", "bob", "--let-ask-all")
    with hosting(*options, folder=bobs) as (code, process):
        joined = remit("pair", code, "--gateway", gateway, "--name", "anna", folder=annas)
        assert joined.returncode == 0, joined.stderr
        process.communicate(timeout=PATIENCE_S)
    (bobs / "remit.toml").write_text(BOB.replace("[shared.helper]", '[shared.adviser]\nagent = "helper"'))
    output = remit("doctor", folder=bobs).stdout
    assert f"{gateway} is reachable; this device has never connected to it" in output
    assert "anna was let to ask the agent helper, which the team does not share" in output
    assert "remit devices allow anna --agent helper --remove" in output
    assert remit("devices", "allow", "anna", "--agent", "helper", "--remove", folder=bobs).returncode == 0
    assert "was let to ask" not in remit("doctor", folder=bobs).stdout


def test_a_wrong_code_pairs_nobody_and_both_say_so(gateway: str, annas: Path, bobs: Path) -> None:
    with hosting("--gateway", gateway, folder=bobs) as (code, process):
        number = code.partition("-")[0]
        wrong = remit("pair", f"{number}-acid-acid-acid", "--gateway", gateway, folder=annas)
        assert wrong.returncode != 0
        assert "wrong code: nothing was paired, and the code is used up" in wrong.stderr
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode != 0
        assert "wrong code: nothing was paired, and the code is used up" in stderr
    again = remit("pair", code, folder=annas)
    assert "no device waits under this code" in again.stderr
    assert document("devices", "list", folder=annas)["devices"] == []


def test_the_document_names_the_device_and_the_words(gateway: str, annas: Path, bobs: Path) -> None:
    with hosting("--gateway", gateway, "--name", "bob", folder=bobs) as (code, process):
        output = document("pair", code, "--gateway", gateway, "--yes", folder=annas)
        process.communicate(timeout=PATIENCE_S)
    assert output["schema"] == "remit.pairing/1"
    assert output["device"]["id"] == device_of(bobs)
    assert (len(output["words"].split()), output["device"]["profiles"]) == (4, ["mine"])


def test_a_host_that_was_killed_no_longer_waits_for_its_code(gateway: str, annas: Path, bobs: Path) -> None:
    with hosting("--gateway", gateway, folder=bobs) as (code, process):
        process.kill()
        process.wait(PATIENCE_S)
        joined = remit("pair", code, "--gateway", gateway, folder=annas)
    assert joined.returncode != 0
    assert "nothing was paired" in joined.stderr or "no device waits" in joined.stderr
    for folder in (annas, bobs):
        assert document("devices", "list", folder=folder)["devices"] == []


def test_devices_pair_while_a_share_runs_and_it_answers_the_new_one(gateway: str, tmp_path: Path) -> None:
    """The share has the device's connection, and learns of the new device and its grant without a restart."""
    annas, bobs = make_annas(tmp_path / "annas", gateway), make_bobs(tmp_path / "bobs", gateway)
    for folder in (annas, bobs):
        team = folder / "remit.toml"
        lines = team.read_text().splitlines(keepends=True)
        team.write_text("".join(each for each in lines if not each.startswith("devices = ")))
    with up("share", "--json", folder=bobs) as sharing:
        with hosting("--let-ask", "helper", folder=bobs) as (code, process):
            joined = remit("pair", code, "--use", "mine", folder=annas)
            assert joined.returncode == 0, joined.stderr
            _, stderr = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, stderr
        done = remit("chat", "mine", "bob", "--objective", "it", folder=annas)
        assert done.returncode == 0, done.stderr
        assert "heard: message 2 about it" in done.stdout
        assert sharing.process.poll() is None


def test_a_terminal_shows_a_qr_code_and_asks_what_each_may_do(gateway: str, annas: Path, bobs: Path) -> None:
    with Terminal([REMIT, "pair", "--gateway", gateway, "--name", "bob"], folder=bobs, env=environment()) as host:
        screen = host.wait_for("Waiting for ten minutes (Ctrl-C to stop) …")
        code = screen.partition("→ On the other device: remit pair ")[2].split()[0]
        assert qr_rows(screen) == drawn(str(PairingLink(read_code(code).code, gateway, ""))), (
            "it has the code and where"
        )
        guest = Terminal([REMIT, "pair", code, "--gateway", gateway, "--name", "anna"], folder=annas, env=environment())
        with guest:
            guest.wait_for("bob is paired and verified.", "Let my mine ask bob? [y/N]:")
            assert known(annas)["profiles"] == [], "nothing is granted before it is answered"
            guest.type("y\r")
            guest.wait_for("May ask bob: mine.")
            assert guest.wait() == 0
        host.wait_for("anna is paired and verified.", "Let anna ask helper? [y/N]:")
        host.type("\r")
        host.wait_for("→ To let it ask an agent: remit devices allow anna --agent helper")
        assert host.wait() == 0
    assert known(annas)["profiles"] == ["mine"]
    assert (known(bobs)["agents"], known(bobs)["allowed"]) == ([], False), "the default is no"


def test_ctrl_c_at_a_question_leaves_the_devices_paired_without_grants(gateway: str, annas: Path, bobs: Path) -> None:
    with hosting("--gateway", gateway, "--name", "bob", folder=bobs) as (code, process):
        command = [REMIT, "pair", code, "--gateway", gateway, "--name", "anna"]
        with Terminal(command, folder=annas, env=environment()) as guest:
            guest.wait_for("Let my mine ask bob? [y/N]:")
            assert guest.interrupt() != 0
        process.communicate(timeout=PATIENCE_S)
    assert (known(annas)["verified"], known(annas)["profiles"]) == (True, [])


def qr_rows(screen: str) -> list[str]:
    """Return the lines of half blocks on a screen."""
    return [line.rstrip() for line in screen.splitlines() if set(line) & set("▀▄█")]


def drawn(text: str) -> list[str]:
    """Return the lines of the QR code of a text."""
    out = io.StringIO()
    segno.make(text).terminal(out=out, compact=True)
    return qr_rows(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))


def test_what_is_missing_is_said(tmp_path: Path, annas: Path) -> None:
    (tmp_path / "empty").mkdir()
    none = remit("pair", folder=tmp_path / "empty")
    assert "→ Create one with `remit init --template shared`, or give one with --team.\n" in none.stderr
    nowhere = remit("pair", folder=annas)
    assert "→ Pair over one, which is kept: remit pair --gateway wss://…" in nowhere.stderr
    unknown = remit("pair", "--use", "mein", folder=annas)
    assert unknown.returncode == 2
    assert "did you mean `mine`?" in unknown.stderr


def test_a_link_for_another_gateway_is_refused(tmp_path: Path) -> None:
    annas = make_annas(tmp_path / "named")
    link = "remit:join?gateway=wss://relay.example.com#4821-marble-tiger-lemon"
    refused = remit("pair", link, folder=annas)
    assert "names another gateway: ws://127.0.0.1:9, not wss://relay.example.com\n" in refused.stderr
    assert "A code holds for one gateway" in refused.stderr


def test_two_devices_of_one_owner_need_no_further_grants(gateway: str, annas: Path, bobs: Path) -> None:
    with hosting("--gateway", gateway, "--name", "desktop", "--own", folder=bobs) as (code, process):
        joined = remit("pair", code, "--gateway", gateway, "--name", "laptop", "--own", folder=annas)
        assert joined.returncode == 0, joined.stderr
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert "laptop is yours: it may ask all agents shared here, all profiles may ask it.\n" in stderr
    assert "→ For the same in the other direction, run on desktop: remit devices own laptop\n" in joined.stderr
    for folder in (annas, bobs):
        device = known(folder)
        assert (device["own"], device["allowed"], device["agents"], device["profiles"]) == (True, True, [], [])
    assert remit("devices", "list", folder=annas).stdout.endswith("\nYour own devices: desktop\n")
    assert document("devices", "own", "desktop", "--remove", folder=annas)["device"]["own"] is False
    removed = remit("devices", "own", "desktop", "--remove", folder=annas)
    assert removed.stderr.startswith("desktop is no longer marked as yours.")
    assert document("devices", "own", "desktop", folder=annas)["device"]["own"] is True
    assert known(bobs)["own"] is True, "each side decides for itself"
