"""The sharing side: answer questions of other devices with agents of the local hub, under all its guards."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from remit.hub.hub import Hub
from remit.policy.budget import Window, count, wait_ms
from remit.ports import RunScope, StoreError
from remit.protocol.card import Rate
from remit.protocol.codec import checked
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.active_runs import ActiveRun
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.messages import audit, types
from remit_relay.messages.audit import AuditEntry
from remit_relay.messages.questions import (
    answered,
    declined,
    request_id,
    request_ids,
    sender,
    step_of,
    submission,
    with_allowed_files,
)
from remit_relay.messages.types import (
    MAX_DESCRIPTION,
    MAX_OFFERED,
    AgentOffer,
    AnswerMessage,
    DeclineMessage,
    QuestionMessage,
    ReadReceipt,
    WithdrawMessage,
    join_names,
)
from remit_relay.session.profile import (
    AttachedFile,
    ControlEnvelope,
    Profile,
    ProfileActivity,
    counted,
    judge_incoming,
    name_problem,
    refused_files,
)

# ── files of questions ────────────────────────────────────────────────────────────────────────────────────────────────

# They are in `attachments/REQUEST/NAME` beside the device's file, readable by its owner only, while the agent works;
# before and after that they are in the device's file, encrypted. A crash leaves them: `forget_others` deletes those of
# questions that are not open.

FOLDER = "attachments"
# Never a file that is there, and through no link.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def folder_of(device_file: Path, request: str) -> Path:
    """Return the folder for the files of a request: the same one after a restart."""
    return device_file.absolute().with_name(FOLDER) / request


def write_files(folder: Path, files: Sequence[AttachedFile]) -> None:
    """Write the files of a question, replacing what a crash may have left; raise a `RemitError` if that fails."""
    remove(folder)
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        for each in files:
            assert name_problem(each.name) is None, "checked before"
            with os.fdopen(os.open(folder / each.name, _NEW, 0o600), "wb") as file:
                file.write(each.data)
    except OSError as error:
        remove(folder)
        why = "the attached files cannot be stored on the device that shares the agent"
        raise RemitError(fault(Code.DELEGATION_FAILED, why)) from error


def remove(folder: Path) -> None:
    """Delete the files of a question."""
    shutil.rmtree(folder, ignore_errors=True)


def forget_others(device_file: Path, requests: Callable[[], Collection[str]]) -> None:
    """Delete the files of all requests that are not open; *requests*, which are, is called if there are any files."""
    place = device_file.absolute().with_name(FOLDER)
    left = list(place.iterdir()) if place.is_dir() else []
    still_open = requests() if left else ()
    for each in left:
        if each.name not in still_open:
            remove(each)


# ── serving questions ─────────────────────────────────────────────────────────────────────────────────────────────────


NOTHING_SHARED = fault(
    Code.AGENT_NOT_FOUND,
    "the device shares no agent",
    suggestion="Ask its owner to share one with your device.",
)

# Enough to see what happens. A device that is refused more often must not fill the record, which is permanent.
RECORDED_REFUSALS = Rate(calls=60, seconds=60)

# A quick answer is a receipt too, and so costs no further message. That of the encryption layer comes after this time.
RECEIPT_S = 1.0

_log = logging.getLogger("remit.relay")


class Shared(Struct, frozen=True, kw_only=True):
    """A shared agent of the hub, and its profile."""

    agent: str
    profile: Profile
    description: str = ""
    """The description that other devices see."""

    def is_for(self, device: str) -> bool:
        """Return whether its profile allows a device."""
        return self.profile.allow_shared_agent_calls and device in self.profile.allowed_shared_device_ids


def offered(shared: Mapping[str, Shared], device: str) -> tuple[AgentOffer, ...]:
    """Return the list of agents that are shared with a device."""
    theirs = sorted(name for name, each in shared.items() if each.is_for(device))
    return tuple(
        AgentOffer(
            name=name,
            description=shared[name].description[:MAX_DESCRIPTION],
            files=shared[name].profile.files if shared[name].profile.files.types else None,
        )
        for name in theirs[:MAX_OFFERED]
    )


class SharingEvent(Struct, frozen=True, kw_only=True):
    """An event of a question, without its content."""

    device: str
    requester: str
    """The user on whose behalf that device says it asks."""
    shared: str
    """The shared name of the agent; empty if it is not clear which one is meant."""
    event: Literal["asked", "answered", "declined"]
    code: str = ""
    """The error code, if it was declined."""


class Sharing:
    """Answers questions to the agents that this device shares; *reported* is called with each question and its outcome.

    A question is deleted in the same commit that adds its answer to the outbox, and carried out under the id of its
    sender: after a crash at any moment, this device answers each question once.
    """

    def __init__(
        self,
        hub: Hub,
        sealer: MessageCipher,
        delivery: MessageDelivery,
        shared: Mapping[str, Shared],
        *,
        now_ms: Callable[[], int],
        reported: Callable[[SharingEvent], None] = lambda _: None,
    ) -> None:
        self._hub = hub
        self._sealer = sealer
        self._delivery = delivery
        self._shared = shared
        self._now_ms = now_ms
        self._reported = reported
        self._windows: dict[str, dict[str, Window]] = {}
        """The rate windows of each device for each agent."""
        self._answered: dict[str, dict[str, Window]] = {}
        """The windows of answered questions, stored with each answer; after a restart the others are judged again."""
        self._turned_away: dict[str, Window] = {}
        """The rate windows of refusals, by device."""
        self._under_way: dict[asyncio.Task[None], _Question] = {}
        forget_others(sealer.device.state.path, lambda: request_ids(sealer))

    async def close(self) -> None:
        """Stop work on all questions; they stay in the inbox and are answered after the next start."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def take(self, opened: Opened, received: QuestionMessage) -> None:
        """Start to answer a question, concurrently with others."""
        if (same := self._question(opened.sender, received.id)) is not None:
            same.messages.append(opened.id)  # the sender was restarted meanwhile: one answer is enough for both
            return
        question = _Question(opened, received, self._name(opened, received))
        task = asyncio.create_task(self._work_on(question))
        self._under_way[task] = question
        task.add_done_callback(self._ended)

    async def withdraw(self, opened: Opened, message: WithdrawMessage) -> None:
        """Cancel the work on a question that was withdrawn; it is answered once, as cancelled.

        The withdrawal is deleted together with the question, so that a restart never finds one without the other.
        """
        question = self._question(opened.sender, message.to)
        if question is None or question.received.session != message.session:
            await self._delivery.taken(opened)  # it was answered already
            return
        question.messages.append(opened.id)
        await self._cancel(question, f"withdrawn by the device {opened.sender}")

    async def end_revoked(self, revoked: Mapping[str, str]) -> None:
        """Cancel the work on questions of devices that are *revoked*, by id with the reason."""
        for question in [each for each in self._under_way.values() if each.opened.sender in revoked]:
            await self._cancel(question, revoked[question.opened.sender])

    async def _cancel(self, question: "_Question", why: str) -> None:
        question.cancelled = question.cancelled or why
        if question.going is not None:
            try:
                await self._call_off(question, question.going)
            except StoreError as error:  # it continues, and is answered
                _log.warning("a question could not be cancelled everywhere: %s", error.fault.message)

    def control(self, device: str, request: str) -> ControlEnvelope | None:
        """Return the control envelope of a request that came from a device, if it is in progress here."""
        open_questions = (each for each in self._under_way.values() if each.opened.sender == device)
        return next((each.received.control for each in open_questions if request_id(each.received.id) == request), None)

    def _question(self, device: str, name: str) -> "_Question | None":
        matching = (
            each for each in self._under_way.values() if (each.opened.sender, each.received.id) == (device, name)
        )
        return next(matching, None)

    async def _call_off(self, question: "_Question", going: ActiveRun) -> None:
        """Cancel the run of a question, and earlier runs of it that may be resumed after a restart."""
        device, store = question.opened.sender, self._hub.store
        self._hub.cancel(going.run, question.cancelled)
        for run in await store.named(request_id(question.received.id), RunScope(via=device)):
            if run != going.run and not self._hub.cancel(run, question.cancelled):
                await store.control(run, "cancel", device, question.cancelled)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("answering a question failed (%s); it stays in the inbox", type(error).__name__)

    def _name(self, opened: Opened, received: QuestionMessage) -> str:
        """Return the name of the requested agent; it may be omitted if only one is shared with the sender."""
        theirs = self._names_shared_with(opened)
        return received.agent or (theirs[0] if len(theirs) == 1 else "")

    def _names_shared_with(self, opened: Opened) -> list[str]:
        return sorted(name for name, each in self._shared.items() if each.is_for(opened.sender))

    async def _work_on(self, question: "_Question") -> None:
        opened, received, shared = question.opened, question.received, None
        if opened.sender not in self._windows:
            kept = await self._delivery.persist(_kept_windows, self._sealer, opened.sender, self._now_ms())
            self._answered.setdefault(opened.sender, kept)
            self._windows.setdefault(opened.sender, dict(kept))
        judged = self._judged(question)
        if isinstance(judged, Fault):
            question.turned_away = True
            question.is_recorded = self._is_recorded(opened.sender)
        await self._delivery.persist(self._record_arrival, question)
        self._tell(question, "asked")
        if isinstance(judged, Fault):
            message = declined(received, judged)
        else:
            shared = judged
            try:
                message = await self._answer(question, shared)
            except RemitError as error:
                message = declined(received, error.fault)
        try:
            await self._send_outcome(question, message, shared)
        except RemitError as error:
            await self._give_up_on(question, shared, error.fault)
        # Messages about it that arrived while the answer was written.
        if question.messages:
            await self._delivery.persist(self._sealer.taken, *question.messages)

    async def _answer(self, question: "_Question", shared: Shared) -> AnswerMessage | DeclineMessage:
        received = question.received
        if received.files:
            folder = folder_of(self._sealer.device.state.path, request_id(received.id))
            try:
                await asyncio.to_thread(write_files, folder, received.files)
                return await self._response(question, shared, folder)
            finally:
                remove(folder)
        return await self._response(question, shared)

    async def _response(
        self, question: "_Question", shared: Shared, folder: Path | None = None
    ) -> AnswerMessage | DeclineMessage:
        received = question.received
        # The fields of a device are recorded even if the hub refuses the request, so they must be readable again.
        request = checked(submission(question.opened, received, shared.agent, folder))
        going = await self._hub.begin(self._hub.receive(request, sender(question.opened, shared.agent)))
        if isinstance(going, Response):
            response = going
        else:
            question.going = going
            if question.cancelled:
                await self._call_off(question, going)
            response = await self._responded(question, going)
        question.task = response.run
        if response.result is None and response.fault is not None:
            why = declined(received, response.fault)
            return structs.replace(why, status=response.status.value, tokens=response.usage.total)
        return with_allowed_files(answered(received, response), shared.profile.files, question.name)

    async def _responded(self, question: "_Question", going: ActiveRun) -> Response:
        """Return the response of the agent; if it takes long, first tell the asker that the agent has the question."""
        opened, received = question.opened, question.received
        if received.request is None and not (await asyncio.wait({going.task}, timeout=RECEIPT_S))[0]:
            read = types.write(ReadReceipt(to=received.id, session=received.session))
            with suppress(RemitError):  # a receipt is worth no failure
                await self._delivery.do(self._sealer.seal, opened.sender, read)
        return await asyncio.shield(going.task)

    def _judged(self, question: "_Question") -> Shared | Fault:
        opened, received, name = question.opened, question.received, question.name
        theirs, windows = self._names_shared_with(opened), self._windows[opened.sender]
        if name not in theirs:
            return _not_theirs(name, theirs)
        shared = self._shared[name]
        profile, now_ms = shared.profile, self._now_ms()
        # Only earlier questions count: of several that arrive at once, the first are admitted.
        before = takewhile(lambda each: each is not question, self._under_way.values())
        earlier = [each for each in before if not each.turned_away]
        standing = ProfileActivity(
            in_flight=sum(each.name == name for each in earlier),
            window=windows.get(name, Window()),
            traces=frozenset(
                each.received.control.trace_id
                for each in earlier
                if not _is_beside(received.control, each.received.control)
            ),
        )
        why = judge_incoming(
            profile,
            received.control,
            sender=opened.sender,
            device=self._sealer.device.id,
            standing=standing,
            now_ms=now_ms,
        )
        if why is not None:
            return why
        windows[name] = counted(standing.window, profile, now_ms)
        if received.files and received.request is not None:
            return fault(Code.INPUT_VALIDATION_FAILED, "a request of a hub cannot carry files")
        return refused_files(profile.files, received.files, who=f"the shared agent {name}") or shared

    async def _send_outcome(
        self, question: "_Question", message: AnswerMessage | DeclineMessage, shared: Shared | None
    ) -> None:
        """Send the outcome of a question and delete the question; it counts for the rate if an agent was asked."""
        opened, name, taken = question.opened, question.name, tuple(question.messages)
        answered = self._answered[opened.sender]
        if shared is not None:
            answered[name] = counted(answered.get(name, Window()), shared.profile, self._now_ms())
        kept = dict(answered)
        event, code = ("answered", "") if isinstance(message, AnswerMessage) else ("declined", message.code)

        def commit() -> None:
            with self._sealer.device.state.writing():
                self._sealer.seal(opened.sender, types.write(message))
                self._sealer.taken(*taken)
                self._record_outcome(question, event, code, message.files if isinstance(message, AnswerMessage) else ())
                if shared is not None:
                    row, _ = self._sealer.peers.row(opened.sender)
                    self._sealer.device.state.keep(f"rates/{row}", kept)

        await self._delivery.persist(commit)
        del question.messages[: len(taken)]
        self._tell(question, event, code)

    async def _give_up_on(self, question: "_Question", shared: Shared | None, why: Fault) -> None:
        """Decline if the answer is too large; drop it if the device was revoked meanwhile."""
        if why.code is Code.TOO_LARGE:
            await self._send_outcome(question, declined(question.received, why), shared)
        elif why.code is Code.PERMISSION_DENIED:
            _log.warning("dropping an answer to the device %s: %s", question.opened.sender, why.message)
            taken = tuple(question.messages)

            def commit() -> None:
                with self._sealer.device.state.writing():
                    self._sealer.taken(*taken)
                    self._record_outcome(question, "forgotten", why.code.value)

            await self._delivery.persist(commit)
            del question.messages[: len(taken)]
            self._tell(question, "declined", why.code.value)
        else:
            raise RemitError(why)

    def _tell(self, question: "_Question", event: Literal["asked", "answered", "declined"], code: str = "") -> None:
        device, requester = question.opened.sender, question.opened.requester
        self._reported(SharingEvent(device=device, requester=requester, shared=question.name, event=event, code=code))

    # ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_recorded(self, device: str) -> bool:
        """Count a refusal of a device; return whether it is recorded."""
        window, now = self._turned_away.get(device, Window()), self._now_ms() / 1_000
        self._turned_away[device] = count(window, RECORDED_REFUSALS, now)
        if not wait_ms(window, RECORDED_REFUSALS, now):
            return True
        if window.calls == RECORDED_REFUSALS.calls:
            _log.warning("the device %s was refused too often; further refusals are not recorded for now", device)
        return False

    def _record_arrival(self, question: "_Question") -> None:
        """Record the arrival of a question, unless that was done before a restart (S13)."""
        state, place = self._sealer.device.state, _arrival_fact(question.opened)
        with state.writing():
            before_ms = state.fact(place, int)
            question.since_ms = self._now_ms() if before_ms is None else before_ms
            if before_ms is None and question.is_recorded:
                state.keep(place, question.since_ms)
                files = () if question.turned_away else question.received.files
                audit.keep(state, self._audit_entry(question, "asked", files=files))

    def _record_outcome(
        self, question: "_Question", event: str, code: str, files: tuple[AttachedFile, ...] = ()
    ) -> None:
        """Record the outcome of a question, in the transaction that deletes it."""
        state = self._sealer.device.state
        state.execute("DELETE FROM facts WHERE name = ?", _arrival_fact(question.opened))
        if question.is_recorded:
            audit.keep(state, self._audit_entry(question, event, code, files))

    def _audit_entry(
        self, question: "_Question", event: str, code: str = "", files: tuple[AttachedFile, ...] = ()
    ) -> AuditEntry:
        # A name that is not shared here is a text of the other device, and is not recorded.
        name, now_ms = question.name if question.name in self._shared else "", self._now_ms()
        took_ms = max(0, now_ms - question.since_ms)
        return step_of(
            question.opened,
            question.received,
            event,
            code,
            now_ms,
            name=name,
            took_ms=took_ms,
            task=question.task,
            files=files,
        )


class _Question:
    """A question of another device, and the state of its answer."""

    def __init__(self, opened: Opened, received: QuestionMessage, name: str) -> None:
        self.opened = opened
        self.received = received
        self.name = name
        self.messages = [opened.id]
        """All messages of the inbox that are deleted with its answer."""
        self.going: ActiveRun | None = None
        self.task = ""
        """The run of the hub that answers it."""
        self.since_ms = 0
        self.cancelled = ""
        """Why nobody waits for its answer any more."""
        self.turned_away = False
        """Whether it was refused; then it does not count against other questions."""
        self.is_recorded = True


def _is_beside(control: ControlEnvelope, other: ControlEnvelope) -> bool:
    """Return whether *control* is not derived from *other*: it is at most as many hops from the same origin."""
    is_near = control.hop_count <= other.hop_count
    return is_near and control.origin_agent_device_id == other.origin_agent_device_id


def _arrival_fact(opened: Opened) -> str:
    """Return the name under which the arrival time of a question is stored."""
    return f"asked/{opened.id}"


def _kept_windows(sealer: MessageCipher, device: str, now_ms: int) -> dict[str, Window]:
    row, _ = sealer.peers.row(device)
    kept = sealer.device.state.fact(f"rates/{row}", dict[str, Window]) or {}
    # After the clock was set back, a window in the future would refuse everything.
    return {name: window for name, window in kept.items() if window.start <= now_ms / 1_000}


def _not_theirs(name: str, theirs: list[str]) -> Fault:
    """Return why a device gets no answer, without revealing anything that is shared with others."""
    if not theirs:
        why = "no agent is shared with your device"
        todo = "Ask its owner to share one with your device."
        return fault(Code.PERMISSION_DENIED, why, suggestion=todo)
    which = f"no agent `{name[:100]}` is" if name else "several agents are"
    return fault(Code.AGENT_NOT_FOUND, f"{which} shared with your device; choose one of: {join_names(theirs)}")
