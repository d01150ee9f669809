"""A Ctrl-C that comes while a local agent's process is being started is not for it."""

import os
import subprocess
import sys

from remit_relay.bridge.supervised_agent import REAPER
from waiting import PATIENCE_S

# What is pending stays so over an exec: this is the moment in which the host's Ctrl-C reaches the child too.
STARTED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[1:]])
"""
SAYS = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


def test_an_agent_outlives_a_ctrl_c_while_it_is_started_and_hears_later_ones() -> None:
    lifeline, held = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", STARTED, REAPER, str(lifeline), sys.executable, "-c", SAYS],
            pass_fds=(lifeline,),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(lifeline)
        os.close(held)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
