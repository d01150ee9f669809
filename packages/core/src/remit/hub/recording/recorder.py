"""Records the replies that the agents of a hub get from outside of their code, and replays them."""

import os
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from remit.hub.recording.comparing import (
    ComparableRequest,
    ExchangeKind,
    RecordedDifference,
    comparable,
    first_change,
)
from remit.hub.recording.files import (
    NewCalls,
    RecordedAnswer,
    RecordedReply,
    RecordedRun,
    RecordingHead,
    read_recording,
    write_recording,
)
from remit.hub.recording.http import AgentTurn, HttpCall, HttpReply, caught_http, without_keys
from remit.policy.redaction import TOKEN
from remit.policy.verdict import Detector, Sealing
from remit.ports import Approver, Decision, Question
from remit.ports.brief import RECORDED_TURN
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.agent_status import outcome_of
from remit.runtime.context import RuntimeContext, ToolResult
from remit.runtime.frames import Frame
from remit.runtime.registry import team_invalid

# What a provider says when it may answer later; its client then asks the same again.
_ASK_AGAIN = frozenset({408, 409, 425, 429})
_REQUEST_FIELDS = ("target", "objective", "input", "capability", "handoff", "context", "hints", "files")
_OF_USER = ("objective", "input", "capability", "files")
# Stands for the id of a run, which is another one each time.
_RUN_ID = "<run>"

T = TypeVar("T")


class Asker(NamedTuple):
    """Who asks somebody outside: an agent at its place in a run."""

    root: Request
    """The request of the run."""
    agent: str
    at: str
    """The path of its delegation in the run; empty for the first."""
    sealing: Sealing | None


def asker_of(frame: Frame) -> Asker:
    """Return the agent of a delegation as one who asks."""
    return Asker(frame.run.request, frame.card.name, frame.path[len(frame.run.id) + 1 :], frame.run.sealing)


def _asked(request: Request) -> Json:
    """Return what a request asks for, without ids, times and limits."""
    given = {name: getattr(request, name) for name in _REQUEST_FIELDS}
    return msgspec.to_builtins({name: value for name, value in given.items() if value})


class _OutsideReplies:
    """What recording and replaying have in common: the numbers of the runs, and whose replies they are."""

    def __init__(self, parts: RuntimeContext, otherwise: Detector | None) -> None:
        self._parts = parts
        self._runs: dict[str, int] = {}
        """The number of each run."""
        self._own = None if otherwise is None else Sealing(os.urandom(32), otherwise)
        """Finds personal data for a hub that redacts none."""

    @property
    def runs(self) -> list[str]:
        """The runs that have begun, by their ids in this hub."""
        return list(self._runs)

    def begin(self, frame: Frame) -> None:
        """Note a delegation that begins in the running task, which inherits the turn of its caller."""
        self._run_of(asker_of(frame))
        RECORDED_TURN.set(None)

    def enter(self, frame: Frame) -> None:
        """Note that the agent of a delegation starts in the running task."""
        RECORDED_TURN.set(AgentTurn(cast("HubRecording | Replay", self), frame))

    def approver(self, approver: Approver | None) -> Approver | None:
        """Return who answers questions to people while this is on."""
        if approver is None and isinstance(self, HubRecording):
            return None

        async def ask(question: Question) -> Decision:
            request, frame = question.request, self._parts.ledger.frames.get(question.request.run)
            root = request if frame is None else frame.run.request
            sealing = self._parts.redactor.sealing(root.session or root.run)
            asker = Asker(root, request.target, request.path[len(request.run) + 1 :], sealing)
            self._run_of(asker)
            return await self._decision(asker, question, approver)

        return ask

    async def _decision(self, asker: Asker, question: Question, approver: Approver | None) -> Decision:
        raise NotImplementedError

    def _number(self, asker: Asker) -> int:
        raise NotImplementedError

    def _run_of(self, asker: Asker) -> int:
        if asker.root.run not in self._runs:
            self._runs[asker.root.run] = 0
            self._runs[asker.root.run] = self._number(asker)
        return self._runs[asker.root.run]

    def _clean(self, asker: Asker, value: object) -> Json:
        """Return a value as JSON, without personal data and without the id of its run."""
        clean = self._parts.redactor.clean(msgspec.to_builtins(value), asker.sealing or self._own)
        return msgspec.json.decode(encode(clean).decode().replace(asker.root.run, _RUN_ID))


class HubRecording(_OutsideReplies):
    """Records all replies to the runs that begin while it is on."""

    def __init__(self, parts: RuntimeContext, path: Path, otherwise: Detector | None) -> None:
        super().__init__(parts, otherwise)
        self.path = path
        self._lines: list[RecordedRun | RecordedReply | RecordedAnswer] = []
        self._sessions: dict[str, int] = {}
        self._calls: Counter[tuple[int, str, str]] = Counter()
        self.unrecorded: list[RecordedDifference] = []
        """Connections that agents opened in ways that are not recorded."""

    def _number(self, asker: Asker) -> int:
        request, number = asker.root, len(self._runs)
        session = request.session or request.run
        self._lines.append(
            RecordedRun(
                run=number,
                agent=request.target,
                objective=cast("str", self._clean(asker, request.objective)),
                input=self._clean(asker, request.input),
                capability=request.capability,
                files=self._clean(asker, request.files) or None,
                continues=self._sessions.get(session, 0),
                tokens=request.remit.tokens,
                cost=request.remit.cost,
            )
        )
        self._sessions.setdefault(session, number)
        return number

    def recall(self, frame: Frame, name: str, call: HttpCall) -> HttpReply | None:  # noqa: ARG002 - as a replay has it
        """Return no reply: everybody is asked."""
        return None

    def keep(self, frame: Frame, name: str, call: HttpCall, reply: HttpReply) -> None:
        """Keep a reply over HTTP; it replaces one that told the client to ask again."""
        self._keep(asker_of(frame), "model", name, call, reply)

    def note_connection(self, frame: Frame, address: str) -> bool:
        """Note a connection that is not recorded, and return whether it may be opened."""
        asker = asker_of(frame)
        difference = RecordedDifference(asker.agent, asker.at, "connection", 1, "", None, address)
        if difference not in self.unrecorded:
            self.unrecorded.append(difference)
        return True

    async def tool(
        self, frame: Frame, name: str, arguments: dict[str, Json], use: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Keep the result of a tool."""
        value, why = await _unrecorded(use)
        reply = {"value": value} if why is None else {"fault": why}
        self._keep(asker_of(frame), "tool", name, {"tool": name, "arguments": arguments}, reply)
        return value, why

    async def remote(self, frame: Frame, request: Request, send: Callable[[], Awaitable[Response]]) -> Response:
        """Keep the response of another hub."""
        response = await send()
        self._keep(asker_of(frame), "agent", request.target, _asked(request), response)
        return response

    async def value(self, frame: Frame, name: str, work: Callable[[], Awaitable[Json]]) -> Json:
        """Keep a value that an agent finds out once."""
        value = await _unrecorded(work)
        self._keep(asker_of(frame), "value", name, {"name": name}, {"value": value})
        return value

    async def _decision(self, asker: Asker, question: Question, approver: Approver | None) -> Decision:
        decision = await _decided(approver, question)
        self._keep(asker, "person", "", _of_question(question), decision)
        return decision

    def end(self, run: str, response: Response) -> None:
        """Keep the answer of a run."""
        if run in self._runs:
            self._lines.append(_answer(self._runs[run], response, self._parts, self._own))

    def write(self, version: str) -> None:
        """Write the file."""
        write_recording(self.path, RecordingHead(remit=version, team=self._parts.registry.hub), self._lines)

    def _keep(self, asker: Asker, kind: ExchangeKind, name: str, request: object, reply: object) -> None:
        place = (self._run_of(asker), asker.at, kind)
        asked = self._clean(asker, request)
        same = (each for each in reversed(self._lines) if isinstance(each, RecordedReply))
        before = next((each for each in same if (each.run, each.at, each.kind) == place), None)
        if before is not None and _tells_to_ask_again(before) and before.request == asked:
            self._lines.remove(before)
            self._calls[place] -= 1
        self._calls[place] += 1
        self._lines.append(
            RecordedReply(
                run=place[0],
                agent=asker.agent,
                at=asker.at,
                kind=kind,
                call=self._calls[place],
                name=name,
                request=asked,
                reply=self._clean(asker, reply),
            )
        )


async def _unrecorded(work: Callable[[], Awaitable[T]]) -> T:
    """Return what *work* does; what it asks on its way is part of its result, and not recorded by itself."""
    turn = RECORDED_TURN.set(None)
    try:
        return await work()
    finally:
        RECORDED_TURN.reset(turn)


def _tells_to_ask_again(line: RecordedReply) -> bool:
    match line:
        case RecordedReply(kind="model", reply={"status": int(status)}):
            return status in _ASK_AGAIN or status >= 500
        case _:
            return False


async def _decided(approver: Approver | None, question: Question) -> Decision:
    given = None if approver is None else await approver(question)
    return given if isinstance(given, Decision) else Decision(agreed=given is True, by="")


def _of_question(question: Question) -> Json:
    return {"question": question.text, "request": _asked(question.request)}


def _answer(number: int, response: Response, parts: RuntimeContext, own: Sealing | None) -> RecordedAnswer:
    sealing = parts.redactor.sealing(response.session or response.run) or own
    result = parts.redactor.clean(response.result, sealing)
    code = None if response.fault is None else response.fault.code
    return RecordedAnswer(run=number, status=response.status, result=result, code=code)


class Replay(_OutsideReplies):
    """Answers runs from a recording, and notes where they differ from it."""

    def __init__(self, parts: RuntimeContext, path: Path, otherwise: Detector | None, new: NewCalls) -> None:
        super().__init__(parts, otherwise)
        self.path = path
        self.new: NewCalls = new
        self.recording = read_recording(path)
        self.differences: list[RecordedDifference] = []
        """Where the runs differ from the recording, in the order in which it was noticed."""
        self.asked = 0
        """How many new calls were really made."""
        self._left: dict[tuple[int, str, str], list[RecordedReply]] = defaultdict(list)
        for each in self.recording.replies:
            self._left[each.run, each.at, each.kind].append(each)
        self._calls: Counter[tuple[int, str, str]] = Counter()
        self._new_from_here: set[tuple[int, str]] = set()
        """The delegations that differ, in which everything from there on is new."""
        self._meant: dict[int, dict[str, str]] = defaultdict(dict)
        """What stands in this replay for each placeholder of the recording, by run."""

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, asker: Asker) -> int:
        """Return which recorded run this one repeats: one with the same request, or else the next one; 0: none."""
        request, taken = asker.root, set(self._runs.values())
        free = [each for each in self.recording.runs if each.run not in taken]
        given = {"agent": request.target, **{name: getattr(request, name) or None for name in _OF_USER}}
        asked = comparable("request", self._clean(asker, given))
        recorded = {
            each.run: comparable("request", {name: getattr(each, name) or None for name in given}) for each in free
        }
        number = next((run for run, each in recorded.items() if each.text == asked.text), 0)
        if number:
            self._bind(number, recorded[number], asked)
        elif free:
            number = free[0].run
            change = first_change(recorded[number].value, asked.value)
            assert change is not None, "their texts differ"
            self._note(RecordedDifference(request.target, "", "request", 1, *change, number))
        else:
            self._note(RecordedDifference(request.target, "", "request", 1, "", None, request.objective))
        return number

    def end(self, run: str, response: Response) -> None:
        """Note what a run left undone, and whether its answer is another one; if it differs anyway, neither counts."""
        number = self._runs.get(run, 0)
        if not number or any(each.run == number for each in self.differences):
            return
        for left in (left for (of_run, _, _), left in self._left.items() if of_run == number and left):
            first = left[0]
            self._note(RecordedDifference(first.agent, first.at, first.kind, first.call, "", "recorded", None, number))
            return
        if (known := self.recording.answers.get(number)) is not None:
            given = _answer(number, response, self._parts, self._own)
            before, after = (comparable("answer", msgspec.to_builtins(each)) for each in (known, given))
            if change := first_change(before.value, after.value):
                self._note(RecordedDifference(response.target, "", "answer", 1, *change, number))

    # ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def recall(self, frame: Frame, name: str, call: HttpCall) -> HttpReply | None:  # noqa: ARG002 - as a recorder has it
        """Return the recorded reply over HTTP; None: it is asked for real."""
        reply = self._find(asker_of(frame), "model", call)
        if reply is not None:
            return msgspec.convert(reply, HttpReply)
        if self._may_ask():
            return None
        # A status that no client takes as a reason to ask again.
        error: Json = {"message": self._why().message, "type": "not_recorded", "code": "not_recorded", "param": None}
        return HttpReply(status=400, body={"error": error})

    def keep(self, frame: Frame, name: str, call: HttpCall, reply: HttpReply) -> None:
        """Keep nothing: the recording stays as it is."""

    def note_connection(self, frame: Frame, address: str) -> bool:
        """Note a connection that is not recorded, and return whether it may be opened."""
        asker = asker_of(frame)
        number = self._run_of(asker)
        self._note(RecordedDifference(asker.agent, asker.at, "connection", 1, "", None, address, number))
        return self.new == "ask"

    async def tool(
        self,
        frame: Frame,
        name: str,
        arguments: dict[str, Json],
        use: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Return the recorded result of a tool."""
        match self._find(asker_of(frame), "tool", {"tool": name, "arguments": arguments}):
            case {"fault": why}:
                return None, msgspec.convert(why, Fault)
            case {"value": value}:
                return value, None
            case _ if self._may_ask():
                return await _unrecorded(use)
            case _:
                return None, self._why()

    async def remote(self, frame: Frame, request: Request, send: Callable[[], Awaitable[Response]]) -> Response:
        """Return the recorded response of another hub."""
        reply = self._find(asker_of(frame), "agent", _asked(request))
        if reply is not None:
            return replace(msgspec.convert(reply, Response), id=request.id, run=request.run, target=request.target)
        if self._may_ask():
            return await send()
        raise RemitError(self._why())

    async def value(self, frame: Frame, name: str, work: Callable[[], Awaitable[Json]]) -> Json:
        """Return the recorded value that an agent has found out once."""
        reply = self._find(asker_of(frame), "value", {"name": name})
        if reply is not None:
            return reply["value"]
        if self._may_ask():
            return await _unrecorded(work)
        raise RemitError(self._why())

    async def _decision(self, asker: Asker, question: Question, approver: Approver | None) -> Decision:
        reply = self._find(asker, "person", _of_question(question))
        if reply is not None:
            return msgspec.convert(reply, Decision)
        if approver is not None and self._may_ask():
            return await _decided(approver, question)
        return Decision(agreed=False, by="", reason="no decision on this question is recorded")

    def check(self) -> None:
        """Raise a `RemitError` that names the first difference, if there is one."""
        if self.differences:
            raise RemitError(self._why())

    def _why(self) -> Fault:
        more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
        return fault(Code.NOT_RECORDED, f"{self.path.name}: {self.differences[0]}{more}")

    def _may_ask(self) -> bool:
        self.asked += self.new == "ask"
        return self.new == "ask"

    def _find(self, asker: Asker, kind: ExchangeKind, request: object) -> dict[str, Json] | None:
        """Return the recorded reply to the same request, or note how the request differs from the recorded one."""
        number = self._run_of(asker)
        place = (number, asker.at, kind)
        if not number or place[:2] in self._new_from_here:
            return None
        self._calls[place] += 1
        asked, left = comparable(kind, self._clean(asker, request)), self._left[place]
        for each in left:
            # Calls at the same time may come in another order, so any of them may be the same.
            if (recorded := comparable(kind, each.request)).text == asked.text:
                left.remove(each)
                self._bind(number, recorded, asked)
                return self._as_now(number, asker.root.run, each.reply)
        self._new_from_here.add(place[:2])
        change = first_change(comparable(kind, left[0].request).value, asked.value) if left else None
        call = left[0].call if left else self._calls[place]
        self._note(RecordedDifference(asker.agent, asker.at, kind, call, *(change or ("", None, "")), number))
        return None

    def _note(self, difference: RecordedDifference) -> None:
        if difference not in self.differences:
            self.differences.append(difference)

    def _bind(self, number: int, recorded: ComparableRequest, asked: ComparableRequest) -> None:
        self._meant[number].update(zip(recorded.placeholders, asked.placeholders, strict=True))

    def _as_now(self, number: int, run: str, reply: Json) -> dict[str, Json]:
        """Return a recorded reply with what stands for its placeholders and ids in this replay."""
        meant = self._meant[number]
        text = TOKEN.sub(lambda match: meant.get(match[0], match[0]), encode(reply).decode())
        return msgspec.json.decode(text.replace(_RUN_ID, run), type=dict[str, Any])


@asynccontextmanager
async def recorded(
    parts: RuntimeContext, path: Path, otherwise: Detector | None, version: str
) -> AsyncGenerator[HubRecording]:
    """Record all runs of a hub that begin within the block, and write the file at its end."""
    recorder = HubRecording(parts, path, otherwise)
    try:
        async with _attached(parts, recorder):
            yield recorder
    finally:
        recorder.write(version)


@asynccontextmanager
async def replayed(
    parts: RuntimeContext, path: Path, otherwise: Detector | None, new: NewCalls
) -> AsyncGenerator[Replay]:
    """Answer all runs of a hub that begin within the block from a recording."""
    replay = Replay(parts, path, otherwise, new)
    with without_keys() if new == "refuse" else nullcontext():
        async with _attached(parts, replay):
            yield replay


@asynccontextmanager
async def _attached(parts: RuntimeContext, recorder: HubRecording | Replay) -> AsyncGenerator[None]:
    if parts.recorder is not None:
        raise team_invalid("this hub is being recorded or replayed already")
    approver = parts.approver
    parts.recorder, parts.approver = recorder, recorder.approver(approver)
    try:
        with caught_http():
            yield
    finally:
        parts.recorder, parts.approver = None, approver
        for run in recorder.runs:
            response = await outcome_of(parts, run, raw=False)
            if response is not None:
                recorder.end(run, response)
