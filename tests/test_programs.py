"""A program that is forked is the same as one that is started: its start, its streams, its signals and its end."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Forked, popen, run_program, start_program
from waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")

SENSES = """
import os, signal, sys, warnings
from importlib import machinery

print(sorted(globals()), __name__, __doc__, __package__, __spec__)
print(globals().get("__file__"), type(__loader__) if "__file__" in globals() else None)
print(sys.modules["__main__"].__dict__ is globals(), __builtins__)
print(os.getcwd(), sorted(os.environ.items()), os.getpid() == int(os.readlink("/proc/self")))
print(sys.argv, sys.path, sys.warnoptions, sys.dont_write_bytecode)
print(sorted(str(each) for each in warnings.filters if each[1] is None and each[2] is Warning))
print([int(each) for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN])
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(0, []))
for each in (sys.stdin, sys.stdout, sys.stderr):
    print(each.encoding, each.errors, each.line_buffering, each.fileno(), each.isatty(), type(each.buffer))
print(sys.stdin.read(), sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/task")))
"""
ENDS = {
    "raises": "def f():\n    raise ValueError('no')\nf()\n",
    "is wrong": "def f(:\n",
    "says why": "import sys\nsys.exit('because')\n",
    "gives a number": "import atexit\natexit.register(print, 'late')\nprint('early')\nraise SystemExit(7)\n",
    "is interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "is killed": "import os, signal\nprint('told', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "warns": "import warnings\nwarnings.warn('beware')\n",
    "has a thread": "import threading, time\nthreading.Timer(0.01, print, ['from a thread']).start()\n",
}


def variables(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}
    return {**kept, **more}


def both(command: list[str], folder: Path, env: dict[str, str], given: str | None = None) -> None:
    forked = run_program(command, folder=folder, variables=env, given=given)
    started = subprocess.run(
        command,
        cwd=folder,
        env=env,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (forked.returncode, forked.stderr) == (started.returncode, started.stderr)
    assert forked.stdout.splitlines() == started.stdout.splitlines()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"PYTHONWARNINGS": "error", "LETTER": "x"},
        {"PYTHONPATH": os.pathsep.join(("/somewhere", "/elsewhere"))},
        {"PYTHONUNBUFFERED": "", "PYTHONDONTWRITEBYTECODE": ""},
        {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii:replace"},
        {"PYTHONIOENCODING": ":backslashreplace"},
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["file", "text"])
def test_a_forked_program_finds_what_a_started_one_finds(tmp_path: Path, how: str, more: dict[str, str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "senses.py").write_text(SENSES)
    (tmp_path / "link.py").symlink_to(tmp_path / "in" / "senses.py")
    env = variables(**more)
    if how == "file":
        both([sys.executable, "link.py", "a", "-b"], tmp_path, env, given="a line\nand another")
    else:
        both([sys.executable, "-c", SENSES, "a", "-b"], tmp_path, env)


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("how", ["file", "text"])
def test_a_forked_program_ends_as_a_started_one_does(tmp_path: Path, how: str, text: str) -> None:
    if (
        how == "text"
        and sys.version_info >= (3, 13)
        and any(word in text for word in ("raise Value", "SIGINT", "warn"))
    ):
        pytest.skip("Python 3.13 quotes the lines of a text given with -c, which a fork does not know")
    (tmp_path / "program.py").write_text(text)
    both([sys.executable, *(["program.py"] if how == "file" else ["-c", text])], tmp_path, variables())


def test_a_forked_program_is_a_process_that_is_written_to_read_stopped_and_killed() -> None:
    text = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
    with popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert isinstance(process, Forked)
        assert process.stdin is not None
        assert process.stdout is not None
        print("hello", file=process.stdin, flush=True)
        assert process.stdout.readline() == "HELLO\n"
        assert process.pid != os.getpid()
        process.send_signal(signal.SIGSTOP)
        print("again", file=process.stdin, flush=True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.001)
        assert process.poll() is None
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "AGAIN\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
        process.terminate()  # does nothing: it has ended


def test_what_two_forks_draw_is_not_the_same() -> None:
    text = "import random, secrets, uuid, tempfile, os; print(random.random(), secrets.token_hex(), uuid.uuid4())"
    drawn = [run_program([sys.executable, "-c", text]).stdout.split() for _ in range(2)]
    assert [a for a, b in zip(*drawn, strict=True) if a == b] == []


async def test_a_program_in_an_event_loop_is_written_to_read_and_killed() -> None:
    program = await start_program([sys.executable, "-c", "print(input(), flush=True); input()"])
    program.stdin.write(b"hello\n")
    async with asyncio.timeout(PATIENCE_S):
        assert await program.stdout.readline() == b"hello\n"
        program.kill()
        assert await program.wait() == -signal.SIGKILL
        assert await program.stdout.read() == b""


def test_a_program_that_python_is_told_to_start_otherwise_is_started(tmp_path: Path) -> None:
    for command, env in (
        ([sys.executable, "-m", "this"], variables()),
        ([sys.executable, "-X", "dev", "-c", "pass"], variables()),
        ([sys.executable, "-c", "pass"], variables(PYTHONVERBOSE="1")),
        ([sys.executable, "-c", "pass"], variables(PYTHONWARNINGS="ignore")),
        (["true"], variables()),
    ):
        quiet = subprocess.DEVNULL
        with popen(command, cwd=tmp_path, env=env, stdout=quiet, stderr=quiet) as process:
            assert not isinstance(process, Forked), command
        assert process.returncode == 0
