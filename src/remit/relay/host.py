"""The side that asks: runs in which a local agent works with a shared one, each step kept before it has effects (S2).

The run itself is decided by `overlay.step`; this carries out what follows from each step, and tells it what happened.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from remit.policy.rate import Window
from remit.policy.verdict import Detector
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.relay import letters, moves, wishes
from remit.relay.bridge.ports import Draft, LocalAgent
from remit.relay.frames import Mode
from remit.relay.history import request
from remit.relay.letters import Answers, Asks, Declines
from remit.relay.moves import ENDED, Event, State
from remit.relay.overlay import step
from remit.relay.peers import Peer
from remit.relay.post import Post
from remit.relay.profile import Control, Profile, Standing, counted, judge_outgoing, origin
from remit.relay.review import Facts, Review, reviews
from remit.relay.run import Overlay, Refused, Step
from remit.relay.seal import Opened, Sealer
from remit.runtime.ports import StoreError

# The time limit of a run is kept as exactly as this, and so soon is heard what another process wants of one.
TICK_S = 0.25

_log = logging.getLogger("remit.relay")


class Noted(Struct, frozen=True, kw_only=True):
    """An entry for the audit: what happened in a run, without a word of what was said (S13)."""

    profile: str
    device: str
    requester: str
    run: str
    turn: int
    mode: Mode
    event: str
    state: str
    active_ms: int
    failure: str = ""


class Host:
    """The runs of one device. Open while the block lasts; those that were going come back paused."""

    def __init__(
        self,
        sealer: Sealer,
        post: Post,
        *,
        profiles: Mapping[str, Profile],
        agent_of: Callable[[str], LocalAgent],
        detect: Detector,
        now_ms: Callable[[], int],
        requester: str = "",
        changed: Callable[[Overlay], None] = lambda _: None,
        noted: Callable[[Noted], None] = lambda _: None,
    ) -> None:
        self._sealer = sealer
        self._state = sealer.device.state
        self._post = post
        self._profiles = profiles
        self._agent_of = agent_of
        self._detect = detect
        self._now_ms = now_ms
        self._requester = requester
        self._changed = changed
        self._noted = noted
        self._runs: dict[str, Overlay] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._agents: dict[str, LocalAgent] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        """One prompt at a time for each profile."""
        self._prompts: dict[str, asyncio.Task[None]] = {}
        self._windows: dict[tuple[str, str], Window] = {}

    async def __aenter__(self) -> "Host":
        for run in await self._post.do(wishes.kept_runs, self._state):
            self._runs[run.id] = run
        for run in [each for each in self._runs.values() if each.state not in ENDED]:
            await self._do(run.id, moves.Restarted())
            if run.sending is not None:
                await self._do(run.id, moves.Sent(run.sending))
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [self._ticking, *self._prompts.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for agent in self._agents.values():
            await agent.close()

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> tuple[Overlay, ...]:
        """All runs, oldest first."""
        return tuple(self._runs.values())

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The local agents that runs can be started with, and what each may do."""
        return self._profiles

    async def devices(self) -> list[Peer]:
        """Return the devices that are known here, by name."""
        return await self._post.do(self._sealer.peers.list)

    async def start(self, profile: str, device: str, objective: str, *, mode: Mode | None = None) -> Overlay:
        """Begin a run; raise a `RemitError` if its profile may not call that device, or there is none such."""
        own = self._profile(profile)
        run = Overlay(
            id=f"{self._now_ms():012x}{secrets.token_hex(10)}",
            profile=profile,
            device=device,
            session=secrets.token_hex(16),
            objective=objective,
            mode=mode or own.mode,
            limits=own.limits,
        )
        if (why := self._refusal(run)) is not None:
            self._note(run, "Start", why.message)
            raise RemitError(why)
        peer = await self._post.do(self._sealer.peers.row, device)
        if not peer[1].may_talk:
            raise RemitError(
                fault(Code.PERMISSION_DENIED, f"the device {device} is known, but nothing is shared with it")
            )
        self._runs[run.id] = run
        try:
            return await self.act(run.id, moves.Start())
        except RemitError:
            del self._runs[run.id]
            raise

    async def act(self, run: str, event: Event) -> Overlay:
        """Do what a person wants with a run; raise a `RemitError` that says why it cannot be now."""
        if run not in self._runs:
            raise RemitError(fault(Code.NOT_FOUND, f"there is no run `{run[:100]}` on this device"))
        refused = await self._do(run, event)
        if refused is not None:
            raise RemitError(fault(Code.STATE_CONFLICT, refused.why))
        return self._runs[run]

    # ── what comes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self, opened: Opened, letter: Answers | Declines) -> None:
        """Take what a shared agent said to one of the runs; what belongs to none is forgotten."""
        run = next((each for each in self._runs.values() if each.session == letter.session), None)
        if run is None or run.device != opened.sender or letter.to != _awaited(run):
            _log.warning("the device %s answered what it was not asked, or has answered already", opened.sender)
        else:
            event = (
                moves.RemoteFailed(f"{letter.code}: {letter.reason}"[:500], lost=True)
                if isinstance(letter, Declines)
                else moves.Arrived(letter.text)
            )
            refused = await self._do(run.id, event, opened)
            if refused is None:
                return
            _log.info("what came for run %s changes nothing: %s", run.id, refused.why)
        await self._post.taken(opened)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _do(
        self, run_id: str, event: Event, opened: Opened | None = None, wish: str | None = None
    ) -> Refused | None:
        """Take a step, keep it, then do what follows; return why there was none.

        The message or the wish that it comes of is forgotten in the same commit.
        """
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            taken = step(self._runs[run_id], event, self._now_ms())
            if isinstance(taken, Refused):
                return taken
            while True:
                send = next((each for each in taken.effects if isinstance(each, moves.Send)), None)
                why = await self._keep(taken, send, opened, wish)
                run = self._runs[run_id] = taken.overlay
                opened = wish = None
                self._note(run, type(event).__name__)
                self._changed(run)
                self._follow(run, taken)
                if send is None:
                    return None
                # What is kept with the run is on its way; what may not go never will.
                event = moves.Sent(send.id) if why is None else moves.RemoteFailed(why.message, lost=True)
                following = step(run, event, self._now_ms())
                assert isinstance(following, Step), following
                taken = following

    async def _keep(
        self, taken: Step, send: moves.Send | None, opened: Opened | None, wish: str | None
    ) -> Fault | None:
        """Keep a run together with what is sent by it, or without that: then say why it may not go."""
        run, why = taken.overlay, None
        if send is not None:
            why = self._refusal(run)
        if send is not None and why is None:
            key = (run.profile, run.device)
            try:
                await self._post.do(self._commit, run, send, opened, wish)
            except StoreError:
                raise
            except RemitError as error:
                why = error.fault  # the device was revoked meanwhile, or has too much waiting already
            else:
                self._windows[key] = counted(
                    self._windows.get(key, Window()), self._profile(run.profile), self._now_ms()
                )
                return None
        await self._post.do(self._commit, run, None, opened, wish)
        return why

    def _commit(self, run: Overlay, send: moves.Send | None, opened: Opened | None, wish: str | None) -> None:
        with self._state.writing():
            if send is not None:
                letter = Asks(id=send.id, session=run.session, text=send.text, control=self._control(run))
                self._sealer.seal(run.device, letters.write(letter), requester=self._requester)
            self._state.keep(f"run/{run.id}", run)
            if opened is not None:
                self._sealer.taken(opened.id)
            if wish is not None:
                wishes.forget(self._state, wish)

    def _refusal(self, run: Overlay) -> Fault | None:
        profile = self._profile(run.profile)
        waiting = [
            each
            for each in self._runs.values()
            if each.profile == run.profile and each.id != run.id and State.WAITING_REMOTE in (each.state, each.back)
        ]
        standing = Standing(in_flight=len(waiting), window=self._windows.get((run.profile, run.device), Window()))
        return judge_outgoing(
            profile,
            self._control(run),
            target=run.device,
            device=self._sealer.device.id,
            standing=standing,
            now_ms=self._now_ms(),
        )

    def _control(self, run: Overlay) -> Control:
        return origin(self._profile(run.profile), device=self._sealer.device.id, trace_id=run.id)

    def _profile(self, name: str) -> Profile:
        if name not in self._profiles:
            raise RemitError(fault(Code.NOT_FOUND, f"there is no profile `{name[:100]}` here"))
        return self._profiles[name]

    # ── the local agent ───────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, run: Overlay, taken: Step) -> None:
        for effect in taken.effects:
            match effect:
                case moves.Prompt():
                    task = asyncio.create_task(self._prompt(run.id, effect))
                    self._prompts[effect.id] = task
                    task.add_done_callback(lambda _, prompt=effect.id: self._prompts.pop(prompt, None))
                case moves.Cancel(id=prompt):
                    if prompt in self._prompts:
                        self._prompts[prompt].cancel()
                case _:
                    pass  # a draft that a person is asked about, and an end, stand in the run

    async def _prompt(self, run_id: str, prompt: moves.Prompt) -> None:
        try:
            await self._ask_agent(run_id, prompt)
        except StoreError as error:
            # The run stands where it was kept; a person who resumes it tries again.
            _log.error("run %s does not go on: %s", run_id, error.fault.message)

    async def _ask_agent(self, run_id: str, prompt: moves.Prompt) -> None:
        run = self._runs[run_id]
        profile = self._profile(run.profile)
        async with self._turns.setdefault(run.profile, asyncio.Lock()):
            if await self._do(run_id, moves.Prompted(prompt.id)) is not None:
                return
            if run.profile not in self._agents:
                self._agents[run.profile] = self._agent_of(run.profile)
            asked = request(prompt, profile=run.profile, session=run.session, constraints=profile.constraints)
            said = await self._agents[run.profile].prompt(asked)
        if isinstance(said, Draft):
            await self._do(run_id, moves.Drafted(prompt.id, said, self._reviews(run, said, asked.remote_message)))
        else:
            await self._do(run_id, moves.LocalFailed(prompt.id, said))

    def _reviews(self, run: Overlay, draft: Draft, remote_message: str) -> tuple[Review, ...]:
        met = any(
            entry.sent_ms is not None
            for each in self._runs.values()
            if each.profile == run.profile and each.device == run.device
            for entry in each.timeline
        )
        facts = Facts(
            objective=self._runs[run.id].objective,
            remote_message=remote_message,
            first_contact=not met,
            detect=self._detect,
        )
        return reviews(draft, facts, self._profile(run.profile).rules)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for run in [each for each in self._runs.values() if each.since_ms is not None]:
                limit = run.limits.max_duration_ms
                if run.active_ms + self._now_ms() - (run.since_ms or 0) >= limit:
                    with suppress(RemitError):
                        await self._do(run.id, moves.Tick())
            # A file that cannot be read now can be later: a wish stays until it is done.
            with suppress(RemitError, msgspec.DecodeError):
                await self._grant()

    # ── from other processes ──────────────────────────────────────────────────────────────────────────────────────────

    async def _grant(self) -> None:
        """Do what was wanted of the runs in other processes; what cannot be done any more is forgotten."""
        # Not by `Post.do`: that would have the outbox looked through each time.
        for name, wish in await asyncio.to_thread(wishes.left, self._state):
            run = self._runs.get(wish.run)
            if run is not None and wishes.is_early(wish, run):
                continue
            refused = None if run is None else await self._do(wish.run, wish.event, wish=name)
            if run is None or refused is not None:
                _log.info("what was wanted of run %s cannot be: %s", wish.run, refused and refused.why)
                await self._post.do(wishes.forget, self._state, name)

    # ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, run: Overlay, event: str, failure: str = "") -> None:
        self._noted(
            Noted(
                profile=run.profile,
                device=run.device,
                requester=self._requester,
                run=run.id,
                turn=run.turn,
                mode=run.mode,
                event=event,
                state=run.state,
                active_ms=run.active_ms,
                failure=failure or run.failure,
            )
        )


def _awaited(run: Overlay) -> str | None:
    """Return the message of a run that has no answer yet; each gets one, so there is at most one such."""
    last = next(
        (entry for entry in reversed((*run.timeline, *run.kept)) if entry.role == "remote_agent" or entry.id), None
    )
    return None if last is None or last.role == "remote_agent" or last.failed else last.id
