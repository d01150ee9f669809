"""Runs a chat with a shared agent: opens the device and the local agent, and handles signals."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

import click
from msgspec import Struct
from msgspec.structs import replace

from remit.cli.drive import running
from remit.cli.drive.running import INTERRUPTED, Data, data_only, hearing, logging_to
from remit.cli.drive.sharing import said_of
from remit.cli.options import same_team
from remit.cli.shared.conversation import NEWEST, RequestedRun, SharedConversation, continued
from remit.cli.shared.view import SharedRunDisplay
from remit.cli.show.screen import clock_time, now_ms
from remit.cli.talk.reading import input_line
from remit.cli.talk.transcript import Printed
from remit.config.composition import hub_of
from remit.config.device import allow_command, find_device, using_device
from remit.config.device_service import relaying
from remit.config.load import load_team
from remit.config.team import Team
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.relay.bridge.ports import Mode
from remit.relay.device.peers import PeerDevice, Peers
from remit.relay.messages.catalog import latest_offers
from remit.relay.serve_shared import SharingEvent
from remit.relay.session.moves import ENDED, SessionState
from remit.relay.session.run import Overlay
from remit.server.shared import TOKEN_FILE, Changes, serve_shared
from remit.text.terminal import one_line

# A second Ctrl-C while the chat exits means that the user does not want to wait.
PATIENCE = 2


class SharedOrder(Struct, frozen=True, kw_only=True):
    """The chat that the command line asks for."""

    profile: str
    device: str
    agent: str
    """The name under which the device shares the other agent; empty: the only one, or the one that the user chooses."""
    objective: str | None
    mode: Mode | None
    continued: str | None
    serves: bool
    """Whether other programs of this user may show and control the run."""
    team_file: str
    overrides: tuple[str, ...]
    as_json: bool
    as_jsonl: bool
    verbose: bool
    named_team: Path | None

    @property
    def team(self) -> str:
        """The option that names the team in a suggested command, if one is needed."""
        return same_team(self.named_team)


def chat_with_shared_agent(order: SharedOrder) -> int:
    """Run a chat to its end, and return the exit code."""
    with data_only() as data:
        team = load_team(Path(order.team_file), overrides=order.overrides)
        _refuse_unknown(team, order.profile)
        with using_device(team) as own:  # unknown names are reported before anything connects
            find_device(Peers(own.state).list(), order.device)
        order = _with_chosen_agent(order, team)
        held = _SharedChat(order, data)
        stuck = True
        try:
            _, stuck = running.run(held.serve(team))
        except asyncio.CancelledError:  # stopped before the run existed
            return INTERRUPTED
        if held.hint:
            click.echo(held.hint, err=True)
        if stuck:
            running.leave(held.chat.code)
        return held.chat.code


def _refuse_unknown(team: Team, profile: str) -> None:
    if profile in team.profiles:
        return
    known = list(team.profiles)
    near = did_you_mean(profile, known) or f"; known profiles: {', '.join(known) or 'none'}"
    raise RemitError(
        fault(
            Code.NOT_FOUND,
            f"no such profile `{profile[:100]}`{near}",
            suggestion=f"Add one to {team.file}: [profiles.NAME]. To chat with an agent of this team, "
            "leave out DEVICE.",
        )
    )


def _with_chosen_agent(order: SharedOrder, team: Team) -> SharedOrder:
    """Return the order with the agent that the user chooses, if the device shares several."""
    if order.agent or order.continued is not None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return order
    with using_device(team) as own:
        peer = find_device(Peers(own.state).list(), order.device)
        offer = latest_offers(own.state, peer.device) or ()
    if len(offer) < 2:
        return order
    click.echo(f"{one_line(peer.card.name)} shares several agents with you:", err=True)
    names = [each.name for each in offer]
    for number, each in enumerate(offer, 1):
        click.echo(f"{number:3}  {one_line(each.name)}  {one_line(each.description)}".rstrip(), err=True)

    def meant(typed: str) -> str:
        if typed in names:
            return typed
        if typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        raise click.BadParameter(f"enter a number from 1 to {len(names)}, or a name")

    return replace(order, agent=click.prompt("Which one?", value_proc=meant, err=True))


def _with_team_file_hint(error: RemitError, team: Team, peer: PeerDevice, profile: str) -> RemitError:
    """Return an error that says what to add to the team file, if that is the problem."""
    if error.fault.code is not Code.PERMISSION_DENIED:
        return error
    said, where = team.profiles[profile], f"[profiles.{profile}] in {team.file}"
    message = error.fault.message.replace(peer.device, one_line(peer.card.name))
    suggestion = error.fault.suggestion.replace(peer.device, shlex.quote(peer.card.name))
    if said.allow_shared_agent_calls is False:
        suggestion = f"To allow it, set `allow_shared_agent_calls = true` in {where}."
    elif profile not in peer.profiles and not (
        said.allow_shared_agent_calls and said.devices & {peer.device, peer.card.name}
    ):
        suggestion = f"To allow it: {allow_command(peer.card.name, profile)}"
    return RemitError(replace(error.fault, message=message, suggestion=suggestion))


def _revoked(peer: PeerDevice) -> RemitError:
    return RemitError(
        fault(
            Code.PERMISSION_DENIED,
            f"{one_line(peer.card.name)} was revoked here permanently",
            suggestion="Ask its owner to create a new device, and pair with its link: remit devices pair LINK",
        )
    )


class _SharedChat:
    def __init__(self, order: SharedOrder, data: Data) -> None:
        self._order = order
        terminal = sys.stdin.fileno() if sys.stdin.isatty() and sys.stderr.isatty() else None

        def entered(line: str | None) -> None:
            self.chat.entered(line)

        line = None if terminal is None else input_line(terminal, entered, prompts=False)
        self._view = SharedRunDisplay(data, as_json=order.as_json, as_jsonl=order.as_jsonl, line=line)
        self._view.answer_elsewhere = self._answer_elsewhere
        self.chat = SharedConversation(self._view, line)
        self._device = ""
        self._names: dict[str, str] = {}
        self.hint = ""
        """The command that continues the chat later."""

    async def serve(self, team: Team) -> None:
        board, order = self._view.board, self._order
        async with AsyncExitStack() as stack:
            stack.enter_context(self._hearing())
            stack.enter_context(logging_to(board.say, verbose=order.verbose))
            stack.enter_context(self._printing())
            hub, changes = None, Changes()

            def changed(run: Overlay) -> None:
                self.chat.changed(run)
                changes.changed(run)

            # The team's agents are also shared during a chat, because only one process at a time can represent a
            # device.
            if team.shared or team.profiles[order.profile].agent is not None:
                hub = await stack.enter_async_context(hub_of(team))
            relay = await stack.enter_async_context(
                relaying(
                    team,
                    hub=hub,
                    host=True,
                    share=bool(team.shared),
                    changed=changed,
                    told=self._print_call,
                    unable=self._view.unable,
                    trouble=self._troubled,
                    linked=self._view.linked,
                )
            )
            assert relay.host is not None, "it was asked for"
            if order.serves:
                token = team.store_path.parent / TOKEN_FILE
                address = await stack.enter_async_context(serve_shared(relay.host, changes, token=token))
                board.say(f"Programs can show and control the run at {address}, with the token in {token}.")
            known = await relay.post.do(relay.sealer.peers.list)
            self._names = {each.device: each.card.name for each in known}
            peer = find_device(known, order.device)
            self._device = peer.device
            if peer.revoked:
                raise _revoked(peer)
            if team.shared:
                self._view.shared(
                    f"Meanwhile other devices can call {', '.join(map(one_line, team.shared))}, as set in [shared]."
                )
            wanted = RequestedRun(
                profile=order.profile,
                device=peer.device,
                device_name=peer.card.name,
                agent=order.agent,
                objective=order.objective,
                mode=order.mode,
                continued=order.continued,
            )
            try:
                await self.chat.hold(relay.host, wanted, relay.ended)
            except RemitError as error:
                raise _with_team_file_hint(error, team, peer, order.profile) from error
            self.hint = self._continue_command(relay.host.runs, wanted)

    def _troubled(self, device: str, why: Fault | None) -> None:
        # Other devices are told what the team shares once they connect; the chat does not wait for that.
        if device == self._device:
            self._view.troubled(device, why)

    def _print_call(self, what: SharingEvent) -> None:
        """Print the calls of other devices to the agents that this team shares."""
        name = self._names.get(what.device, what.device)
        self._view.shared(f"{clock_time(now_ms())}  {one_line(said_of(what, name))}")

    def _answer_elsewhere(self, run: Overlay) -> str:
        draft = run.pending.id if run.pending else ""
        return f"→ remit pending approve {draft}{self._order.team}, or remit pending reject {draft}{self._order.team}"

    def _continue_command(self, runs: tuple[Overlay, ...], wanted: RequestedRun) -> str:
        run = next((each for each in runs if self._view.run and each.id == self._view.run.id), None)
        if run is None or run.state in ENDED:
            return ""
        newest = continued(
            runs, RequestedRun(profile=wanted.profile, device=wanted.device, device_name="", continued=NEWEST)
        )
        which = "" if newest.id == run.id else f" {run.id}"
        order = self._order
        names = f"{shlex.quote(order.profile)} {shlex.quote(order.device)}"
        stays = "is stopped by an error" if run.state is SessionState.ERROR else "stays paused"
        return f"The run {stays}.\n→ remit chat {names} --continue{which}{order.team}"

    @contextmanager
    def _printing(self) -> Generator[None]:
        """Print the output of agents above the footer."""
        if not self._view.board.redraws:
            yield
            return
        printed = Printed(sys.stderr, self._view.board.say)
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
        printed.finish()

    @contextmanager
    def _hearing(self) -> Generator[None]:
        """Handle signals during the chat."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "signals are heard in a task"
        heard = 0

        def act(number: int) -> None:
            nonlocal heard
            if self._view.run is None:
                task.cancel()
                return
            self.chat.interrupt(leave=number != signal.SIGINT)
            if not self.chat.is_leaving:
                heard = 0

        # Not `loop.add_signal_handler`: an agent that blocks the loop must not delay the last signal.
        def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
            nonlocal heard
            heard += 1
            if heard > PATIENCE:
                self._view.board.abandon()
                os._exit(INTERRUPTED)
            loop.call_soon_threadsafe(act, number)

        with hearing(hear):
            yield
