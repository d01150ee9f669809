"""What the process of an isolated agent loads before it loads the agent: every start of one pays for it."""

import json
import subprocess
import sys

NOT_NEEDED = (
    "remit.runtime.brief_backend",
    "remit.runtime.brief_tools",
    "remit.runtime.delegation.dispatch",
    "remit.runtime.frames",
    "remit.runtime.ledger",
    "remit_cli.processes.sandbox",
    "remit.stores",
    "remit.hub",
    "remit_cli.config",
    "remit_cli.main",
    "remit_server",
    "click",
    "rich",
)


def test_an_agents_process_does_not_load_what_only_a_hub_or_a_sandbox_needs() -> None:
    script = "import json, sys, remit_cli.processes.process_main; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [name for name in json.loads(done.stdout) if name.startswith(NOT_NEEDED)] == []
