"""`remit relay` and `remit share`: a gateway, an agent that one device shares, and another that works with it."""

import asyncio
import json
import signal
import sys
import urllib.error
import urllib.request
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from certificates import certificate
from command_line import REMIT, document, remit
from commands import run_program
from remit import RemitError
from remit.protocol.errors import Code
from remit.protocol.records import SharedStep
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_relay.commands.gateway import limits_of
from remit_relay.commands.relay import relay as relay_command
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.session.moves import ENDED, SessionState
from remit_relay.session.run import Overlay
from remit_relay.team.device_service import Relaying, relaying
from shared_teams import NOWHERE, device_of, introduce, introduce_by_typing, make_annas, make_bobs, relay, up
from terminals import Terminal
from waiting import PATIENCE_S, eventually

OBJECTIVE = "a wholly secret objective"


async def until(working: Relaying, run: Overlay, *states: SessionState) -> Overlay:
    assert working.host is not None
    host = working.host

    def look() -> Overlay:
        return next(each for each in host.runs if each.id == run.id)

    return await eventually(look, when=lambda now: now.state in states)


# ── the gateway ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_gateway_says_where_it_is_and_ends_well(tmp_path: Path, number: int) -> None:
    with relay(tmp_path) as gateway:
        record = gateway.said
        assert (record["schema"], record["name"], record["folder"]) == ("remit.gateway/1", "127.0.0.1", ".remit/relay")
        with urllib.request.urlopen(
            record["address"].replace("ws:", "http:") + "/healthz", timeout=PATIENCE_S
        ) as answer:
            assert answer.status == 200
        assert "Stopped. Undelivered messages are kept." in gateway.end(number)
    assert (tmp_path / ".remit" / ".gitignore").read_text() == "*\n"


def test_a_gateway_tells_people_what_their_team_files_say(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        port = gateway.said["address"].rpartition(":")[2]
        taken = remit("relay", "--port", port, "--folder", "other", folder=tmp_path)
    assert taken.returncode == 3
    assert taken.stderr.endswith("→ Choose another with --port, or 0 for any that is free.\n")


@pytest.mark.parametrize("host", ["203.0.113.7", "nowhere.invalid"])
def test_who_listens_at_an_address_of_another_machine_is_not_sent_to_another_port(tmp_path: Path, host: str) -> None:
    refused = remit("relay", "--host", host, "--port", "0", folder=tmp_path)
    assert refused.returncode == 3
    assert refused.stderr.splitlines()[-1].startswith("→ Choose an address of this machine with --host: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "give the host name that devices use, as in --name relay.example.com"),
        (("--certificate", "here.pem"), "--certificate and --private-key must be given together"),
        (("--folder", "here.pem"), "'here.pem' is a file"),
        (("--message-retention", "soon"), "--message-retention: expected a duration, such as 12h or 30d, got `soon`"),
        (("--message-retention", "1ms"), "--message-retention: must be at least one second"),
        (
            ("--device-retention", "7d"),
            "--device-retention: must be at least 30d, since messages may wait for a device that long",
        ),
        (
            ("--message-retention", "400d"),
            "--device-retention: must be at least 400d, since messages may wait for a device that long",
        ),
        (("--max-bytes", "much"), "--max-bytes: expected a size, such as 500MB or 16GB, got `much`"),
        (("--max-bytes", "0GB"), "--max-bytes: expected a size"),
        (("--store-pooler",), "--store-password and --store-pooler need --store"),
        (("--store", "sqlite:///x"), "--store: expected the address of a database without a password, such as"),
        (("--store", "postgresql://u:secret@h/d"), "--store: expected the address of a database without a password"),
        (
            ("--store", "postgresql://u@h/d", "--store-password", "$NOT_SET"),
            "--store-password: the environment variable NOT_SET is not set",
        ),
        (("--behind-proxy", "nginx"), "--behind-proxy: 'nginx' does not appear to be an IPv4 or IPv6 network"),
        (("--metrics-for", "10.0.0.0/99"), "expected an address or a network, such as 10.0.0.7 or 10.0.0.0/8"),
    ],
)
def test_a_gateway_that_cannot_be_says_why(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "here.pem").touch()
    done = remit("relay", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_what_a_gateway_takes_on_by_default_is_what_its_help_says() -> None:
    defaults: dict[str | None, Any] = {option.name: option.default for option in relay_command.params}
    assert limits_of(**{name: defaults[name] for name in signature(limits_of).parameters}) == GatewayLimits()


def test_what_a_gateway_takes_on_can_be_said(tmp_path: Path) -> None:
    arguments = (
        "--message-retention",
        "12h",
        "--device-retention",
        "40d",
        "--max-bytes",
        "1.5MB",
        "--metrics-for",
        "10.0.0.0/8",
    )
    with relay(tmp_path, *arguments, "--behind-proxy", "127.0.0.1", "--max-connections", "7") as gateway:
        address = gateway.said["address"].replace("ws:", "http:") + "/metrics"
        request = urllib.request.Request(address, headers={"X-Forwarded-For": "10.1.2.3"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert f"remit_gateway_max_bytes {3 * 2**19}\n" in answer.read().decode()
        request = urllib.request.Request(address, headers={"X-Forwarded-For": "203.0.113.7"})
        with pytest.raises(urllib.error.HTTPError, match="404") as raised:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        raised.value.close()


def test_a_gateway_opens_as_many_files_as_it_needs_and_says_if_it_may_not(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from remit_relay.commands.gateway import within_files; "
        "from remit_relay.gateway.limits import GatewayLimits; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1_024)); "
        "limits = within_files(GatewayLimits(max_connections=int(sys.argv[1]))); "
        "print(limits.max_connections, *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    for devices, limits, says in (("500", "500 820 1024", ""), ("5000", "704 1024 1024", "Only 704 devices")):
        done = run_program([sys.executable, "-c", code, devices], folder=tmp_path)
        assert done.stdout.strip() == limits
        assert says in done.stderr


def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    (tmp_path / "key.pem").write_text("nothing")
    done = remit("relay", "--certificate", "cert.pem", "--private-key", "key.pem", folder=tmp_path)
    assert done.returncode == 3
    assert "cert.pem with key.pem cannot be used" in done.stderr


async def test_a_gateway_with_a_certificate_is_reached_by_who_trusts_it_and_nobody_else(tmp_path: Path) -> None:
    own, other = certificate(tmp_path), certificate(tmp_path, "other")
    with relay(tmp_path, "--certificate", str(own.file), "--private-key", str(own.key)) as gateway:
        address = gateway.said["address"]
        assert address.startswith("wss://")
        bobs = make_bobs(tmp_path / "bobs", address)
        file = bobs / "remit.toml"
        text = file.read_text()
        for authority in ("", f'certificate_authority = "{other.file}"'):
            file.write_text(text.replace("[relay]", f"[relay]\n{authority}"))
            (check,) = await asyncio.to_thread(gateway_checks, bobs)
            assert check["state"] == "warning"
            assert "cannot reach the gateway: its certificate is not trusted" in check["says"]
            assert "set `authority` in `[relay]` to the PEM file of the certificate authority to trust" in check["says"]
            with Terminal([REMIT, "share"], folder=bobs) as terminal:
                terminal.wait_for("its certificate is not trusted")
                terminal.type("\x03")
                assert terminal.wait() == 0
        team = load_team(file, overrides=[f'relay.certificate_authority="{own.file}"'])
        async with relaying(team, hub=None, host=False, share=False) as working, asyncio.timeout(PATIENCE_S):
            await working.ready.wait()
        file.write_text(text.replace("[relay]", f'[relay]\ncertificate_authority = "{own.file}"'))
        (check,) = await asyncio.to_thread(gateway_checks, bobs)
        assert check["state"] == "ok"


# ── what the doctor says of it ────────────────────────────────────────────────────────────────────────────────────────


def gateway_checks(folder: Path) -> list[dict[str, str]]:
    return [each for each in document("doctor", folder=folder)["checks"] if each["about"] == "gateway"]


async def test_the_doctor_says_how_the_device_stands_with_its_gateway(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    (check,) = gateway_checks(bobs)
    assert (check["state"], check["says"]) == (
        "warning",
        "ws://127.0.0.1:9: cannot reach the gateway: Connection refused",
    )
    assert "`gateway` in `[relay]`" in check["todo"]
    with relay(tmp_path) as gateway:
        address = gateway.said["address"]
        file = bobs / "remit.toml"
        file.write_text(file.read_text().replace(NOWHERE, address))
        (check,) = gateway_checks(bobs)
        assert check["state"] == "warning"
        assert "this device has never connected to it, so other devices cannot reach it" in check["says"]
        team = load_team(file, code=False)
        async with relaying(team, hub=None, host=False, share=False) as working:
            async with asyncio.timeout(PATIENCE_S):
                await working.ready.wait()
            (check,) = await asyncio.to_thread(gateway_checks, bobs)
            assert (check["state"], check["says"]) == ("ok", f"{address} is reachable; this device is connected")
            assert working.link.state == "connected", "to look does not throw it out"
        (check,) = gateway_checks(bobs)
        assert (check["state"], check["says"]) == ("ok", f"{address} is reachable; this device is registered")
        file.write_text(file.read_text().replace("[relay]", '[relay]\nname = "elsewhere"'))
        (check,) = gateway_checks(bobs)
        assert check["state"] == "warning"
        assert "the name of the server is '127.0.0.1', not 'elsewhere'" in check["says"]
        assert "the name must be that of the gateway at this address" in check["todo"]


# ── two devices ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_local_agent_works_with_the_one_that_another_device_shares(tmp_path: Path) -> None:
    """S1, S2: all of it by typed commands but for the host."""
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce_by_typing(annas, bobs)
        with (bobs / "remit.toml").open("a") as file:  # so that it matters who asks
            file.write('[shared.spare]\nagent = "helper"\ndevices = ["carl"]\n')
        notes: list[SharedStep] = []
        with up("share", "--jsonl", folder=bobs) as sharing:
            assert sharing.said["shared"] == [
                {"name": "helper", "agent": "helper", "devices": ["anna"]},
                {"name": "spare", "agent": "helper", "devices": ["carl"]},
            ]
            team = load_team(annas / "remit.toml")
            async with relaying(team, hub=None, host=True, share=False, noted=notes.append) as working:
                assert working.host is not None
                started = await working.host.start("mine", device_of(bobs), OBJECTIVE)
                run = await until(working, started, *ENDED, SessionState.ERROR)
            lines = [await asyncio.to_thread(sharing.line) for _ in range(4)]
            output = sharing.end(signal.SIGTERM)
        gateway.end(signal.SIGTERM)
        kept = b"".join(file.read_bytes() for file in (tmp_path / ".remit" / "relay").iterdir())
    assert (run.state, [each.text for each in run.timeline]) == (
        SessionState.COMPLETED,
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
    written = remit("audit", "export", "--profile", "mine", folder=annas).stdout
    rows = [json.loads(each["body"]) for each in map(json.loads, written.splitlines())]
    assert [each["event"] for each in rows] == [each.event for each in notes]
    assert "the record is whole" in remit("audit", "verify", folder=annas).stdout
    for where in (json.dumps(lines), output, repr(notes), written):
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
                run = await until(working, await working.host.start("mine", bob, OBJECTIVE), *ENDED, SessionState.ERROR)
                assert run.state is SessionState.ERROR
                assert "PERMISSION_DENIED" in run.failure
            lines = [await asyncio.to_thread(sharing.line) for _ in range(2)]
            assert [(each["event"], each["code"]) for each in lines] == [
                ("asked", ""),
                ("declined", "PERMISSION_DENIED"),
            ]
            assert "no device is allowed (shared.helper.devices)" in sharing.end(signal.SIGINT)
        with up("share", "helper", "--device", "anna", "--json", folder=bobs) as sharing:
            async with relaying(team, hub=None, host=True, share=False) as working:
                assert working.host is not None
                run = await until(working, await working.host.start("mine", bob, OBJECTIVE), *ENDED, SessionState.ERROR)
                assert run.state is SessionState.COMPLETED
            output = sharing.end(signal.SIGINT)
            assert "anna (anna@example.org) calls helper" in output
            assert "helper answered anna (anna@example.org)" in output


async def test_a_device_that_is_paired_meanwhile_is_known_to_who_is_at_work(tmp_path: Path) -> None:
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    bob = device_of(bobs)
    async with relaying(load_team(annas / "remit.toml"), hub=None, host=True, share=False) as working:
        assert working.host is not None
        with pytest.raises(RemitError) as raised:
            await working.host.start("mine", bob, OBJECTIVE)
        assert raised.value.fault.code is Code.PERMISSION_DENIED
        await asyncio.to_thread(introduce, annas, bobs)
        host = working.host

        async def start() -> Overlay | None:
            try:
                return await host.start("mine", bob, OBJECTIVE)
            except RemitError:
                return None

        run = await eventually(start)
        assert run is not None
        assert run.state is not SessionState.ERROR


async def test_one_process_at_a_time_speaks_for_a_device(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    team = load_team(bobs / "remit.toml", code=False)
    async with relaying(team, hub=None, host=True, share=False):
        second = await asyncio.to_thread(remit, "share", folder=bobs)
        assert second.returncode == 1
        assert "this device is already running, in process " in second.stderr
        assert document("devices", "show", folder=bobs)["name"] == "bob", "to look is always possible"
    async with relaying(team, hub=None, host=True, share=False):
        pass


async def test_a_gateway_of_another_name_gets_no_signature_and_that_ends_it(tmp_path: Path) -> None:
    with relay(tmp_path, "--name", "elsewhere") as gateway:
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        done = await asyncio.to_thread(remit, "share", folder=bobs)
        assert done.returncode == 4, done.stderr
        assert "the name of the server is 'elsewhere', not '127.0.0.1'" in done.stderr
        assert (
            "Check `name` and `gateway` in `[relay]`: the name must be that of the gateway at this address."
            in done.stderr
        )


def test_what_cannot_be_shared_says_why(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    file = bobs / "remit.toml"

    def share_error(*arguments: str) -> str:
        done = remit("share", *arguments, folder=bobs)
        assert done.returncode not in (0, 1)
        return done.stderr

    assert "no such agent `helpr`; did you mean `helper`?" in share_error("helpr")
    assert "there is no device `anna`; none is known yet" in share_error("helper", "--device", "anna")
    assert "--device needs an agent: remit share AGENT --device DEVICE" in share_error("--device", "anna")
    text = file.read_text()
    file.write_text(text.partition("[shared")[0])
    assert "shares no agent\n→ Add [shared.NAME] with `devices`" in share_error()
    assert "→ Give a device: remit share helper --device DEVICE" in share_error("helper")
    file.write_text(text.partition("[relay")[0] + '[agents.helper]\nrun = "bobs_code:helper"\n')
    (bobs / ".remit" / "device.db").unlink()
    assert "→ Make one: remit devices init" in share_error("helper", "--device", "anna")


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
                working,
                await working.host.start("mine", device_of(bobs), OBJECTIVE),
                SessionState.ERROR,
                SessionState.STOPPED,
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
                    working, await working.host.start("mine", device_of(bobs), OBJECTIVE), *ENDED, SessionState.ERROR
                )
    assert run.state is SessionState.COMPLETED, run


# ── for people ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_shares_in_a_terminal_sees_with_whom_and_ends_it_with_a_key(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        with Terminal([REMIT, "share", "helper", "--device", "anna"], folder=bobs) as terminal:
            terminal.wait_for("connected to 127.0.0.1", "Sharing helper with anna (Ctrl-C to stop).")
            terminal.type("\x03")
            assert terminal.wait() == 0
            assert "Requests in progress are answered when you share again" in terminal.screen


def test_a_gateway_that_is_not_there_is_said_once_and_waited_for(tmp_path: Path) -> None:
    bobs = make_bobs(tmp_path / "bobs")
    with Terminal([REMIT, "share"], folder=bobs) as terminal:
        terminal.wait_for("cannot reach the gateway", "retrying until it is available")
        assert "Sharing" not in terminal.screen
        terminal.type("\x03")
        assert terminal.wait() == 0
    assert terminal.screen.count("cannot reach the gateway") == 1
