"""A hub that is asked without await: from scripts, from notebooks where a loop is running, from other threads."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import environment
from commands import run_program
from remit import Brief, Hub, RemitError, Status

MakeHub = Callable[..., Hub]


def echoing(hub: Hub) -> Hub:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return f"{brief.text} in {threading.current_thread().name}"

    return hub


def test_a_script_asks_without_await(make_hub: MakeHub) -> None:
    with echoing(make_hub()) as hub:
        first = hub.ask_sync("echo", "one", user="u")
        second = hub.ask_sync("echo", "two", user="u", session=first.session)
    assert (first.result, second.result) == ("one in remit-hub", "two in remit-hub")
    assert not hub.is_open
    assert not any(each.name == "remit-hub" for each in threading.enumerate())


def test_a_hub_that_is_not_open_is_opened_for_one_question(make_hub: MakeHub) -> None:
    hub = echoing(make_hub())
    assert hub.ask_sync("echo", "one", user="u").status is Status.SUCCESS
    assert hub.ask_sync("echo", "two", user="u").status is Status.SUCCESS
    assert not hub.is_open


async def test_it_works_where_a_loop_is_running_already_as_in_a_notebook(make_hub: MakeHub) -> None:
    with echoing(make_hub()) as hub:
        assert hub.ask_sync("echo", "one", user="u").result == "one in remit-hub"
        with pytest.raises(RuntimeError, match=r"use `hub\.ask_sync"):
            await hub.ask("echo", "two", user="u")


async def test_in_the_hubs_own_loop_it_is_refused_instead_of_waiting_forever(make_hub: MakeHub) -> None:
    async with echoing(make_hub()) as hub:
        with pytest.raises(RuntimeError, match=r"use `await hub\.ask"):
            hub.ask_sync("echo", "one", user="u")
        # From another thread it is what a plain function would use.
        response = await asyncio.to_thread(hub.ask_sync, "echo", "two", user="u")
    assert response.result == "two in MainThread"


def test_what_keeps_a_hub_from_opening_is_raised_where_it_is_opened(make_hub: MakeHub) -> None:
    with echoing(make_hub()) as hub:
        with pytest.raises(RemitError, match="open already"), hub:
            pass
        assert hub.ask_sync("echo", "still", user="u").ok


def test_an_error_within_closes_the_hub_and_goes_on(make_hub: MakeHub) -> None:
    hub = echoing(make_hub())
    with pytest.raises(ZeroDivisionError), hub:
        _ = 1 / 0
    assert not hub.is_open


SCRIPT = """
import asyncio, signal, threading
from remit import Brief, Hub

hub = Hub()

@hub.agent("wait")
async def wait(brief: Brief) -> str:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    await asyncio.sleep(3600)
    return ""

try:
    with hub:
        hub.ask_sync("wait", "for ever", user="u")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_cancels_what_was_asked_and_closes_the_hub(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run_program([sys.executable, "script.py"], folder=tmp_path, variables=environment())
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


FORKED = """
import os, sys
from remit import Hub

hub = Hub()
hub.add("a", lambda brief: "answered")

with hub:
    child = os.fork()
    if child == 0:
        for use in (lambda: hub.ask_sync("a", user="u"), hub.__enter__):
            try:
                use()
            except RuntimeError as error:
                print(error, flush=True)
        sys.exit()
    os.waitpid(child, 0)
    print(hub.ask_sync("a", user="u").result)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_says_at_once_that_it_cannot_use_the_hub(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FORKED)
    flags = ["-W", "ignore::DeprecationWarning"]  # newer Pythons warn of any fork beside threads
    done = run_program([sys.executable, *flags, "script.py"], folder=tmp_path, variables=environment())
    why = "this process was forked while the hub was open: create and open a hub after the fork\n"
    assert (done.returncode, done.stdout) == (0, f"{why}{why}answered\n"), done.stderr
