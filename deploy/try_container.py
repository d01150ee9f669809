"""Runs the image that the argument names, as the page deployment says, asks its agent over HTTP, and stops it."""

import json
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TEAM = """
name = "trial"

[clients.web]
token = "$WEB_TOKEN"
users = ["*"]
agents = ["*"]

[agents.assistant]
run = "agents:assistant"
"""
AGENTS = """
from remit import Brief


async def assistant(brief: Brief) -> str:
    return f"I read: {brief.text}"
"""
PATIENCE_S = 60


def docker(*arguments: str) -> str:
    """Return what a command of docker prints."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def ask(address: str, token: str) -> str:
    """Return what the agent answers, once the hub is ready."""
    body = json.dumps({"target": "assistant", "user": "ada", "objective": "hello"}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            request = urllib.request.Request(f"{address}/v1/delegations", body, headers)
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.load(reply)["result"]
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def main(image: str) -> None:
    """Run the image without root and without a writable root file system, and print what came of it."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        team = Path(folder)
        team.chmod(0o755)
        (team / "remit.toml").write_text(TEAM, encoding="utf-8")
        (team / "agents.py").write_text(AGENTS, encoding="utf-8")
        container = docker(
            *("run", "--detach", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "-v", f"{team}:/team:ro"),
            *("-e", f"WEB_TOKEN={token}", "-p", "127.0.0.1::8080", image),
        )
        try:
            port = docker("port", container, "8080").rpartition(":")[2]
            answer = ask(f"http://127.0.0.1:{port}", token)
            docker("stop", "--time", "30", container)
            code = docker("inspect", "--format", "{{.State.ExitCode}}", container)
        finally:
            sys.stderr.write(docker("logs", container) + "\n")
            docker("rm", "--force", container)
    if (answer, code) != ("I read: hello", "0"):
        sys.exit(f"the container answered {answer!r} and ended with {code}")
    sys.stdout.write("the container answers, and ends when it is told to\n")


if __name__ == "__main__":
    main(sys.argv[1])
