"""Anna's agent works with the one that Bob shares, over a gateway that can read nothing of it: `make demo-relay`."""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Self

from remit.protocol.errors import RemitError
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.show.tree_lines import plain_ascii
from remit_relay.bridge.ports import Mode
from remit_relay.device.identity import comparable_code, read_link
from remit_relay.device.peers import Peers
from remit_relay.e2e.account import Device
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay, PendingDraft, TimelineEntry
from remit_relay.team.device import create_device, find_device
from remit_relay.team.device_service import relaying

HERE = Path(__file__).parent
FOLDER = Path(".remit") / "demo-relay"
OBJECTIVE = "Review this API for security issues"
# Far more than anything takes, so that only a demo that would hang ever sees it.
LIMIT_S = 200
WIDTH = min(shutil.get_terminal_size((100, 24)).columns, 100)
INDENT = 11
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
FANCY = (sys.stdout.encoding or "").lower().startswith("utf")


async def main() -> int:
    """Tell the story, and return the exit code."""
    say(bold("Remit: Anna's agent works with the one that Bob shares"))
    paragraph(
        "Anna's device, Bob's device and a gateway between them are processes of their own. Anna sets the objective and"
        " stays in control: she sees what her agent would send, edits it, takes over, or ends it. What the two sides"
        " say is sealed from device to device. To the left stands who speaks or acts; what explains it is in brackets."
    )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway())
        anna = team("anna", gateway.address)
        pair(anna, team("bob", gateway.address))
        bob = await stack.enter_async_context(Sharing(gateway.address))
        host = await stack.enter_async_context(Anna(anna))
        first = await together(host, bob)
        second = await outage(host, bob, gateway)
        await refusal(host)
    return show_verdict([first, second])


# ── the story ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def pair(anna: Team, bob: Team) -> None:
    heading("1. Two devices come to know each other")
    hers, his = create_device(anna, "anna-laptop"), create_device(bob, "bob-desktop")
    field("Anna", f"sees the code {meet(hers, his)}")
    field("Bob", f"sees the code {meet(his, hers)}")
    behind("the same on both: nobody stands between them. The links that they sent each other hold no secret")
    Peers(hers.state).share(his.id)
    Peers(his.state).allow(hers.id)
    for device in (hers, his):
        device.state.close()


def meet(own: Device, other: Device) -> str:
    """Pair with a device by its link, as `remit devices pair` does, and return the code that is compared."""
    card, peers = read_link(other.card.link()), Peers(own.state)
    peers.pair(card)
    peers.verify(card.device)
    return comparable_code(own.card, card)


async def together(anna: "Anna", bob: "Sharing") -> Overlay:
    heading("2. Her agent works with his, and she is asked where a rule says so")
    field("Anna", OBJECTIVE, BOLD)
    run = await anna.start(OBJECTIVE, mode="semi_auto")
    run, draft = await anna.drafted(run)
    field("her agent", f"would send: {draft.text}", YELLOW)
    behind(f"it waits for Anna, because of {'; '.join(f'{each.rule}: {each.why}' for each in draft.reviews)}")
    field("Anna", "changes a word, and lets it go")
    await anna.host.act(run.id, moves.Approve(draft.id, draft.text.replace("its", "your")))
    run = await anna.until(run, SessionState.COMPLETED)
    show(run.timeline)
    behind(
        f"no rule asked about the second message. Bob's hub judged, ran and recorded {await bob.answered(2)} requests"
    )
    field("result", run.result, GREEN)
    return run


async def outage(anna: "Anna", bob: "Sharing", gateway: "Gateway") -> Overlay:
    heading("3. Anna takes over, Bob is away, the gateway is killed, and nothing is lost")
    run = await anna.start(OBJECTIVE, mode="manual")
    await anna.drafted(run)
    run = await anna.host.act(run.id, moves.TakeOver())
    await bob.end()
    run = await anna.host.act(run.id, moves.Say("Can a token be revoked before it expires?"))
    show(run.timeline)
    await anna.brought()
    behind("Bob's device is not there, so the gateway keeps the message for him")
    field("gateway", f"is killed in the middle: kill -9 {gateway.process.pid}", RED)
    await gateway.kill()
    behind(f"what is left in its file of the message: {gateway.left()}")
    await gateway.begin()
    field("gateway", f"a new one starts in the same folder, as process {gateway.process.pid}")
    await bob.begin()
    field("Bob", "comes back, and the message reaches him")
    run = await anna.until(run, SessionState.PROCESSING_REMOTE)
    show(run.timeline[1:])
    await anna.host.act(run.id, moves.HandBack())
    run, draft = await anna.drafted(run)
    field("Anna", "lets her agent write again")
    field("her agent", f"would send: {draft.text}", YELLOW)
    field("Anna", "ends it here; that draft is never sent")
    return await anna.host.act(run.id, moves.Stop())


async def refusal(anna: "Anna") -> None:
    heading("4. What no profile may do")
    field("Anna", "has her agent work with her own device")
    try:
        await anna.host.start("reviewer", anna.id, "Talk to yourself")
    except RemitError as error:
        field("refused", f"{error.fault.code}: {error.fault.message.replace(anna.id, 'anna-laptop')}", RED)


def show_verdict(runs: Sequence[Overlay]) -> int:
    """Look for what was said in all that the gateway has kept, and return the exit code for what was found."""
    kept = b"".join(file.read_bytes() for file in (FOLDER / "gateway").rglob("*") if file.is_file())
    texts = [entry.text for run in runs for entry in run.timeline] + [OBJECTIVE, "anna@example.org"]
    leaked = [text for text in texts if text.encode() in kept]
    say()
    for run in runs:
        labels = ", ".join(entry.label for entry in run.timeline if entry.label)
        field("run", f"{run.state}, {run.turn} of {run.limits.max_turns} turns: {labels.replace('_', '-')}")
    words = (
        f"{len(kept):,} bytes in its files were searched, and of the {len(texts)} texts that were said none is there"
    )
    field("gateway", words if not leaked else f"it can read {leaked}", RED if leaked else GREEN)
    field("look", "docs/tutorials/shared-agents.md says how to do it on two machines")
    return 1 if leaked else 0


# ── who takes part ────────────────────────────────────────────────────────────────────────────────────────────────────


class Anna:
    """Anna's device at work, with the agent of examples/relay/agent.py, while the block lasts."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Anna":
        work = relaying(self._team, hub=None, host=True, share=False, changed=lambda _: self._changed.set())
        self._at_work = await self._stack.enter_async_context(work)
        assert self._at_work.host is not None
        self.host, self.id = self._at_work.host, self._at_work.device.id
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, objective: str, *, mode: Mode) -> Overlay:
        bob = find_device((peer for peer, _ in await self.host.known()), "bob-desktop")
        return await self.host.start("reviewer", bob.device, objective, mode=mode)

    async def until(self, run: Overlay, state: SessionState) -> Overlay:
        """Return the run once it is there."""
        while True:
            self._changed.clear()
            now = next(each for each in self.host.runs if each.id == run.id)
            if now.state is state:
                return now
            if now.state is SessionState.ERROR:
                raise SystemExit(f"The run failed: {now.failure}")
            await self._changed.wait()

    async def drafted(self, run: Overlay) -> tuple[Overlay, PendingDraft]:
        """Return the run and the draft that waits for Anna."""
        ready = await self.until(run, SessionState.READY_TO_SEND)
        assert ready.pending is not None
        return ready, ready.pending

    async def brought(self) -> None:
        """Return once the gateway has all that was sent."""
        while await self._at_work.post.do(self._at_work.sealer.outbox, 0, 1):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


class Program:
    """A command of `remit` that goes on until it is ended, and says in JSON what happens."""

    process: asyncio.subprocess.Process

    async def run(self, *arguments: str) -> dict[str, Any]:
        """Start it, and return the first that it says: that it is ready."""
        command = (sys.executable, "-X", "utf8", "-m", "remit_cli", *arguments)
        # Whoever starts the demo trusts the files beside it, whichever user the clone belongs to.
        trusting = {**os.environ, "REMIT_TRUST_TEAM": str((HERE / "bob.toml").absolute())}
        quiet, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=quiet, stdout=pipe, stderr=quiet, env=trusting
        )
        return await self.hear()

    async def hear(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise SystemExit("A process of the demo ended before its time.")
        return json.loads(line)

    async def begin(self) -> None:
        """Start it."""
        raise NotImplementedError

    async def end(self) -> None:
        """End it well."""
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()


class Gateway(Program):
    """`remit relay`."""

    address = "ws://127.0.0.1:0"

    async def begin(self) -> None:
        port = self.address.rpartition(":")[2]
        announced = await self.run("relay", "--folder", str(FOLDER / "gateway"), "--port", port, "--json")
        self.address = announced["address"]

    def left(self) -> str:
        """Return what it has left of the message that waits, now that it is dead: how many bytes, and some of them."""
        with tempfile.TemporaryDirectory() as folder:  # a copy: to read it is to tidy it up
            shutil.copytree(FOLDER / "gateway", folder, dirs_exist_ok=True)
            with closing(sqlite3.connect(Path(folder) / "gateway.db")) as file:
                (sealed,) = file.execute("SELECT body FROM message ORDER BY place DESC LIMIT 1").fetchone()
        middle = len(sealed) // 2
        return f"{len(sealed):,} sealed bytes, … {sealed[middle : middle + 16].hex(' ', 2)} …"

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        await self.process.wait()


class Sharing(Program):
    """`remit share` at Bob's."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def begin(self) -> None:
        settings = [f"--set={each}" for each in overrides("bob", self._address)]
        await self.run("share", "--team", str(HERE / "bob.toml"), *settings, "--jsonl")

    async def answered(self, number: int) -> int:
        """Return how many questions were answered, once it is that many."""
        count = 0
        while count < number:
            count += (await self.hear()).get("event") == "answered"
        return count


def team(name: str, address: str) -> Team:
    """Return the team of one of them, with all that it keeps in the demo's folder."""
    return load_team(HERE / f"{name}.toml", overrides=overrides(name, address))


def overrides(name: str, address: str) -> list[str]:
    """Return what is different from the team file: a gateway of the demo's own, and where things are kept."""
    changes = [f"relay.gateway={address}", f"store.path={(FOLDER / name / 'hub.db').absolute()}"]
    if name == "anna":
        changes.append(f"profiles.reviewer.run={json.dumps([sys.executable, 'agent.py'])}")
    return changes


# ── plain text ────────────────────────────────────────────────────────────────────────────────────────────────────────

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
WHO = {"local_agent": "her agent", "remote_agent": "his agent", "user": "Anna"}


def show(timeline: Sequence[TimelineEntry]) -> None:
    """Print what was said, by whom, and who let it go."""
    for entry in timeline:
        label = f" ({entry.label.replace('_', '-')})" if entry.label else ""
        field(WHO[entry.role], entry.text + label)


def say(line: str = "") -> None:
    print(line if FANCY else plain_ascii(line), flush=True)


def heading(text: str) -> None:
    say()
    say(bold(text))


def paragraph(text: str) -> None:
    say(textwrap.fill(text, WIDTH))


def behind(text: str) -> None:
    """Print what nobody said."""
    for line in textwrap.wrap(f"[{text}]", WIDTH - INDENT):
        say(" " * INDENT + painted(line, YELLOW))


def field(name: str, text: str, colour: str = DIM) -> None:
    """Print a name, and beside it what belongs to it."""
    first, *rest = textwrap.wrap(text, WIDTH - INDENT) or [""]
    say(f"{painted(f'{name:>{INDENT - 1}}', colour)} {first}")
    for line in rest:
        say(" " * INDENT + line)


def bold(text: str) -> str:
    return painted(text, BOLD)


def painted(text: str, colour: str) -> str:
    return f"\033[{colour}m{text}\033[0m" if COLOURED else text


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
