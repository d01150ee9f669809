"""Executes one run in this process, shows its progress, gives its answer, and cancels it on request."""

import asyncio
import gc
import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import NamedTuple

import click

from remit.hub.hub import Hub
from remit.ports import Approver
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Approval, Record
from remit.runtime.run_tree import Tree
from remit.words.names import hidden_names, without_names
from remit.words.terminal import one_line
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.drive.order import Order, tell_files
from remit_cli.drive.running import INTERRUPTED, Data, data_only, interrupts, logging_to
from remit_cli.options import same_team
from remit_cli.places import Place, current_user, place_of, relative_path
from remit_cli.show.display import Display, PlainDisplay, display_for
from remit_cli.show.runs import details, exit_code, short, summary
from remit_cli.show.screen import now_ms, styled
from remit_server.documents.runs import record_line

# Often enough for a counter in seconds.
TICK_S = 0.25
# Questions that the team answers itself are answered by then and need no notice.
ANNOUNCE_S = 0.3


OnRecord = Callable[[Record, Hub], Awaitable[None]]
"""Receives each committed record."""


class FinishedRun(NamedTuple):
    """A finished run."""

    tree: Tree
    response: Response
    store: Place
    interrupted: bool


async def run_order(
    order: Order,
    team: Team,
    on_record: OnRecord,
    *,
    verbose: bool,
    speakers: Collection[str] | None = None,
    recording: Path | None = None,
) -> FinishedRun:
    """Execute an order and return the outcome; what it gets from outside is kept in the file *recording*.

    With *speakers*, the output is for an end user: it shows what these agents say, not which agents do the work.
    """
    tree = Tree()
    display = display_for(tree) if speakers is None else PlainDisplay(speakers)
    try:
        approver = terminal_approver(team, display)
        hub = hub_of(team, approver=approver)
        refuse_unknown(order.agent, hub)
        follower = RunFollower(hub, tree, display, on_record, at_terminal=approver is not None, plainly=bool(speakers))
        # A log message names agents and quotes exceptions; the record has them, too.
        say = display.say if verbose or speakers is None else _nowhere
        with logging_to(say, verbose=verbose), interrupts(follower.stop, display.abandon):
            async with hub, nullcontext() if recording is None else hub.record(recording) as recorder:
                response = await follower.run(order)
            for each in () if recorder is None else recorder.unrecorded:
                display.say(f"warning: {each}")
            return FinishedRun(tree, response, place_of(team), follower.stopping)
    finally:
        display.close()


def _nowhere(_: str) -> None:
    """Drop a message."""


class RunFollower:
    """Follows one run from its first record to its last."""

    def __init__(
        self, hub: Hub, tree: Tree, display: Display, on_record: OnRecord, *, at_terminal: bool, plainly: bool = False
    ) -> None:
        self._hub = hub
        self._tree = tree
        self._display = display
        self._on_record = on_record
        self._at_terminal = at_terminal
        self._plainly = plainly
        self._task = asyncio.current_task()
        self.stopping = False

    async def run(self, order: Order) -> Response:
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            async with aclosing(self._hub.stream(order.agent, order.text, user=order.user, **order.options)) as records:
                async for record in records:
                    await self._take(record)
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])
        response = self._tree.response
        assert response is not None, "a stream ends with the response"
        return response

    def stop(self, signal_name: str) -> None:
        """Cancel the run; finished parts are kept."""
        self.stopping = True
        root = self._tree.root
        if root is None:
            assert self._task is not None
            self._task.cancel()  # nothing was recorded, so there is nothing to wait for
            return
        self._display.say("Stopping; press Ctrl-C again to exit at once.")
        self._hub.cancel(root.path, f"interrupted by {current_user()} ({signal_name})")

    async def _take(self, record: Record) -> None:
        node = self._tree.feed(record)
        self._display.show(record, node)
        await self._on_record(record, self._hub)
        if isinstance(record.body, Approval) and record.body.agreed is None:
            asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce, record.body.id)

    def _announce(self, question: str) -> None:
        consent = self._tree.consents[question]
        node = self._tree.nodes[consent.approval.delegation]
        if consent.answered_ms is not None or not node.question or (consent.is_here and self._at_terminal):
            return
        question = f"{one_line(node.agent)} waits for approval: {one_line(node.question)}"
        if self._plainly:
            plain = without_names(node.question, hidden_names(self._hub.cards.values())) == node.question
            question = f"This waits for approval: {one_line(node.question)}" if plain else "This waits for approval."
        self._display.say(f"{question}\n→ {consent.todo}")

    async def _tick(self) -> None:
        while True:
            self._display.tick()
            await asyncio.sleep(TICK_S)


def terminal_approver(team: Team, display: Display) -> Approver | None:
    """Return the approver for the terminal, if the team uses it and there is one."""
    if team.approvals.otherwise != "terminal" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from remit_cli.drive.approver import TerminalApprover

    return TerminalApprover(display, current_user(), sys.stdin.fileno())


def refuse_unknown(agent: str, hub: Hub) -> None:
    """Raise a `RemitError` for an unknown agent, with the known ones."""
    if agent in hub.cards:
        return
    names = ", ".join(hub.cards) or "no agents yet"
    raise RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"no such agent `{agent}`{did_you_mean(agent, hub.cards)}",
            suggestion=f"This team has: {names}.",
        )
    )


def carry_out(
    order: Order,
    *,
    as_json: bool,
    as_jsonl: bool,
    verbose: bool,
    named_team: Path | None,
    speakers: Collection[str] | None = None,
    folder: Path | None = None,
    recording: Path | None = None,
) -> int:
    """Execute an order, and return the exit code; *speakers* are the agents that address the user.

    Files of the answer are written to *folder*, and what the run gets from outside to *recording*.
    """
    gc.freeze()  # the modules stay until the end; what agents create from here on is collected as usual
    with data_only() as data:

        async def print_record(record: Record, _: Hub) -> None:
            if as_jsonl:
                data.document(record_line(record))

        if recording is None:
            team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        else:
            from remit_cli.drive.replaying import recorded_team

            team = recorded_team(Path(order.team_file), order.overrides, offline=False)
        try:
            work = run_order(order, team, print_record, verbose=verbose, speakers=speakers, recording=recording)
            ended, stuck = running.run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        if speakers is None:
            _tell(_closing_lines(ended, named_team), dim=ended.response.ok)
        if recording is not None:
            _tell([f"→ remit runs replay {shlex.quote(str(recording))}{same_team(named_team)}"], dim=True)
        _give(ended, data, as_json=as_json, as_jsonl=as_jsonl)
        tell_files(ended.response.files, folder)
        if speakers is not None:
            # The reply command comes after the question.
            _tell(_plain_summary(ended, named_team), dim=False)
        if stuck:
            running.leave(exit_code(ended.response))
        return exit_code(ended.response)


def _tell(lines: Iterable[str], *, dim: bool) -> None:
    for line in lines:
        click.echo(styled(line, dim=dim), err=True)


def _give(ended: FinishedRun, data: Data, *, as_json: bool, as_jsonl: bool) -> None:
    if as_json:
        run = ended.response.run
        data.document(details(ended.tree, run, "finished", ended.store, now_ms()))
    elif not as_jsonl:
        if data.is_terminal and sys.stderr.isatty() and ended.response.result is not None:
            click.echo(err=True)  # the answer stands apart from what was said about the run
        data.answer(ended.response.result, bold=True)


def _closing_lines(ended: FinishedRun, named_team: Path | None) -> Iterator[str]:
    """Yield the summary of a run, or what remains of an interrupted one."""
    response = ended.response
    interrupted = ended.interrupted and exit_code(response) == INTERRUPTED
    yield ""
    yield from summary(ended.tree, response, interrupted=interrupted)
    if interrupted:
        kept = "The answer so far is below" if response.result is not None else "There is no answer yet"
        yield f"{kept}; the record is in {relative_path(ended.store)}."
    if response.requires_followup and response.session:
        yield _reply(f"remit chat {response.target} --session {shlex.quote(response.session)}{same_team(named_team)}")
    if response.status in (Status.PARTIAL, Status.TIMEOUT):
        yield f"→ remit runs retry {short(response.run)} --deadline TIME{same_team(named_team)}"
    yield f"→ remit runs show {short(response.run)}{same_team(named_team)}"


def _plain_summary(ended: FinishedRun, named_team: Path | None) -> Iterator[str]:
    """Yield the summary of a run in plain words, for the user who asked."""
    response = ended.response
    yield ""
    yield from summary(ended.tree, response, plainly=True)
    if response.requires_followup and response.session:
        yield _reply(f'remit ask --session {shlex.quote(response.session)}{same_team(named_team)} "…"')
    yield f"→ remit runs show {short(response.run)}{same_team(named_team)}"


def _reply(command: str) -> str:
    return f"It asks you a question. Reply with: {command}"
