"""An agent of another device in a team: asked by `remit run`, by a server, and on the way of a shared agent's work."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import REMIT, document, environment, remit
from commands import popen
from remit_relay.team.device import create_device
from shared_teams import NOWHERE, introduce, relay, team_in, up
from waiting import PATIENCE_S, wait_until

TEAM = """
name = "{name}"

[store]
durability = "process"

[relay]
gateway = "{gateway}"
"""
ASKS = """
[agents.{agent}]
device = "{device}"
"""
SHARES = """
[agents.{agent}]
run = "code_of_{name}:{function}"
may_call = [{may_call}]
resumable = true
time = "40s"

[shared.{agent}]
devices = ["{device}"]
"""
# It answers once a file is there, and notes each time that it is asked.
SLOW = """
import asyncio
from pathlib import Path

async def oracle(brief):
    with Path("asked").open("a") as file:
        file.write("x")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"heard: {brief.text}"
"""
PASSES_ON = """
async def expert(brief):
    said = (await brief.delegate("carls-oracle", objective=brief.text)).unwrap()
    return f"{said}, says Carl"
"""


def make(path: Path, name: str, gateway: str, more: str, code: str = "") -> Path:
    folder = path / name
    folder.mkdir()
    (folder / f"code_of_{name}.py").write_text(code)
    (folder / "remit.toml").write_text(TEAM.format(name=name, gateway=gateway) + more)
    create_device(team_in(folder), name).state.close()
    return folder


def two(path: Path, gateway: str, *, more: str = "") -> tuple[Path, Path]:
    """Return Anna's folder, whose team has an agent of Carl's, and Carl's."""
    anna = make(path, "anna", gateway, ASKS.format(agent="carls-oracle", device="carl") + more)
    carl = make(
        path,
        "carl",
        gateway,
        SHARES.format(agent="oracle", name="carl", function="oracle", device="anna", may_call=""),
        SLOW,
    )
    introduce(anna, carl)
    return anna, carl


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    wait_until(happened)


def is_asked(folder: Path) -> bool:
    """Return whether the oracle of a folder has noted that it was asked; its file is there a moment before."""
    noted = folder / "asked"
    return noted.exists() and noted.read_text() != ""


def test_an_agent_of_another_device_is_run_like_any_other(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        anna, carl = two(tmp_path, gateway.said["address"])
        (carl / "go").touch()
        assert remit("validate", folder=anna).returncode == 0
        with up("share", "oracle", "--json", folder=carl):
            done = document("run", "carls-oracle", "Which one?", folder=anna)
            assert done["result"] == "heard: Which one?", done
            # The command had the device at work, and has it no more.
            again = document("run", "carls-oracle", "And now?", folder=anna)
            assert again["result"] == "heard: And now?", again


def test_who_cannot_have_the_device_is_told_which_process_has_it(tmp_path: Path) -> None:
    anna, _ = two(tmp_path, NOWHERE)
    with held(anna) as process:
        done = document("run", "carls-oracle", "Which one?", folder=anna)
    fault = done["fault"]
    assert fault["code"] == "DELEGATION_UNAVAILABLE"
    assert f"this device is already running, in process {process}" in fault["message"]
    assert "nly one process at a time can run a device" in fault["suggestion"]


@contextmanager
def held(folder: Path) -> Generator[int]:
    """Have the device of a team at work in another process."""
    code = (
        "import asyncio, sys\\n"
        "from pathlib import Path\\n"
        "from remit_relay.team.device_service import relaying\\n"
        "from remit_cli.config.load import load_team\\n"
        "async def main():\\n"
        "    async with relaying(load_team(Path('remit.toml')), hub=None, host=True, share=False):\\n"
        "        print('up', flush=True)\\n"
        "        await asyncio.to_thread(sys.stdin.read)\\n"
        "asyncio.run(main())\\n"
    ).replace("\\n", "\n")
    pipe = subprocess.PIPE
    process = popen([sys.executable, "-c", code], cwd=folder, stdin=pipe, stdout=pipe, env=environment())
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.communicate()


def ask_oracle(folder: Path) -> "subprocess.Popen[bytes]":
    """Ask the agent of the other device in a process that nobody reads."""
    silent, command = subprocess.DEVNULL, [REMIT, "run", "carls-oracle", "Which one?"]
    return popen(command, cwd=folder, stdin=silent, stdout=silent, stderr=silent, env=environment())


def test_who_interrupts_a_run_has_it_stopped_on_the_other_device(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        anna, carl = two(tmp_path, gateway.said["address"])
        with up("share", "oracle", "--json", folder=carl):
            asking = ask_oracle(anna)
            until(lambda: is_asked(carl))
            asking.send_signal(signal.SIGINT)
            asking.wait(PATIENCE_S)
            until(lambda: [each["status"] for each in runs(carl)] == ["cancelled"])


def test_what_is_withdrawn_while_the_other_device_is_away_is_not_taken_up_there(tmp_path: Path) -> None:
    """Carl's process is killed at work, and Anna stops waiting: back again, he stops what he had begun."""
    with relay(tmp_path) as gateway:
        anna, carl = two(tmp_path, gateway.said["address"])
        with up("share", "oracle", "--json", folder=carl) as first:
            asking = ask_oracle(anna)
            until(lambda: is_asked(carl))
            first.process.kill()
            first.process.wait()
        asking.send_signal(signal.SIGINT)
        asking.wait(PATIENCE_S)
        with up("share", "oracle", "--json", folder=carl):
            until(lambda: all(each["state"] == "finished" for each in runs(carl)))
        assert {each["status"] for each in runs(carl)} <= {"cancelled", "refused"}, runs(carl)
        assert (carl / "asked").read_text() == "x"


def runs(folder: Path) -> list[dict[str, Any]]:
    return document("runs", "list", folder=folder)["runs"]


def test_who_serves_shares_too_and_asks_other_devices(tmp_path: Path) -> None:
    """One process speaks for a device: a server does what `remit share` would, for as long as it is up."""
    with relay(tmp_path) as gateway:
        address = gateway.said["address"]
        bob = make(
            tmp_path,
            "bob",
            address,
            ASKS.format(agent="carls-oracle", device="carl")
            + SHARES.format(agent="expert", name="bob", function="expert", device="anna", may_call='"carls-oracle"'),
            PASSES_ON,
        )
        anna = make(tmp_path, "anna", address, ASKS.format(agent="bobs-expert", device="bob"))
        carls = SHARES.format(agent="oracle", name="carl", function="oracle", device="bob", may_call="")
        carl = make(tmp_path, "carl", address, carls, SLOW)
        (carl / "go").touch()
        introduce(anna, bob)
        introduce(bob, carl)
        with (
            up("share", "oracle", "--json", folder=carl),
            up("serve", "--port", "0", "--json", folder=bob) as server,
        ):
            token = (bob / server.said["token_file"]).read_text().strip()
            request = urllib.request.Request(
                server.said["address"] + "/v1/delegations",
                data=json.dumps({"target": "expert", "user": "bob", "objective": "Which one?"}).encode(),
                headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                assert json.load(reply)["result"] == "heard: Which one?, says Carl"
            done = document("run", "bobs-expert", "And what else?", folder=anna)
            assert done["result"] == "heard: And what else?, says Carl", done


def test_who_passes_a_task_on_may_be_killed_and_come_back(tmp_path: Path) -> None:
    """S11: Anna asks Bob, who asks Carl, and is killed meanwhile: she gets her answer, and Carl works once."""
    with relay(tmp_path) as gateway:
        address = gateway.said["address"]
        bobs = ASKS.format(agent="carls-oracle", device="carl") + SHARES.format(
            agent="expert", name="bob", function="expert", device="anna", may_call='"carls-oracle"'
        )
        bob = make(tmp_path, "bob", address, bobs, PASSES_ON)
        annas = ASKS.format(agent="bobs-expert", device="bob") + 'time = "50s"\n'
        anna = make(tmp_path, "anna", address, annas)
        carls = SHARES.format(agent="oracle", name="carl", function="oracle", device="bob", may_call="")
        carl = make(tmp_path, "carl", address, carls, SLOW)
        introduce(anna, bob)
        introduce(bob, carl)
        with up("share", "oracle", "--json", folder=carl):
            with up("share", "expert", "--json", folder=bob) as first:
                asking = popen(
                    [REMIT, "run", "bobs-expert", "Which one?", "--json"],
                    cwd=anna,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment(),
                )
                until(lambda: is_asked(carl))
                first.process.kill()
                first.process.wait()
            with up("share", "expert", "--json", folder=bob):
                (carl / "go").touch()
                errors, printed_errors = asking.communicate(timeout=PATIENCE_S)
        assert json.loads(errors)["result"] == "heard: Which one?, says Carl", errors + printed_errors
        assert (carl / "asked").read_text() == "x"
