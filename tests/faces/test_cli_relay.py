"""`remit relay` and `remit share`: a gateway, an agent that one device shares, and another that works with it."""

import asyncio
import json
import signal
import urllib.request
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from command_line import REMIT, document, remit
from remit import RemitError
from remit.detectors.pipeline import pipeline
from remit.faces.composition import hub_of
from remit.faces.notebook import Notebook
from remit.faces.relaying import Relaying, relaying
from remit.faces.team.file import load_team
from remit.protocol.errors import Code
from remit.relay.host import Noted
from remit.relay.moves import ENDED, State
from remit.relay.run import Overlay
from shared_teams import device_of, introduce, introduce_by_typing, make_annas, make_bobs, relay, up
from terminals import Terminal

BOUND_S = 30
OBJECTIVE = "a wholly secret objective"


async def until(working: Relaying, run: Overlay, *states: State) -> Overlay:
    assert working.host is not None
    async with asyncio.timeout(BOUND_S):
        while True:
            now = next(each for each in working.host.runs if each.id == run.id)
            if now.state in states:
                return now
            await asyncio.sleep(0.02)


# ── the gateway ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_gateway_says_where_it_is_and_ends_well(tmp_path: Path, number: int) -> None:
    with relay(tmp_path) as gateway:
        said = gateway.said
        assert (said["schema"], said["name"], said["folder"]) == ("remit.gateway/1", "127.0.0.1", ".remit/relay")
        with urllib.request.urlopen(said["address"].replace("ws:", "http:") + "/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert "Ended; what waits for devices is kept." in gateway.end(number)
    assert (tmp_path / ".remit" / ".gitignore").read_text() == "*\n"


def test_a_gateway_tells_people_what_their_team_files_say(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        port = gateway.said["address"].rpartition(":")[2]
        taken = remit("relay", "--port", port, "--folder", "other", folder=tmp_path)
    assert taken.returncode == 3
    assert taken.stderr.endswith("→ Choose another with --port, or 0 for any that is free.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "say with --name by which host devices reach it, as in --name relay.example.com"),
        (("--certificate", "here.pem"), "--certificate and --private-key go together: give both, or none"),
        (("--folder", "here.pem"), "'here.pem' is a file"),
    ],
)
def test_a_gateway_that_cannot_be_says_why(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "here.pem").touch()
    done = remit("relay", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    (tmp_path / "key.pem").write_text("nothing")
    done = remit("relay", "--certificate", "cert.pem", "--private-key", "key.pem", folder=tmp_path)
    assert done.returncode == 3
    assert "cert.pem with key.pem cannot be used" in done.stderr


def certificate(folder: Path) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(secret)
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_a_gateway_with_a_certificate_is_reached_by_who_trusts_it_and_nobody_else(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with relay(tmp_path, "--certificate", cert, "--private-key", key) as gateway:
        address = gateway.said["address"]
        assert address.startswith("wss://")
        annas = make_annas(tmp_path / "annas", address)
        heard: list[str] = []
        team = load_team(annas / "remit.toml")
        async with relaying(team, hub=None, host=False, share=False, linked=lambda _, why: heard.append(why)):
            async with asyncio.timeout(BOUND_S):
                while not any("certificate" in each for each in heard):
                    await asyncio.sleep(0.02)
        team = load_team(annas / "remit.toml", overrides=[f'relay.authority="{cert}"'])
        async with relaying(team, hub=None, host=False, share=False) as working, asyncio.timeout(BOUND_S):
            await working.ready.wait()


# ── two devices ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_local_agent_works_with_the_one_that_another_device_shares(tmp_path: Path) -> None:
    """S1, S2: all of it by typed commands but for the host."""
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce_by_typing(annas, bobs)
        with (bobs / "remit.toml").open("a") as file:  # so that it matters who asks
            file.write('[shared.spare]\nagent = "helper"\ndevices = ["carl"]\n')
        notes: list[Noted] = []
        with up("share", "--jsonl", folder=bobs) as sharing:
            assert sharing.said["shared"] == [
                {"name": "helper", "agent": "helper", "devices": ["anna"]},
                {"name": "spare", "agent": "helper", "devices": ["carl"]},
            ]
            team = load_team(annas / "remit.toml")
            async with relaying(team, hub=None, host=True, share=False, noted=notes.append) as working:
                assert working.host is not None
                started = await working.host.start("mine", device_of(bobs), OBJECTIVE)
                run = await until(working, started, *ENDED, State.ERROR)
            lines = [await asyncio.to_thread(sharing.line) for _ in range(4)]
            told = sharing.end(signal.SIGTERM)
        gateway.end(signal.SIGTERM)
        kept = b"".join(file.read_bytes() for file in (tmp_path / ".remit" / "relay").iterdir())
    assert (run.state, [each.text for each in run.timeline]) == (
        State.COMPLETED,
        [
            f"message 1 about {OBJECTIVE}",
            f"heard: message 1 about {OBJECTIVE}",
            f"message 2 about {OBJECTIVE}",
            f"heard: message 2 about {OBJECTIVE}",
        ],
    )
    assert [(each["name"], each["requester"], each["shared"], each["event"]) for each in lines] == [
        ("anna", "anna@example.org", "helper", "asked"),
        ("anna", "anna@example.org", "helper", "answered"),
    ] * 2
    assert {(each.profile, each.requester) for each in notes} == {("mine", "anna@example.org")}
    written = (annas / ".remit" / "shared-runs.jsonl").read_text()
    assert [each["event"] for each in map(json.loads, written.splitlines())] == [each.event for each in notes]
    for where in (json.dumps(lines), told, repr(notes), written):
        assert OBJECTIVE not in where
    assert OBJECTIVE.encode() not in kept
    runs = document("runs", "list", folder=bobs)["runs"]
    assert len(runs) == 2, "each question is a run of the hub that shares, in its record"


async def test_an_agent_is_shared_with_a_device_that_is_named_and_refused_to_others(tmp_path: Path) -> None:
    """S10."""
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        file = bobs / "remit.toml"
        file.write_text(file.read_text().replace('devices = ["anna"]', "devices = []"))
        team, bob = load_team(annas / "remit.toml"), device_of(bobs)
        with up("share", "--jsonl", folder=bobs) as sharing:
            async with relaying(team, hub=None, host=True, share=False) as working:
                assert working.host is not None
                run = await until(working, await working.host.start("mine", bob, OBJECTIVE), *ENDED, State.ERROR)
                assert run.state is State.ERROR
                assert "PERMISSION_DENIED" in run.failure
            lines = [await asyncio.to_thread(sharing.line) for _ in range(2)]
            assert [(each["event"], each["code"]) for each in lines] == [
                ("asked", ""),
                ("declined", "PERMISSION_DENIED"),
            ]
            assert "it names no device, so that nobody is allowed" in sharing.end(signal.SIGINT)
        with up("share", "helper", "--device", "anna", "--json", folder=bobs) as sharing:
            async with relaying(team, hub=None, host=True, share=False) as working:
                assert working.host is not None
                run = await until(working, await working.host.start("mine", bob, OBJECTIVE), *ENDED, State.ERROR)
                assert run.state is State.COMPLETED
            told = sharing.end(signal.SIGINT)
            assert "anna (anna@example.org) asks helper" in told
            assert "helper answered anna (anna@example.org)" in told


async def test_a_device_that_is_paired_meanwhile_is_known_to_who_is_at_work(tmp_path: Path) -> None:
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    bob = device_of(bobs)
    async with relaying(load_team(annas / "remit.toml"), hub=None, host=True, share=False) as working:
        assert working.host is not None
        with pytest.raises(RemitError) as raised:
            await working.host.start("mine", bob, OBJECTIVE)
        assert raised.value.fault.code is Code.PERMISSION_DENIED
        await asyncio.to_thread(introduce, annas, bobs)
        async with asyncio.timeout(BOUND_S):
            while True:
                try:
                    run = await working.host.start("mine", bob, OBJECTIVE)
                    break
                except RemitError:
                    await asyncio.sleep(0.05)
        assert run.state is not State.ERROR


async def test_one_process_at_a_time_speaks_for_a_device(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    team = load_team(bobs / "remit.toml", code=False)
    async with relaying(team, hub=None, host=True, share=False):
        second = await asyncio.to_thread(remit, "share", folder=bobs)
        assert second.returncode == 1
        assert "this device is at work already, in process " in second.stderr
        assert document("devices", "show", folder=bobs)["name"] == "bob", "to look is always possible"
    async with relaying(team, hub=None, host=True, share=False):
        pass


async def test_a_gateway_of_another_name_gets_no_signature_and_that_ends_it(tmp_path: Path) -> None:
    with relay(tmp_path, "--name", "elsewhere") as gateway:
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        done = await asyncio.to_thread(remit, "share", folder=bobs)
        assert done.returncode == 4, done.stderr
        assert "the server calls itself 'elsewhere', not '127.0.0.1'" in done.stderr
        assert "name and address belong together: `name` and `gateway` in `[relay]`" in done.stderr


def test_what_cannot_be_shared_says_why(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    file = bobs / "remit.toml"

    def said(*arguments: str) -> str:
        done = remit("share", *arguments, folder=bobs)
        assert done.returncode not in (0, 1)
        return done.stderr

    assert "there is no agent `helpr`; did you mean `helper`?" in said("helpr")
    assert "there is no device `anna`; none is known yet" in said("helper", "--device", "anna")
    assert "say which agent: remit share AGENT --device DEVICE" in said("--device", "anna")
    text = file.read_text()
    file.write_text(text.partition("[shared")[0])
    assert "shares no agent\n→ Add [shared.NAME] with `devices`" in said()
    assert "→ Say with whom: remit share helper --device DEVICE" in said("helper")
    file.write_text(text.partition("[relay")[0] + '[agents.helper]\nrun = "bobs_code:helper"\n')
    (bobs / ".remit" / "device.db").unlink()
    assert "→ Make one: remit devices init" in said("helper", "--device", "anna")


async def test_a_profile_whose_agent_cannot_be_there_fails_with_the_reason(tmp_path: Path) -> None:
    """S4: an agent that is not there is an error that a person sees."""
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    introduce(annas, bobs)
    for profile, why in (
        ('run = ["no-such-agent"]', "no-such-agent"),
        ('agent = "helper"', "the agent helper of this team is not running here"),
    ):
        file = annas / "remit.toml"
        lines = [
            line if not line.startswith(("run = [", "agent = ")) else profile for line in file.read_text().split("\n")
        ]
        text = "\n".join(lines).partition("[agents")[0]
        file.write_text(text + '\n[agents.helper]\nrun = "json:loads"\n')
        async with relaying(load_team(file, code=False), hub=None, host=True, share=False) as working:
            assert working.host is not None
            run = await until(
                working, await working.host.start("mine", device_of(bobs), OBJECTIVE), State.ERROR, State.STOPPED
            )
            assert why in run.failure


async def test_an_agent_of_the_own_hub_can_be_the_local_one(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        file = annas / "remit.toml"
        lines = [each if not each.startswith("run = [") else 'agent = "poet"' for each in file.read_text().split("\n")]
        file.write_text("\n".join(lines) + '\n[agents.poet]\nrun = "annas_code:poet"\n')
        (annas / "annas_code.py").write_text('async def poet(brief):\n    return "a verse\\n[DONE]"\n')
        team = load_team(file)
        with up("share", "--json", folder=bobs):
            async with hub_of(team) as hub, relaying(team, hub=hub, host=True, share=False) as working:
                assert working.host is not None
                run = await until(
                    working, await working.host.start("mine", device_of(bobs), OBJECTIVE), *ENDED, State.ERROR
                )
    assert run.state is State.COMPLETED, run


# ── for people ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_shares_in_a_terminal_sees_with_whom_and_ends_it_with_a_key(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        with Terminal([REMIT, "share", "helper", "--device", "anna"], folder=bobs) as terminal:
            terminal.wait_for("connected to 127.0.0.1", "Sharing helper with anna (Ctrl-C ends it).")
            terminal.type("\x03")
            assert terminal.wait() == 0
            assert "what is under way is answered when you share again" in terminal.screen


def test_a_gateway_that_is_not_there_is_said_once_and_waited_for(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    with Terminal([REMIT, "share"], folder=bobs) as terminal:
        terminal.wait_for("the gateway cannot be reached", "and so on until it is there")
        assert "Sharing" not in terminal.screen
        terminal.type("\x03")
        assert terminal.wait() == 0
    assert terminal.screen.count("cannot be reached") == 1


def test_what_fails_is_written_down_without_what_is_secret(tmp_path: Path) -> None:
    """S13."""
    file = tmp_path / "notes.jsonl"
    notebook = Notebook(file, detect=pipeline(), now_ms=lambda: 7)
    noted = Noted(
        profile="mine",
        device="d",
        requester="anna",
        run="r",
        turn=2,
        mode="manual",
        event="LocalFailed",
        state="error",
        active_ms=5,
        failure="the local agent says: cannot write to eve@example.org today",
    )
    notebook.write(noted)
    assert json.loads(file.read_text()) == {
        "at_ms": 7,
        "profile": "mine",
        "device": "d",
        "requester": "anna",
        "run": "r",
        "turn": 2,
        "mode": "manual",
        "event": "LocalFailed",
        "state": "error",
        "active_ms": 5,
        "failure": "the local agent says: cannot write to [EMAIL] today",
    }
    assert file.stat().st_mode & 0o077 == 0


def test_a_record_that_cannot_be_written_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted(
        profile="p", device="d", requester="", run="r", turn=0, mode="manual", event="Start", state="idle", active_ms=0
    )
    Notebook(tmp_path / "gone" / "notes.jsonl", detect=pipeline(), now_ms=lambda: 0).write(noted)
    assert "notes.jsonl cannot be written" in caplog.text
