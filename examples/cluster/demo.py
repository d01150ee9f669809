"""Four hubs on PostgreSQL and NATS are one team, and one of them is killed in the middle: `make demo-cluster`.

The servers come from wheels and run on this machine, in folders of their own, for as long as the demo does.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from nats_server import NatsServer
from postgres_server import PASSWORD, USER, PostgresServer

HERE = Path(__file__).parent
FOLDER = Path(".remit") / "demo-cluster"
REMIT = Path(sys.executable).with_name("remit")
# Far more than anything takes, so that only a demo that would hang ever sees it.
LIMIT_S = 120
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Cluster:
    """A team's folder, its servers, and the hubs that were started."""

    def __init__(self, folder: Path, postgres: PostgresServer, nats: NatsServer) -> None:
        self.folder = folder
        self.hubs: dict[str, subprocess.Popen[bytes]] = {}
        url = asyncio.run(postgres.database())
        name = url.rpartition("/")[2]
        self._environ = {
            **os.environ,
            "REMIT_DEMO_PASSWORD": PASSWORD,
            "REMIT_STORE__URL": f"postgresql://{USER}@127.0.0.1:{postgres.port}/{name}",
            "REMIT_BUS__URL": nats.url,
        }

    def start(self, name: str, agent: str) -> None:
        """Start a hub that hosts one agent."""
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [REMIT, "worker", agent]
            self.hubs[name] = subprocess.Popen(command, cwd=self.folder, env=self._environ, stdout=log, stderr=log)

    def wait(self) -> None:
        """Return once every hub is on the bus."""
        until = time.monotonic() + LIMIT_S
        while any(b"newsroom" not in (self.folder / f"{name}.log").read_bytes() for name in self.hubs):
            if time.monotonic() > until or any(hub.poll() is not None for hub in self.hubs.values()):
                sys.exit("a hub did not start:\n" + self.logs())
            time.sleep(0.1)

    def logs(self) -> str:
        """Return what the hubs have said."""
        return "\n".join(f"{name}: {(self.folder / f'{name}.log').read_text()}" for name in self.hubs)

    def ask(self) -> "subprocess.Popen[str]":
        """Ask the editor, from a fifth process that hosts nothing."""
        command = [REMIT, "run", "editor", "Write about the port", "--user", "ada"]
        return subprocess.Popen(command, cwd=self.folder, env=self._environ, stdout=subprocess.PIPE, text=True)

    def remit(self, *words: str) -> str:
        """Return what a command prints, in the folder of the team."""
        done = subprocess.run(
            [REMIT, *words], cwd=self.folder, env=self._environ, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def at_work(self) -> int:
        """Return the process of the hub that looks up the ferry, once it has begun."""
        until = time.monotonic() + LIMIT_S
        while not (begun := list((self.folder / "begun").glob("ferry-*"))):
            if time.monotonic() > until:
                sys.exit("no hub took the work:\n" + self.logs())
            time.sleep(0.05)
        return int(begun[0].name.rpartition("-")[2])

    def close(self) -> None:
        """End every hub."""
        for hub in self.hubs.values():
            hub.kill()
            hub.wait()


def main() -> int:
    """Tell the story, and return the exit code."""
    say(bold("Remit: four hubs are one team, on one database and one bus"))
    folder = FOLDER.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "begun").mkdir(parents=True)
    for name in ("remit.toml", "newsroom.py"):
        shutil.copy(HERE / name, folder)
    postgres, nats = PostgresServer(), NatsServer().start()
    say(f"[PostgreSQL answers at port {postgres.port}, NATS at {nats.url}]")
    cluster = Cluster(folder, postgres, nats)
    try:
        return story(cluster)
    finally:
        cluster.close()
        nats.close()
        postgres.remove()


def story(cluster: Cluster) -> int:
    """Let the hubs work, kill one of them, and show what came of it."""
    heading("1. Four hubs, each with the agents that it was told to host")
    for name, agent in (("one", "editor"), ("two", "researcher"), ("three", "researcher"), ("four", "checker")):
        cluster.start(name, agent)
    cluster.wait()
    say(cluster.remit("agents", "list").rstrip())
    heading("2. Ada asks the editor, and a hub is killed in the middle")
    client = cluster.ask()
    victim = cluster.at_work()
    name = next(name for name, hub in cluster.hubs.items() if hub.pid == victim)
    os.kill(victim, signal.SIGKILL)
    say(f"[hub {name} was looking up the ferry: kill -9 {victim}; what it had begun is taken over when its lease ends]")
    answer, _ = client.communicate(timeout=LIMIT_S)
    say(answer.strip())
    heading("3. Who asked whom, over all hubs, from the one record")
    say(cluster.remit("runs", "tree", "last").rstrip())
    heading("4. The record of all hubs is one chain")
    verdict = cluster.remit("audit", "verify")
    say(verdict.rstrip())
    whole = client.returncode == 0 and "812" in answer and "340" in answer and "the record is whole" in verdict
    if not whole:
        say(cluster.logs())
    return 0 if whole else 1


def say(text: str) -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    say("\n" + bold(text))


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if COLOURED else text


if __name__ == "__main__":
    sys.exit(main())
