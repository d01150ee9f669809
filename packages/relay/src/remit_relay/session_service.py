"""The asking side: runs in which a local agent works with a shared one; each step is stored before its effects (S2).

`session.reducer.step` decides each step of a run; this service carries out its effects and reports events to it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal, NoReturn

import msgspec
from msgspec.structs import replace

from remit.policy.budget import Window
from remit.policy.verdict import Detector
from remit.ports import StoreError
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.records import SharedStep
from remit.runtime.clock import sleep_to_tick
from remit_relay.bridge.ports import AskUser, Draft, DraftFailure, LocalAgent, Mode
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.peers import PeerDevice
from remit_relay.device.state import FileChanges, until_stored
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.local_turns import LocalTurns
from remit_relay.messages import audit, types
from remit_relay.messages.audit import AuditEntry
from remit_relay.messages.types import (
    AgentOffer,
    AnswerMessage,
    DeclineMessage,
    QuestionMessage,
    ReadReceipt,
    WithdrawMessage,
    known_devices,
)
from remit_relay.run_files import RunFiles
from remit_relay.run_targets import RunTargets
from remit_relay.session import moves, repository
from remit_relay.session.moves import ENDED, Event
from remit_relay.session.profile import (
    Attachment,
    ControlEnvelope,
    Profile,
    ProfileActivity,
    counted,
    judge_outgoing,
    origin,
)
from remit_relay.session.reducer import is_changed_by_restart, outcome_of_sending, step
from remit_relay.session.repository import ReadMarks, RemoteCommand, RunRepository
from remit_relay.session.review import Review, ReviewFacts, reviews
from remit_relay.session.run import (
    CredentialFilter,
    MoveRefused,
    Overlay,
    Person,
    Transition,
    calls_besides,
    followed_message,
    has_met,
    mark_expired,
    mark_progress,
    mark_released,
)
from remit_relay.wire import Expired

# ── messages on their way ─────────────────────────────────────────────────────────────────────────────────────────────

# What the encrypted store knows is copied into the runs a moment after it changed. A quick answer needs none of it, and
# so costs no further commit.

# Longer than an answer takes that comes at once, and short for people.
SETTLE_S = 0.2

Change = Callable[[Overlay], Overlay]


class DeliveryFollower:
    """Follows the messages of *runs* while the block lasts. Each run is changed under its lock, and stored in *kept*.

    That is no step of a run, so it is not recorded: the record has what was sent and answered in each turn (S13).
    """

    def __init__(
        self,
        sealer: MessageCipher,
        delivery: MessageDelivery,
        runs: dict[str, Overlay],
        locks: dict[str, asyncio.Lock],
        kept: RunRepository,
        changed: Callable[[Overlay], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._sealer = sealer
        self._delivery = delivery
        self._runs = runs
        self._locks = locks
        self._kept = kept
        self._changed = changed
        self._now_ms = now_ms
        self._news = asyncio.Event()
        self._expired: list[Expired] = []

    async def __aenter__(self) -> "DeliveryFollower":
        self._news.set()  # what happened while no process was running
        self._stop = self._delivery.listen(self._hear)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        self._task.cancel()
        await asyncio.wait([self._task])

    def _hear(self, expired: Expired | None) -> None:
        if expired is not None:
            self._expired.append(expired)
        self._news.set()

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(SETTLE_S)
            self._news.clear()
            expired, self._expired = self._expired, []
            update = partial(self._brought_up, expired)
            for run in [each for each in self._runs.values() if followed_message(each)]:
                # The store cannot be used, or the device was forgotten: the next news bring it up to date.
                with suppress(RemitError):
                    await self._revise(run.id, update)

    async def note_read(self, opened: Opened, message: ReadReceipt) -> None:
        """Note that the shared agent was given a message of a run; drop the receipt if no run waits for an answer."""
        run = next((each for each in self._runs.values() if awaits(each, opened, message)), None)
        if run is None:
            await self._delivery.taken(opened)
        else:
            read = partial(mark_progress, message=message.to, state="read", now_ms=self._now_ms())
            await self._revise(run.id, read, opened)

    async def _revise(self, run_id: str, change: Change, opened: Opened | None = None) -> None:
        """Change a run, and delete the message that caused it in the same commit."""
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            before = self._runs[run_id]
            run = self._runs[run_id] = await self._delivery.do(self._commit, before, change, opened)
            if run is not before:
                self._changed(run)

    def _commit(self, run: Overlay, change: Change, opened: Opened | None) -> Overlay:
        with self._sealer.device.state.writing():
            if (after := change(run)) is not run:
                self._kept.keep(after)
            if opened is not None:
                self._sealer.taken(opened.id)
        return after

    def _brought_up(self, expired: list[Expired], run: Overlay) -> Overlay:
        now_ms = self._now_ms()
        for notice in expired:
            if notice.to == run.device:
                why = f"the gateway deleted it: {notice.reason or 'not fetched for too long'}"
                # The number of a message is the time at which it was sealed, in microseconds.
                run = mark_expired(run, notice.number // 1_000, why, now_ms)
        entry = followed_message(run)
        if entry is None or entry.delivery is None:
            return run
        state = self._sealer.progress(run.device, entry.delivery.sealed)
        return mark_progress(run, entry.id, state, now_ms)


def awaits(run: Overlay, opened: Opened, message: AnswerMessage | DeclineMessage | ReadReceipt) -> bool:
    """Return whether a run waits for this answer: the first one to its last message, from the device that it asked."""
    return run.session == message.session and run.device == opened.sender and message.to == run.unanswered_message


# ── the service ───────────────────────────────────────────────────────────────────────────────────────────────────────


# The precision of a run's time limit, and how soon commands of other processes are noticed; without a run whose time
# passes, a little later.
TICK_S = 0.25
IDLE_TICK_S = 0.5
# After a start, messages that were waiting have arrived within this time, and the gateway has said who is connected.
NEWS_S = 2.0

_log = logging.getLogger("remit.relay")


class SessionService:
    """The runs of one device, open while the block lasts. Runs that were active at the last stop come back paused."""

    def __init__(
        self,
        sealer: MessageCipher,
        delivery: MessageDelivery,
        *,
        profiles: Mapping[str, Profile],
        agent_of: Callable[[str, AskUser], LocalAgent],
        detect: Detector,
        now_ms: Callable[[], int],
        requester: str = "",
        changed: Callable[[Overlay], None] = lambda _: None,
        recorded: Callable[[SharedStep], None] = lambda _: None,
        unable: Callable[[RemoteCommand, str], None] = lambda _command, _why: None,
    ) -> None:
        self._sealer = sealer
        self.device = sealer.device
        self._state = sealer.device.state
        self._delivery = delivery
        self._profiles = profiles
        self._detect = detect
        self._now_ms = now_ms
        shown = CredentialFilter(detect)
        self.displayed = shown.run
        """Returns a run as people and programs may see it."""
        self.displayed_part = shown.part
        """Returns a text that is still being written as they may see it."""
        self._requester = requester
        self._changed = changed
        self._recorded = recorded
        self._unable = unable
        self._changes = FileChanges(self._state)
        self._kept = RunRepository(self._state)
        self.marks = ReadMarks(self._state)
        self._runs: dict[str, Overlay] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.local = LocalTurns(agent_of, self._do, self._drafted)
        self._windows: dict[tuple[str, str], Window] = {}
        self._targets = RunTargets(sealer, delivery)
        self.messages = DeliveryFollower(sealer, delivery, self._runs, self._locks, self._kept, changed, now_ms)
        """Follows the messages of the runs."""
        self.files = RunFiles(self._state, delivery, self._runs, profiles, self.act, now_ms)
        """The files that people attach to messages, and those of answers."""

    async def __aenter__(self) -> "SessionService":
        await self._delivery.do(repository.forget_refusals, self._state)
        for run in await self._delivery.do(self._kept.all):
            self._runs[run.id] = run
        await self.files.sweep(orphans=True)
        await self._delivery.do(self.marks.load)
        for run in [each for each in self._runs.values() if each.state not in ENDED]:
            if is_changed_by_restart(run):
                await self._do(run.id, moves.Restarted())
            if run.sending is not None:
                await self._do(run.id, outcome_of_sending(run))
        await self.messages.__aenter__()
        self._ticking = asyncio.create_task(self._tick())
        self._targets.started(NEWS_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticking.cancel()
        await asyncio.wait([self._ticking])
        await self.messages.__aexit__()
        await self.local.close()

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> tuple[Overlay, ...]:
        """All runs, oldest first."""
        return tuple(self._runs.values())

    async def read(self, run: Overlay, number: int) -> None:
        """Store that the user has read a run up to the entry with this number; no step, and not recorded."""
        await self._delivery.do(self.marks.keep, run.id, number)

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The local agents that runs can be started with, and what each may do."""
        return self._profiles

    async def known(self) -> list[tuple[PeerDevice, tuple[AgentOffer, ...] | None]]:
        """Return the known devices, by name, each with the agents that it says it shares (see `offers`)."""
        return await self._delivery.do(known_devices, self._state)

    async def offers(self, device: str) -> tuple[AgentOffer, ...] | None:
        """Return the agents that a known device says it shares with this one; None if it sent no list yet."""
        return await self._targets.offers(device)

    async def start(
        self,
        profile: str,
        device: str,
        objective: str,
        *,
        mode: Mode | None = None,
        agent: str = "",
        decides: Literal["agent", "person"] = "agent",
        by: Person | None = None,
    ) -> Overlay:
        """Start a run with the *agent* that a device shares; the name may be omitted if there is only one.

        If a person *decides*, the local agent is asked nothing until `HandBack`, and the objective may be empty.

        The device is given by id or name, or by a group, of which one device is chosen (see `RunTargets.device`).
        Raises a `RemitError` if the profile may not call the device, or the device or agent is unknown or ambiguous.
        """
        own = self._profile(profile)
        device = await self._targets.device(device, agent, own.allowed_shared_device_ids)
        run = Overlay(
            id=f"{self._now_ms():012x}{secrets.token_hex(10)}",
            profile=profile,
            device=device,
            session=secrets.token_hex(16),
            objective=objective,
            agent=agent,
            decides=decides,
            mode=mode or own.mode,
            limits=own.limits,
        )
        if (why := self._refusal(run)) is not None:
            await self._refuse(run, why, by)
        try:
            peer = await self._targets.talking(device)
        except RemitError as error:
            if error.fault.code is Code.PERMISSION_DENIED:
                await self._refuse(run, error.fault, by)
            raise
        run = replace(run, agent=await self._targets.agent(peer, agent))
        self._runs[run.id] = run
        try:
            return await self.act(run.id, moves.Start(), by=by)
        except RemitError:
            del self._runs[run.id]
            raise

    async def act(self, run: str, event: Event, *, by: Person | None = None) -> Overlay:
        """Apply an action of a person to a run; raise a `RemitError` if it is not possible now."""
        if run not in self._runs:
            advice = "Use the id of a run of this device: `GET /v1/shared/runs` lists them."
            raise RemitError(fault(Code.NOT_FOUND, f"run `{run[:100]}` not found on this device", suggestion=advice))
        if isinstance(event, moves.Resume):
            event = await self._targets.resuming(self._runs[run], event)
        refused = await self._do(run, event, by=by)
        if refused is not None:
            raise RemitError(fault(Code.STATE_CONFLICT, refused.why))
        return self._runs[run]

    # ── incoming messages ─────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self, opened: Opened, message: AnswerMessage | DeclineMessage) -> None:
        """Pass the answer of a shared agent to its run; drop it if no run waits for it."""
        run = next((each for each in self._runs.values() if awaits(each, opened, message)), None)
        if run is None:
            # For example from an agent that was cancelled because nobody waited any more; so this is no warning.
            _log.info("dropping an answer of the device %s: no run waits for it", opened.sender)
        else:
            files = await self.files.accept(run, message.files if isinstance(message, AnswerMessage) else ())
            event = (
                moves.RemoteFailed(f"{message.code}: {message.reason}"[:500], lost=True, recorded=message.recorded)
                if isinstance(message, DeclineMessage)
                else moves.Arrived(message.text, files)
            )
            refused = await self._do(run.id, event, opened)
            if refused is None:
                return
            await self.files.drop(run, files)
            _log.info("dropping an answer for run %s: %s", run.id, refused.why)
        await self._delivery.taken(opened)

    async def end_revoked(self, revoked: Mapping[str, str]) -> None:
        """End the runs with devices that are *revoked*, by id with the reason."""
        for run in [each for each in self._runs.values() if each.state not in ENDED and each.device in revoked]:
            await until_stored(partial(self._do, run.id, moves.Revoked(revoked[run.device])))

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _do(
        self,
        run_id: str,
        event: Event,
        opened: Opened | None = None,
        command: str | None = None,
        by: Person | None = None,
    ) -> MoveRefused | None:
        """Take a step, store it, then carry out its effects; return why it was refused, if it was.

        The message or command that caused it is deleted in the same commit, and so is the audit entry written (S13).
        """
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            taken = step(self._runs[run_id], event, self._now_ms(), by)
            if isinstance(taken, MoveRefused):
                return taken
            is_stored = False
            while True:
                send = next((each for each in taken.effects if isinstance(each, moves.Send)), None)
                entry = self._audit_entry(taken, type(event).__name__, by)
                try:
                    run = await self._keep(taken, entry, send, opened, command)
                except StoreError:
                    if is_stored:
                        return None  # the event counts; `_tick` reports what became of its message
                    raise
                is_stored = True
                self._runs[run_id] = run
                opened = command = by = None
                self._recorded(entry.step)
                self._changed(run)
                self._follow(run, taken)
                if send is None:
                    return None
                # A message stored with the run will be sent; one that was refused never will.
                event = outcome_of_sending(run)
                following = step(run, event, self._now_ms())
                assert isinstance(following, Transition), following
                taken = following

    async def _keep(
        self, taken: Transition, entry: AuditEntry, send: moves.Send | None, opened: Opened | None, command: str | None
    ) -> Overlay:
        """Store a run together with its message; or without it, and with the reason why it may not be sent."""
        run, why = taken.overlay, None
        if send is not None and (why := self._refusal(run)) is not None:
            why = await self._delivery.do(self._revoked, run) or why
        if send is not None and why is None:
            key = (run.profile, run.device)
            message = QuestionMessage(
                id=send.id,
                session=run.session,
                text=send.text,
                control=self._control(run),
                agent=run.agent,
            )
            try:
                run = await self._delivery.do(self._commit, run, entry, message, opened, command, send.files)
            except StoreError:
                raise
            except RemitError as error:
                why = error.fault  # the device was revoked meanwhile, or its queue is full
            else:
                self._windows[key] = counted(
                    self._windows.get(key, Window()), self._profile(run.profile), self._now_ms()
                )
                return run
        unanswered = run.unanswered_message if run.state in ENDED else None
        if unanswered is not None:
            with suppress(RemitError):  # nothing is sent to a device that was revoked meanwhile
                withdraw = WithdrawMessage(to=unanswered, session=run.session)
                return await self._delivery.do(self._commit, run, entry, withdraw, opened, command)
        if why is not None:
            run, entry = replace(run, unsent=why.message), audit.unsent(entry)
        return await self._delivery.do(self._commit, run, entry, None, opened, command)

    def _commit(
        self,
        run: Overlay,
        entry: AuditEntry,
        message: QuestionMessage | WithdrawMessage | None,
        opened: Opened | None,
        command: str | None,
        files: tuple[Attachment, ...] = (),
    ) -> Overlay:
        with self._state.writing():
            audit.keep(self._state, entry)
            if isinstance(message, QuestionMessage) and files:
                message = self.files.with_files(run, message, files)
            if message is not None:
                sealed = self._sealer.seal(run.device, types.write(message), requester=self._requester)
                if isinstance(message, QuestionMessage):
                    run = mark_released(run, message.id, sealed, self._now_ms())
            self._kept.keep(run)
            if opened is not None:
                self._sealer.taken(opened.id)
            if command is not None:
                repository.forget(self._state, command)
        return run

    def _refusal(self, run: Overlay) -> Fault | None:
        return judge_outgoing(
            self._profile(run.profile),
            self._control(run),
            target=run.device,
            device=self._sealer.device.id,
            standing=self.activity(run),
            now_ms=self._now_ms(),
        )

    def activity(self, run: Overlay) -> ProfileActivity:
        """Return what the profile of a run does besides it: calls in progress, and messages to its device lately."""
        calls = calls_besides(run, self._runs.values())
        return ProfileActivity(in_flight=calls, window=self._windows.get((run.profile, run.device), Window()))

    def _revoked(self, run: Overlay) -> Fault | None:
        """Return the fault for a revoked device, which is more exact than "not allowed"."""
        why = self._sealer.peers.row(run.device)[1].revocation
        return fault(Code.PERMISSION_DENIED, why) if why else None

    def _control(self, run: Overlay) -> ControlEnvelope:
        return origin(self._profile(run.profile), device=self._sealer.device.id, trace_id=run.id)

    def _profile(self, name: str) -> Profile:
        if name not in self._profiles:
            advice = "Use the name of a profile: `[profiles.NAME]` in the team file."
            raise RemitError(fault(Code.NOT_FOUND, f"profile `{name[:100]}` not found", suggestion=advice))
        return self._profiles[name]

    # ── the local agent ───────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, run: Overlay, taken: Transition) -> None:
        for effect in taken.effects:
            match effect:
                case moves.Prompt():
                    self.local.begin(run, effect, self._profile(run.profile).constraints)
                case moves.Cancel(id=prompt):
                    self.local.cancel(prompt)
                case moves.Permit(question=question, choice=choice):
                    self.local.answer(question, choice)
                case _:
                    pass  # a pending draft and the end are part of the run

    async def _drafted(self, run_id: str, prompt: str, outcome: Draft | DraftFailure, remote_message: str) -> None:
        if isinstance(outcome, Draft):
            reviews = self._reviews(self._runs[run_id], outcome, remote_message)
            await self._do(run_id, moves.Drafted(prompt, outcome, reviews))
        else:
            await self._do(run_id, moves.LocalFailed(prompt, outcome))

    def _reviews(self, run: Overlay, draft: Draft, remote_message: str) -> tuple[Review, ...]:
        facts = ReviewFacts(
            objective=run.objective,
            remote_message=remote_message,
            first_contact=not has_met(run, self._runs.values()),
            detect=self._detect,
            attachments=True,  # the run decides whether it has some
        )
        return reviews(draft, facts, self._profile(run.profile).rules)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tick(self) -> None:
        waiting = True
        while True:
            timed = [each for each in self._runs.values() if each.since_ms is not None]
            await sleep_to_tick(TICK_S if timed else IDLE_TICK_S)
            for run in [each for each in self._runs.values() if each.since_ms is not None]:
                with suppress(RemitError):
                    if run.sending is not None and not self._locks[run.id].locked():
                        await self._do(run.id, outcome_of_sending(run))
                    elif run.spent_ms(self._now_ms()) >= run.limits.max_duration_ms:
                        await self._do(run.id, moves.Tick())
            # A file that cannot be read now can be read later: a command stays until it is done.
            waiting = self._changes.look() or waiting
            with suppress(RemitError, msgspec.DecodeError):
                await self.files.sweep()
                if waiting:
                    waiting = await self._run_commands()

    # ── from other processes ──────────────────────────────────────────────────────────────────────────────────────────

    async def _run_commands(self) -> bool:
        """Run the commands of other processes; refuse those that are no longer possible; return whether some wait."""
        waiting = False
        # Not by `MessageDelivery.do`, which would read the outbox each time.
        for name, command in await asyncio.to_thread(repository.left, self._state):
            run = self._runs.get(command.run)
            if run is not None and repository.is_early(command, run):
                waiting = True
                continue
            by = Person(command.by, "pending")
            refused = None if run is None else await self._do(command.run, command.event, command=name, by=by)
            if run is None or refused is not None:
                why = "run not found on this device" if refused is None else refused.why
                _log.info("a command for run %s was refused: %s", command.run, why)
                await self._delivery.do(repository.refuse, self._state, name, why)
                self._unable(command, why)
        return waiting

    # ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _audit_entry(self, taken: Transition, event: str, by: Person | None, why: Fault | None = None) -> AuditEntry:
        return audit.of_step(
            taken, event, by, why, requester=self._requester, detect=self._detect, now_ms=self._now_ms()
        )

    async def _refuse(self, run: Overlay, why: Fault, by: Person | None) -> NoReturn:
        """Record that a run was refused, and raise the reason."""
        entry = self._audit_entry(Transition(run), "Start", by, why)
        await self._delivery.do(audit.keep, self._state, entry)
        self._recorded(entry.step)
        raise RemitError(why)
