"""Runs a chat with a shared agent: opens the device and the local agent, and handles signals."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType

import click
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.drive.running import INTERRUPTED, Data, data_only, hearing, logging_to
from remit_cli.options import same_team
from remit_cli.places import team_path
from remit_cli.talk.reading import input_line
from remit_cli.talk.transcript import Printed
from remit_relay.bridge.ports import Mode
from remit_relay.commands.shared.client import DeviceClient
from remit_relay.commands.shared.conversation import NEWEST, RequestedRun, SharedConversation, continued
from remit_relay.commands.shared.sharing import is_outdated, reach_device
from remit_relay.commands.shared.view import SharedRunDisplay
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.local_api.views import SharedRunView
from remit_relay.messages.types import latest_offers
from remit_relay.session.moves import ENDED, SessionState
from remit_relay.team.device import allow_command, device_path, find_devices, using_device
from remit_relay.team.device_process import DeviceProcess
from remit_relay.team.section import PROFILES, SHARED
from remit_server.console.hosts import TOKEN_FILE

# ── choosing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_CHAT = "remit chat PROFILE DEVICE"


def choose_pair(profile: str | None, team_file: Path | None, overrides: Sequence[str]) -> tuple[str, str] | None:
    """Return a profile and a device: the only ones, or those that the person at the terminal chooses.

    None if *profile* is not a profile of the team, or is an agent of it, too: then no shared agent is meant.
    """
    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    if profile is None and not PROFILES.of(team):
        raise click.UsageError("Missing argument 'AGENT'.")
    if profile is not None and (
        profile not in PROFILES.of(team) or profile in team.agents or profile in team.workflows
    ):
        return None
    named = profile or _one("profile", [(name, _local_agent(team, name)) for name in PROFILES.of(team)])
    return named, _one("device", _devices(team))


def ask_objective() -> str:
    """Return what the two agents should do, from the person at the terminal."""
    if not _can_ask():
        raise click.UsageError("give --objective TEXT to start a run, or --continue to resume one")
    return click.prompt("Objective of the two agents", value_proc=_objective, err=True)


def _objective(text: str) -> str:
    if not text.strip():
        raise click.BadParameter("the objective must not be empty")
    return text.strip()


def _local_agent(team: Team, name: str) -> str:
    profile = PROFILES.of(team)[name]
    return profile.agent or " ".join(profile.run or profile.acp or ())


def _devices(team: Team) -> list[tuple[str, str]]:
    with using_device(team) as own:
        known = [each for each in Peers(own.state).list() if not each.revoked]
    able = [each for each in known if each.may_talk]
    if not able:
        why = "no device is paired yet" if not known else "no known device may be asked from here"
        advice = "Connect with another device: remit pair" if not known else "See them with `remit devices list`."
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion=advice))
    names = [each.card.name for each in able]
    # Two devices may have the same name; then the id tells them apart.
    return [(name if names.count(name) == 1 else each.device, "") for name, each in zip(names, able, strict=True)]


def _one(what: str, options: list[tuple[str, str]]) -> str:
    names = [name for name, _ in options]
    if len(names) == 1:
        return names[0]
    if not _can_ask():
        raise click.UsageError(f"there are several {what}s: {', '.join(names)}; name one: {_CHAT}")
    return _choice(f"Which {what}?", [(name, one_line(about, 60)) for name, about in options])


def _choice(question: str, options: list[tuple[str, str]]) -> str:
    """Return the name that the person at the terminal chooses, of some names with what they are."""
    names = [name for name, _ in options]
    for number, (name, about) in enumerate(options, 1):
        click.echo(f"{number:3}  {one_line(name)}  {one_line(about)}".rstrip(), err=True)

    def parse(typed: str) -> str:
        if typed in names:
            return typed
        if typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        raise click.BadParameter(f"enter a number from 1 to {len(names)}, or a name")

    return click.prompt(question, value_proc=parse, err=True)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


# ── the conversation ──────────────────────────────────────────────────────────────────────────────────────────────────


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
    """Whether to say where other programs of this user can show and control the run."""
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
            find_devices(Peers(own.state).list(), order.device)
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
    if profile in PROFILES.of(team):
        return
    known = list(PROFILES.of(team))
    near = did_you_mean(profile, known) or f"; known profiles: {', '.join(known) or 'none'}"
    why = f"no such profile `{profile[:100]}`{near}"
    todo = f"Add one to {team.file}: [profiles.NAME]. To chat with an agent of this team, leave out DEVICE."
    raise RemitError(fault(Code.NOT_FOUND, why, suggestion=todo))


def _with_chosen_agent(order: SharedOrder, team: Team) -> SharedOrder:
    """Return the order with the agent that the user chooses, if the device shares several."""
    if order.agent or order.continued is not None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return order
    with using_device(team) as own:
        members = find_devices(Peers(own.state).list(), order.device)
        offer = {each.name: each for peer in members for each in latest_offers(own.state, peer.device) or ()}
    if len(offer) < 2:
        return order
    click.echo(f"{one_line(_called(members, order.device))} shares several agents with you:", err=True)
    agents = [(each.name, each.description) for each in offer.values()]
    return replace(order, agent=_choice("Which one?", agents))


def _with_team_file_hint(error: RemitError, team: Team, peer: PeerDevice, profile: str) -> RemitError:
    """Return an error that says what to add to the team file, if that is the problem."""
    if error.fault.code is not Code.PERMISSION_DENIED:
        return error
    section, where = PROFILES.of(team)[profile], f"[profiles.{profile}] in {team.file}"
    message = error.fault.message.replace(peer.device, one_line(peer.card.name))
    suggestion = error.fault.suggestion.replace(peer.device, shlex.quote(peer.card.name))
    if section.allow_shared_agent_calls is False:
        suggestion = f"To allow it, set `allow_shared_agent_calls = true` in {where}."
    elif not peer.may_be_asked_by(profile) and not (section.allow_shared_agent_calls and section.devices & peer.names):
        suggestion = f"To allow it: {allow_command(peer.card.name, profile)}"
    return RemitError(replace(error.fault, message=message, suggestion=suggestion))


def _called(members: Sequence[PeerDevice], named: str) -> str:
    """Return the name of a group, or of the one device."""
    return named if named in members[0].groups else members[0].card.name


def _revoked(peer: PeerDevice) -> RemitError:
    todo = "Ask its owner to create a new device, and pair with its link: remit devices pair LINK"
    if peer.revoked_there:
        todo = "Ask its owner why. They can pair with a new device of yours: remit devices init, in another folder"
    return RemitError(fault(Code.PERMISSION_DENIED, one_line(peer.revocation), suggestion=todo))


class _SharedChat:
    def __init__(self, order: SharedOrder, data: Data) -> None:
        self._order = order
        terminal = sys.stdin.fileno() if sys.stdin.isatty() and sys.stderr.isatty() else None

        def entered(line: str | None) -> None:
            self.chat.entered(line)

        line = None if terminal is None else input_line(terminal, entered, prompts=False)
        self._view = SharedRunDisplay(data, as_json=order.as_json, as_jsonl=order.as_jsonl, line=line)
        self._view.answer_elsewhere = self._answer_elsewhere
        self._view.join = self._join
        self.chat = SharedConversation(self._view, line)
        self.hint = ""
        """The command that continues the chat later."""

    async def serve(self, team: Team) -> None:
        board, order = self._view.board, self._order
        async with AsyncExitStack() as stack:
            stack.enter_context(self._hearing())
            stack.enter_context(logging_to(board.say, verbose=order.verbose))
            stack.enter_context(self._printing())
            client, is_here = await stack.enter_async_context(
                reach_device(team, command="chat", overrides=order.overrides, lost=self._view.lost)
            )
            with using_device(team) as own:
                peer, *_ = members = find_devices(Peers(own.state).list(), order.device)
            if peer.revocation:
                raise _revoked(peer)
            self._introduce(team, client.process, is_here=is_here)
            requested = RequestedRun(
                profile=order.profile,
                device=order.device if order.device in peer.groups else peer.device,
                device_name=_called(members, order.device),
                members={each.device: each.card.name for each in members},
                agent=order.agent,
                objective=order.objective,
                mode=order.mode,
                continued=order.continued,
            )
            try:
                await self.chat.hold(client, requested, is_here=is_here)
            except RemitError as error:
                raise _with_team_file_hint(error, team, peer, order.profile) from error
            self.hint = await self._continue_command(client, requested, is_here=is_here)

    def _introduce(self, team: Team, process: DeviceProcess, *, is_here: bool) -> None:
        """Say where the run is executed, if that is elsewhere, and what else happens meanwhile."""
        if self._order.serves:
            token = device_path(team).with_name(TOKEN_FILE)
            self._view.board.say(
                f"Programs can show and control the run at {process.address}, with the token in {token}."
            )
        if not is_here:
            self._view.shared(f"The run is executed by {process.title}.")
            if is_outdated(process, team):
                self._view.shared(f"It has not read the changes of {team.file.name}: start it again to apply them.")
        elif SHARED.of(team):
            # Only one process at a time can run a device, so what the team shares is shared by this one.
            self._view.shared(
                f"Meanwhile other devices can call {', '.join(map(one_line, SHARED.of(team)))}, as set in [shared]."
            )

    def _answer_elsewhere(self, run: SharedRunView) -> str:
        draft = run.draft.id if run.draft else ""
        return f"→ remit pending approve {draft}{self._order.team}, or remit pending reject {draft}{self._order.team}"

    def _join(self, run: SharedRunView) -> str:
        """Return the command that joins the run from another terminal."""
        order = self._order
        names = f"{shlex.quote(order.profile)} {shlex.quote(order.device)}"
        return f"→ remit chat {names} --continue {run.id}{order.team}"

    async def _continue_command(self, client: DeviceClient, requested: RequestedRun, *, is_here: bool) -> str:
        """Return what becomes of the run, and the command that continues it."""
        run, order, process = self._view.run, self._order, client.process
        if run is None or run.state in ENDED:
            return ""
        if self.chat.is_gone:
            return (
                f"{process.title} has ended, and the runs of this device with it. They stay paused.\n"
                f"→ remit up --detach{order.team} runs the device until you stop it. Then: {self._join(run)[2:]}"
            )
        with suppress(RemitError):
            run = await client.run(run.id)
        command = self._join(run)
        with suppress(RemitError):
            newest = continued(await client.runs(), replace(requested, continued=NEWEST))
            command = command.replace(f" --continue {run.id}", " --continue") if newest.id == run.id else command
        if run.state in ENDED:
            return ""
        if run.state is SessionState.ERROR:
            return f"The run is stopped by an error.\n{command}"
        if is_here or run.state is SessionState.PAUSED:
            return f"The run stays paused.\n{command}"
        return f"The run continues in {process.title}.\n{command}, or remit pending list{order.team}"

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
        signals = 0

        def act(number: int) -> None:
            nonlocal signals
            if self._view.run is None:
                task.cancel()
                return
            self.chat.interrupt(leave=number != signal.SIGINT)
            if not self.chat.is_leaving:
                signals = 0

        # Not `loop.add_signal_handler`: an agent that blocks the loop must not delay the last signal.
        def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
            nonlocal signals
            signals += 1
            if signals > PATIENCE:
                self._view.board.abandon()
                os._exit(INTERRUPTED)
            loop.call_soon_threadsafe(act, number)

        with hearing(hear):
            yield
