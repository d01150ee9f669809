"""Resumes runs whose process is gone, and repeats those that did not succeed."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.redaction import TOKEN
from remit.ports import RunSummary
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Record
from remit.protocol.submission import AskOptions
from remit.runtime.redactor import Redactor, has_tokens_in
from remit.runtime.root_runs import LEASE_MS
from remit.runtime.run_tree import Node, Tree, TreeApproval
from remit.words.terminal import one_line
from remit_cli.config.composition import hub_of, vault_key_of
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.drive.control import answered, document_of, give
from remit_cli.drive.order import Order
from remit_cli.drive.run_order import ANNOUNCE_S, terminal_approver
from remit_cli.drive.running import INTERRUPTED, Data, data_only, interrupts, logging_to
from remit_cli.places import Place, StoreView, place_of, reading, writing
from remit_cli.show.display import Display, LineDisplay, display_for
from remit_cli.show.runs import exit_code, find_run, named, records_of, short, summary, summary_of
from remit_cli.show.screen import now_ms
from remit_cli.show.tree_lines import sentence
from remit_server.documents.runs import Resumed

POLL_S = 0.1
# After this time a dead process has lost its lease, and this hub has looked for runs that it can resume.
SETTLED_S = LEASE_MS * 4 / 3_000 + 1
# A hub resumes abandoned runs at once when it opens.
AT_ONCE_S = 1.0
# How many of the newest runs are searched for unfinished ones: more than anyone has in progress.
LOOKED_AT = 10_000


def resume(team: Team, path: Place, name: str | None, *, as_json: bool) -> int:
    """Resume the run *name*, or all that can be resumed; print the outcome and return the exit code."""
    with reading(path) as view:
        runs_meant = _unended(view) if name is None else [_find_summary(view, name)]
    mine = [each for each in runs_meant if each.agent in team.everyone]
    if name is not None:
        (known,) = runs_meant
        if known.response is not None:
            click.echo(f"The {named(known.run)} had already ended; this is its answer.", err=True)
        elif not mine:
            raise _not_of_this_team(known, team)
    with data_only() as data:
        runs = [each.run for each in mine if each.response is None]
        pursuit, stuck = None, False
        if runs:
            try:
                pursuit, stuck = running.run(_pursued(team, path, runs, patient=name is not None))
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None
        code = _report(team, path, runs_meant, pursuit, data, as_json=as_json, is_named=name is not None)
        if stuck:
            running.leave(code)
        return code


def _find_summary(view: StoreView, name: str) -> RunSummary:
    run = find_run(view, name)
    known = summary_of(view, run)
    if known is None:
        see = f"See why with `remit runs show {short(run)}`."
        raise RemitError(fault(Code.OUTCOME_UNKNOWN, f"{named(run)} was refused before it started", suggestion=see))
    return known


def _unended(view: StoreView) -> list[RunSummary]:
    """Return the unfinished runs, oldest first."""
    newest = view.runs(limit=LOOKED_AT)
    return [each for each in reversed(newest) if each.response is None]


def _not_of_this_team(known: RunSummary, team: Team) -> RemitError:
    return RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"the {named(known.run)} belongs to agent `{known.agent}`, which is not in {team.file.name}"
            f"{did_you_mean(known.agent, team.everyone)}",
            suggestion="Give the right team file with --team, or end the run with `remit runs cancel`.",
        )
    )


# ── the outcome ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _report(
    team: Team,
    path: Place,
    runs: Sequence[RunSummary],
    pursuit: "RecordFollower | None",
    data: Data,
    *,
    as_json: bool,
    is_named: bool,
) -> int:
    """Print the outcome of each run, and return the exit code; for several, that of the first without success."""
    trees = pursuit.trees if pursuit else {}
    over = [
        each.run
        for each in runs
        if each.response is not None or ((tree := trees.get(each.run)) is not None and tree.response is not None)
    ]
    responses = asyncio.run(answered(path, over, vault_key_of(team))) if over else {}
    for run, response in responses.items():
        if run in trees:
            for line in ("", *summary(trees[run], response), f"→ remit runs show {short(run)}"):
                click.echo(line, err=True)
        if not as_json:
            give(data, response)
    left = pursuit.left_alone() if pursuit else Resumed()
    if as_json:
        answers = tuple(document_of(run, response) for run, response in responses.items())
        data.document(answers[0] if is_named and answers else replace(left, answers=answers))
    if not trees and not over:
        click.echo("Nothing to resume: all runs of this team have ended.\n→ remit runs list", err=True)
    codes = [code for response in responses.values() if (code := exit_code(response))]
    if pursuit is not None and pursuit.stopped:
        return INTERRUPTED
    return codes[0] if codes else 0


# ── following ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pursued(team: Team, path: Place, runs: Sequence[str], *, patient: bool) -> "RecordFollower":
    trees = {run: Tree() for run in runs}
    display = display_for(trees[runs[0]]) if len(runs) == 1 else _Several()
    try:
        approver = terminal_approver(team, display)
        hub = hub_of(team, approver=approver, store=path if isinstance(path, Path) else None)
        hub.resume_only(runs)
        with reading(path) as view, logging_to(display.say, verbose=False):
            pursuit = RecordFollower(view, hub, trees, display, patient=patient, at_terminal=approver is not None)
            with interrupts(pursuit.stop, display.abandon):
                await pursuit.run()
        return pursuit
    finally:
        display.close()


class _Several(LineDisplay):
    """One line per record, with its run."""

    def show(self, record: Record, node: Node) -> None:
        self.say(f"{short(record.run)}  {sentence(record, node)}")


class RecordFollower:
    """Follows runs by their records, whether this process or another executes them.

    If it is *patient*, it waits for people and other processes; otherwise it leaves those runs to them.
    """

    def __init__(
        self,
        view: StoreView,
        hub: Hub,
        trees: dict[str, Tree],
        display: Display,
        *,
        patient: bool,
        at_terminal: bool,
    ) -> None:
        self.trees = trees
        self.stopped = False
        self._view = view
        self._hub = hub
        self._display = display
        self._patient = patient
        self._at_terminal = at_terminal
        self._seen = dict.fromkeys(trees, 0)
        self._fresh: set[str] = set()
        """Delegations with records since this process started to follow them."""
        self._last_record_s = dict.fromkeys(trees, 0.0)
        self._here: set[str] = set()
        """Runs of which this hub recorded something."""
        self._announced: set[str] = set()
        self._waiting: dict[str, TreeApproval] = {}
        self._elsewhere: set[str] = set()

    def stop(self, _: str) -> None:
        """Stop; runs that can be continued later are released."""
        self.stopped = True
        self._display.say("Exiting; press Ctrl-C again to exit at once.")

    async def run(self) -> None:
        """Return once all runs have ended, are left to others, or were stopped by the user."""
        for run in self.trees:
            self._look(run, show=False)
        async with self._hub:
            listening = asyncio.get_running_loop().create_task(self._listen())
            try:
                await self._follow()
            finally:
                listening.cancel()
                await asyncio.wait([listening])

    def left_alone(self) -> Resumed:
        """Report why each unfinished run is not waited for, and return these runs."""
        for run, consent in self._waiting.items():
            question = consent.approval
            click.echo(
                f"The {named(run)} waits for approval: {one_line(question.question)}\n"
                f"→ remit pending approve {question.id}, then remit runs resume {short(run)}",
                err=True,
            )
        for run in sorted(self._elsewhere):
            click.echo(f"Another process is executing the {named(run)}.\n→ remit runs watch {short(run)}", err=True)
        left = sorted(run for run in self._open() if self.stopped)
        for run in left:
            click.echo(f"The {named(run)} has not ended.\n→ Continue it: remit runs resume {short(run)}", err=True)
        return Resumed(waiting=tuple(self._waiting), elsewhere=tuple(sorted(self._elsewhere)), left=tuple(left))

    async def _listen(self) -> None:
        async for record in self._hub.events():
            self._here.add(record.run)

    async def _follow(self) -> None:
        began, is_wait_announced = time.monotonic(), False
        while not self.stopped and (left := self._open()):
            for run in left:
                self._look(run)
            self._announce()
            self._display.tick()
            elapsed = time.monotonic() - began
            if self._patient and elapsed > AT_ONCE_S and not is_wait_announced and not self._here.issuperset(left):
                is_wait_announced = True
                self._display.say(
                    f"Another process is executing the {named(left[0])}, or did so until a few seconds ago. "
                    "Waiting until it ends or can be resumed here. Ctrl-C to exit."
                )
            if not self._patient:
                self._leave_to_others(elapsed)
            await asyncio.sleep(POLL_S)

    def _open(self) -> list[str]:
        others = self._waiting.keys() | self._elsewhere
        return [run for run, tree in self.trees.items() if tree.response is None and run not in others]

    def _look(self, run: str, *, show: bool = True) -> None:
        tree = self.trees[run]
        for record in records_of(self._view, run, self._seen[run]):
            self._seen[run] = record.seq
            node = tree.feed(record)
            if show:
                self._display.show(record, node)
                self._fresh.add(node.path)
                self._last_record_s[run] = time.monotonic()

    def _leave_to_others(self, elapsed: float) -> None:
        """Stop following the runs that only a person or another process can continue."""
        for run in self._open():
            tree = self.trees[run]
            unanswered = [] if self._at_terminal else list(_unanswered(tree))
            busy = any(node.state == "running" and path in self._fresh for path, node in tree.in_flight.items())
            since = min(elapsed, time.monotonic() - self._last_record_s[run])
            if unanswered and not busy and since > AT_ONCE_S and (run in self._here or elapsed > SETTLED_S):
                self._waiting[run] = unanswered[0]
            elif run not in self._here and elapsed > SETTLED_S:
                self._elsewhere.add(run)

    def _announce(self) -> None:
        """Print once for each pending question how to answer it."""
        if self._at_terminal or not self._patient:
            return
        for tree in self.trees.values():
            for consent in _unanswered(tree):
                question = consent.approval
                if question.id not in self._announced and now_ms() - consent.at_ms > ANNOUNCE_S * 1_000:
                    self._announced.add(question.id)
                    self._display.say(
                        f"{one_line(question.agent)} waits for approval: {one_line(question.question)}\n"
                        f"→ remit pending approve {question.id}"
                    )


def _unanswered(tree: Tree) -> Iterable[TreeApproval]:
    return (each for each in tree.consents.values() if each.answered_ms is None)


def order_again(
    team: Team, name: str, *, deadline_ms: int | None, max_tokens: int | None, max_cost: int | None
) -> Order:
    """Return an order that repeats the run *name*, with the given time, tokens and money or those that it had.

    Raises a `RemitError` if the run cannot be retried, or its request is no longer stored.
    """
    with reading(place_of(team)) as view:
        run = find_run(view, name)
        known = summary_of(view, run)
        requests = [each.body for each in records_of(view, run) if isinstance(each.body, Request)]
    if known is None or not requests:
        raise _nothing(f"the {named(run)} was refused before it started", "Start a new run: remit run AGENT TASK")
    if known.response is None:
        raise _nothing(f"the {named(run)} has not ended", f"Resume it: remit runs resume {short(run)}")
    if known.response.status is Status.SUCCESS:
        raise _nothing(f"the {named(run)} succeeded", "To repeat it, start a new run: remit run AGENT TASK")
    request = asyncio.run(_whole(team, run, requests[0]))
    remit = request.remit
    return Order(
        agent=request.target,
        text=request.objective,
        user=remit.user,
        options=AskOptions(
            input=request.input,
            capability=request.capability,
            session=request.session if request.session != run else None,
            files=request.files,
            max_tokens=remit.tokens if max_tokens is None else max_tokens,
            max_cost=remit.cost if max_cost is None else max_cost,
            deadline_ms=remit.time_ms if deadline_ms is None else deadline_ms,
            retry_of=request.id,
            handoff=request.handoff,
            context=request.context,
            hints=request.hints,
            tools=remit.tools,
            targets=remit.targets,
            may_delegate=remit.may_delegate,
        ),
        team_file=str(team.file.absolute()),
        overrides=team.overrides,
    )


async def _whole(team: Team, run: str, request: Request) -> Request:
    """Return a request with its original values restored."""
    async with writing(place_of(team)) as store:
        redactor = Redactor(None, vault_key_of(team))
        redactor.open(store)
        whole = await redactor.in_words_of_user(run, request)
    text = encode((whole.objective, whole.input, whole.handoff, whole.files)).decode()
    if TOKEN.search(text) or has_tokens_in(whole.files):
        raise _nothing(
            f"the redacted values of the {named(run)} are no longer stored",
            "Start a new run: remit run AGENT TASK. Redacted values are kept for a day, and longer in a session.",
        )
    return whole


def _nothing(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))
