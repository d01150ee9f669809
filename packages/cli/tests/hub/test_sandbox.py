"""What an agent in a process of its own is given, and what its sandbox keeps it from."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import confined_agents
from remit import Hub, RemitError, Sandbox
from remit_cli import hub_of, load_team
from remit_cli.processes import sandbox
from remit_cli.processes.sandbox import destination, has_own_network, missing, rules_of
from remit_cli.processes.spawn import OutgoingProxy, environment
from remit_testing import MemoryStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
confined = pytest.mark.skipif(missing(Sandbox()) is not None, reason=str(missing(Sandbox())))
with_hosts = pytest.mark.skipif(
    missing(Sandbox(network=("a:1",))) is not None, reason=str(missing(Sandbox(network=("a:1",))))
)

CODE = Path(confined_agents.__file__)
CANARY = "canary-4711"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a team, with a secret beside its code."""
    folder = tmp_path / "team"
    folder.mkdir()
    shutil.copy(CODE, folder / "probes.py")
    (folder / ".env").write_text(CANARY, encoding="utf-8")
    (folder / "notes.txt").write_text("notes", encoding="utf-8")
    (folder / "data").mkdir()
    (folder / "data" / "rates.csv").write_text("1,2", encoding="utf-8")
    return folder


@asynccontextmanager
async def a_hub(
    folder: Path, more: str = "sandbox = true", run: str = "attempts", **environ: str
) -> AsyncGenerator[Hub]:
    text = f'[agents.probe]\nrun = "probes:{run}"\nisolation = "process"\n{more}\n'
    (folder / "remit.toml").write_text(text, encoding="utf-8")
    given = {"PATH": os.environ["PATH"], **environ}
    async with hub_of(load_team(folder / "remit.toml", environ=given), environ=given) as hub:
        yield hub


async def came_of(hub: Hub, *tried: tuple[str, Any]) -> list[str]:
    answer: Any = (await hub.ask("probe", user="u-1", input=[list(each) for each in tried])).unwrap()
    return answer


# ── what it is given ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("more", ["", pytest.param("sandbox = true", marks=confined)])
async def test_an_isolated_agent_is_given_no_secret_no_descriptor_and_a_folder_of_its_own(
    folder: Path, more: str, tmp_path: Path
) -> None:
    leaked = (tmp_path / "leaked").open("w", encoding="utf-8")
    os.set_inheritable(leaked.fileno(), True)
    environ = {
        "OPENAI_API_KEY": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY, "REMIT_KEY": CANARY, "HTTPS_PROXY": f"http://a:{CANARY}@b",
        "HOME": str(tmp_path), "LANG": "C.UTF-8", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7",
    }  # fmt: skip
    with leaked:
        async with a_hub(folder, more, "surroundings", **environ) as hub:
            result: Any = (await hub.ask("probe", user="u-1")).unwrap()
            assert Path(result["cwd"]).is_dir()
    own = result["cwd"]
    assert CANARY not in str(result)
    given = result["environ"]
    given.pop("LC_CTYPE", None)  # Python sets it in a C locale
    assert given == {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7",
        "HOME": own, "TMPDIR": own,
    }  # fmt: skip
    assert own not in (os.getcwd(), str(folder), str(tmp_path))
    assert result["mode"] == 0o700
    assert result["stdin"] == ""
    pipes = [each for name, each in result["descriptors"].items() if name in "12"]
    assert result["descriptors"]["0"] == "/dev/null"
    assert all(each.startswith("pipe:") for each in pipes)
    assert not any("leaked" in each or "hub.db" in each for each in result["descriptors"].values())
    assert not Path(own).exists(), "it goes with the process"


async def test_variables_are_given_by_name(folder: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-1", "OTHER_KEY": CANARY, "HOME": "/home/ada"}
    async with a_hub(folder, 'env = ["OPENAI_API_KEY", "HOME", "NOT_SET"]', "surroundings", **environ) as hub:
        result: Any = (await hub.ask("probe", user="u-1")).unwrap()
    assert (result["environ"]["OPENAI_API_KEY"], result["environ"]["HOME"]) == ("sk-1", "/home/ada")
    assert not {"OTHER_KEY", "NOT_SET"} & result["environ"].keys()


def test_what_python_needs_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = environment({"PYTHONPATH": f"lib{os.pathsep}/opt/x", "SECRET": "x"}, (), tmp_path / "own")
    assert made == {
        "PYTHONPATH": f"{tmp_path}/lib{os.pathsep}/opt/x",
        "HOME": f"{tmp_path}/own",
        "TMPDIR": f"{tmp_path}/own",
    }


async def test_the_hub_does_not_import_the_code_of_an_isolated_agent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "probes", raising=False)  # another test may have loaded a module of that name
    code = '\n\ndef careful(brief):\n    """Says where it was loaded."""\n    return [LOADED_IN, os.getpid()]\n'
    with (folder / "probes.py").open("a", encoding="utf-8") as file:
        file.write(f"{code}\nLOADED_IN = os.getpid()\n")
    async with a_hub(folder, "", "careful") as hub:
        loaded, ran = (await hub.ask("probe", user="u-1")).unwrap()
        assert hub.cards["probe"].description == "Says where it was loaded."
    assert loaded == ran != os.getpid()
    assert "probes" not in sys.modules


async def test_what_an_isolated_agent_prints_acts_on_no_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n\ndef shout(brief):\n    print('\\x1b[2Jfirst\\x07\\nsecond', end='')\n    return 1\n"
    with (folder / "probes.py").open("a", encoding="utf-8") as file:
        file.write(code)
    async with a_hub(folder, "", "shout") as hub:
        await hub.ask("probe", user="u-1")
    assert capsys.readouterr().err == "first\ufffd\nsecond\n"


# ── what a sandbox keeps it from ──────────────────────────────────────────────────────────────────────────────────────


@confined
@pytest.mark.parametrize("run", ["attempts", "attempts_from_threads", "attempts_from_a_program"])
async def test_it_can_read_neither_the_store_nor_its_key_nor_any_file_that_is_not_its_own(
    folder: Path, run: str, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    secret = tmp_path / "home" / "id_ed25519"
    secret.write_text(CANARY, encoding="utf-8")
    async with a_hub(folder, run=run) as hub:
        store = folder / ".remit" / "hub.db"
        assert store.exists()
        hidden = [store, folder / ".remit" / "hub.db.key", folder / ".env", folder / "notes.txt", folder / "remit.toml"]
        hidden += [secret, Path("/etc/shadow"), Path("/etc/hostname"), Path(f"/proc/{os.getpid()}/environ")]
        outcomes = await came_of(hub, *[("read", str(each)) for each in hidden])
        assert outcomes == ["PermissionError"] * len(hidden)
        changed = [(what, str(store)) for what in ("write", "truncate", "chmod", "unlink")]
        assert await came_of(hub, *changed) == ["PermissionError"] * 4
        assert await came_of(hub, ("link", str(store)), ("read", "linked")) == ["OSError", "FileNotFoundError"]
        assert (
            await came_of(hub, ("list", str(tmp_path / "home")), ("list", "/tmp"), ("mkdir", str(tmp_path / "made")))
            == ["PermissionError"] * 3
        )
    assert store.stat().st_size > 0
    assert store.stat().st_mode & 0o077 == 0


@confined
async def test_it_can_use_its_own_folder_python_and_programs(folder: Path) -> None:
    async with a_hub(folder) as hub:
        outcomes = await came_of(
            hub, ("write", "mine"), ("read", "mine"), ("run", ["sh", "-c", "cat mine"]), ("write", "/dev/null")
        )
        assert outcomes == ["written", "changed", "changed", "written"]


@confined
async def test_it_reaches_the_files_that_are_named(folder: Path) -> None:
    (folder / "out").mkdir()
    async with a_hub(folder, 'sandbox = true\nreads = ["data"]\nwrites = ["out"]') as hub:
        outcomes = await came_of(
            hub,
            ("read", str(folder / "data" / "rates.csv")),
            ("write", str(folder / "data" / "rates.csv")),
            ("write", str(folder / "out" / "new")),
            ("read", str(folder / "notes.txt")),
        )
        assert outcomes == ["1,2", "PermissionError", "written", "PermissionError"]


@confined
@pytest.mark.parametrize("run", ["attempts", "attempts_from_a_program"])
async def test_it_reaches_no_network_at_all(folder: Path, run: str, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        datagrams.bind(("127.0.0.1", 0))
        datagrams.setblocking(False)
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        async with a_hub(folder, run=run) as hub:
            outcomes = await came_of(
                hub,
                ("connect", list(server.getsockname())),
                ("send", list(datagrams.getsockname())),
                ("unix", str(tmp_path / "s")),
            )
        with pytest.raises(BlockingIOError):
            datagrams.recv(10)
    assert outcomes == ["PermissionError"] * 3


@confined
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param({"x86_64": 101, "aarch64": 117}, id="ptrace"),
        pytest.param({"x86_64": 310, "aarch64": 270}, id="process_vm_readv"),
        pytest.param({"x86_64": 272, "aarch64": 97}, id="unshare"),
        pytest.param({"x86_64": 250, "aarch64": 219}, id="keyctl"),
        pytest.param({"x86_64": 165, "aarch64": 40}, id="mount"),
        pytest.param({"x86_64": 321, "aarch64": 280}, id="bpf"),
    ],
)
async def test_it_cannot_get_at_other_processes_or_the_kernel(folder: Path, numbers: Mapping[str, int]) -> None:
    async with a_hub(folder) as hub:
        assert await came_of(hub, ("syscall", numbers)) == ["PermissionError"]


@confined
@pytest.mark.parametrize("number", [pytest.param(425, id="io_uring_setup"), pytest.param(435, id="clone3")])
async def test_what_cannot_be_looked_into_is_as_if_the_kernel_did_not_have_it(folder: Path, number: int) -> None:
    async with a_hub(folder) as hub:
        assert await came_of(hub, ("syscall", {"x86_64": number, "aarch64": number})) == ["OSError"]


@confined
@pytest.mark.skipif(sandbox.version() < 6, reason="signals are kept in from Linux 6.12 on")
async def test_it_cannot_signal_the_hub(folder: Path) -> None:
    async with a_hub(folder) as hub:
        assert await came_of(hub, ("kill", os.getpid())) == ["PermissionError"]


@confined
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
async def test_root_has_no_capabilities_in_it(folder: Path) -> None:
    async with a_hub(folder) as hub:
        [status] = await came_of(hub, ("read", "/proc/self/status"))
    fields = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNew", "Seccomp:")))
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


# ── hosts that are named ──────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def a_server(text: str) -> AsyncGenerator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = f"{text} {head.split()[1].decode()}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@with_hosts
async def test_it_reaches_the_hosts_that_are_named_and_no_other(folder: Path) -> None:
    async with (
        a_server("named") as named,
        a_server("other") as other,
        a_hub(folder, f'sandbox = true\nnetwork = ["127.0.0.1:{named}"]') as hub,
    ):
        outcomes = await came_of(
            hub,
            ("fetch", f"http://127.0.0.1:{named}/rates?day=1"),
            ("fetch", f"http://127.0.0.1:{other}/"),
            ("fetch", f"http://localhost:{named}/"),
            ("connect", ["127.0.0.1", named]),
            ("send", ["127.0.0.1", 53]),
            ("unix", "/tmp/none"),
            ("read", str(folder / ".remit" / "hub.db")),
        )
    assert outcomes[:3] == ["named /rates?day=1", "HTTP 403", "HTTP 403"]
    assert outcomes[3] == "ConnectionRefusedError", "its own loopback, on which nobody listens there"
    assert outcomes[4] == "sent", "into its own loopback"
    assert outcomes[5:] == ["PermissionError", "PermissionError"]


@pytest.mark.skipif(not has_own_network(), reason="no network namespaces here")
async def test_a_proxy_connects_through_and_refuses_what_is_not_named() -> None:
    async with a_server("far") as port:
        door = socket.create_server(("127.0.0.1", 0))
        proxy = OutgoingProxy(door, [f"127.0.0.1:{port}"], "agents:probe")
        await proxy.open()

        async def send(text: str) -> bytes:
            reader, writer = await asyncio.open_connection(*door.getsockname())
            writer.write(text.replace("\n", "\r\n").encode())
            try:
                return await reader.read()
            finally:
                writer.close()

        through = f"CONNECT 127.0.0.1:{port} HTTP/1.1\n\nGET /a HTTP/1.1\n\n"
        assert await send(through) == (
            b"HTTP/1.1 200 Connection established\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nfar /a"
        )
        for wrong in (
            "CONNECT evil:443 HTTP/1.1\n\n",
            "GET / HTTP/1.1\n\n",
            "nonsense\n\n",
            "GET http://[ HTTP/1.1\n\n",
        ):
            assert (await send(wrong)).startswith(b"HTTP/1.1 403 ")
        assert await send("x" * 40_000 + "\n\n") == b""
        proxy.close()


# ── where there is none ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_that_wants_a_sandbox_does_not_run_where_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "version", lambda: 0)
    with pytest.raises(RemitError, match=r"no Landlock.*does not run without one"):
        Hub(store=MemoryStore()).add("probe", "probes:attempts", isolation="process", sandbox=True)
    text = '[agents.probe]\nrun = "probes:attempts"\nisolation = "process"\nsandbox = true\n'
    (folder / "remit.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RemitError, match=r"remit.toml:4 agents.probe.sandbox: this system has no Landlock"):
        load_team(folder / "remit.toml", environ={})


@with_hosts
def test_named_hosts_need_a_network_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "has_own_network", lambda: False)
    hub = Hub(store=MemoryStore())
    with pytest.raises(RemitError, match="user namespaces"):
        hub.add("probe", "probes:attempts", isolation="process", sandbox=Sandbox(network=("example.com:443",)))


@confined
async def test_a_sandbox_that_would_lead_to_the_store_is_refused(folder: Path) -> None:
    async with a_hub(folder, 'sandbox = true\nreads = ["."]') as hub:
        response = await hub.ask("probe", user="u-1", input=[])
    assert response.fault is not None
    assert "would reach" in response.fault.message
    assert "hub.db" in response.fault.message or ".remit" in response.fault.message


def test_what_is_not_there_cannot_be_named(tmp_path: Path) -> None:
    with pytest.raises(RemitError, match="does not exist"):
        rules_of(Sandbox(reads=("gone",)), own=tmp_path, path=(), folder=tmp_path, hidden=())


@pytest.mark.parametrize(
    ("more", "where", "why"),
    [
        ('sandbox = "yes"', "sandbox", "expected true or false"),
        ('sandbox = true\nnetwork = ["example.com"]', "network", '"example.com" is not a host and a port'),
        ('sandbox = true\nreads = ["gone"]', "reads", "gone does not exist"),
        ('env = ["$KEY"]', "env", "expected the name of an environment variable"),
        ('writes = ["data"]', "writes", "`writes` is for an agent with `sandbox = true`"),
    ],
)
def test_a_wrong_key_is_named(folder: Path, more: str, where: str, why: str) -> None:
    text = f'[agents.probe]\nrun = "probes:attempts"\nisolation = "process"\n{more}\n'
    (folder / "remit.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RemitError) as raised:
        load_team(folder / "remit.toml", environ={})
    [problem] = raised.value.fault.problems
    assert (problem.path.partition(" ")[2], why in problem.message) == (f"agents.probe.{where}", True), problem


def test_environment_and_sandbox_are_for_processes(folder: Path) -> None:
    hub = Hub(store=MemoryStore())
    with pytest.raises(RemitError, match='need isolation="process"'):
        hub.add("probe", print, sandbox=True)
    with pytest.raises(RemitError, match="does not name a function"):
        hub.add("probe", "probes", isolation="process")
    (folder / "remit.toml").write_text('[agents.probe]\nrun = "probes:attempts"\nenv = ["A"]\n', encoding="utf-8")
    with pytest.raises(RemitError, match='`env` is for an agent with `isolation = "process"`'):
        load_team(folder / "remit.toml", environ={})


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("api.example.com:443", ("api.example.com", 443)),
        ("API.Example.com.:443", ("api.example.com", 443)),
        ("[::1]:80", ("::1", 80)),
        *((wrong, None) for wrong in ("", "a", "a:", ":1", "a:0", "a:65536", "a:b", "::1:80", "a:²")),
    ],
)
def test_a_host_is_named_with_its_port(named: str, expected: tuple[str, int] | None) -> None:
    assert destination(named) == expected


@confined
def test_doctor_says_whether_there_is_a_sandbox(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("remit")), "doctor", "--all"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert f"Landlock {sandbox.version()}" in done.stdout
