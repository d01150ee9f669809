"""Secrets sent down every path, failures included, and searched for in everything that was written: none is there."""

import asyncio
import hashlib
import json
import logging
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest

from checkout import ROOT
from collector import Collector
from remit import (
    ALLOW,
    Answer,
    Artifact,
    Ask,
    Brief,
    Call,
    Capability,
    Code,
    ContextFilter,
    Facts,
    Handoff,
    Hub,
    Limits,
    Problem,
    RemitError,
    Request,
    Response,
    Source,
    Usage,
    Verdict,
    fault,
)
from remit.policy.redaction import strike
from remit.policy.verdict import Refuse, Sealing
from remit.ports import Decision, Question
from remit.protocol.codec import digest, encode
from remit_otel import send_telemetry
from remit_otel.spans import Spans
from remit_redaction.pipeline import detector_pipeline
from remit_server.server_endpoints import MetricsPage
from waiting import PATIENCE_S, eventually

CANARIES = {
    "email": "canary.bird@example.org",
    "phone": "+1 415-555-2671",
    "card": "5500 0055 5555 5559",
    "iban": "GB29 NWBK 6016 1331 9268 19",
    "ssn": "536-22-8726",
    # In two parts, so that no scanner takes it for a real one.
    "api key": "gh" + "p_c4N4ryb1rdS1ng5L0ud4tN1ghtAndDay7xQ2",
    "bearer token": "q7Zx9LmN4pRs2TuV8wYzB6",
    "password in a URL": "Tr0ub4dor9xyz",
}
TEXT = (
    "write to {email}; call {phone}; card {card}; iban {iban}; ssn {ssn}; key {api key}; "
    "Authorization: Bearer {bearer token}; see https://svc:{password in a URL}@db.example.com/x."
).format(**CANARIES)
NUMBER = 5500005555555559
JSON = {"note": TEXT, "nested": [{"deep": [TEXT]}], TEXT: 1, "card": NUMBER, "ssn": 536228726, "several": [NUMBER, 1.5]}
SAID = Handoff(
    original_request=TEXT,
    position=TEXT,
    prior_outputs={"x": JSON},
    decisions=(TEXT,),
    constraints={"limit": TEXT},
    findings=(TEXT,),
    data=JSON,
    assumptions=(TEXT,),
    facts=(TEXT,),
    references=(Source(owner_scope="u-1", source_id=CANARIES["email"]),),
)
FAULT = fault(Code.RATE_LIMITED, TEXT, suggestion=TEXT, foreign=TEXT, problems=(Problem(TEXT, TEXT),))
CONTEXT = ContextFilter(keywords=(TEXT,), workspace_files=(f"/home/{CANARIES['email']}/x.txt",))


def forms(secret: str) -> set[str]:
    """Return how a secret may be written: as it is, without separators, escaped as JSON, in capitals or not."""
    bare = re.sub(r"[\s+()-]", "", secret) if re.search(r"\d{2}", secret) else secret
    written = {secret, bare, secret.upper(), secret.lower()}
    return written | {json.dumps(each)[1:-1] for each in written} | {repr(each)[1:-1] for each in written}


FORMS = {name: forms(secret) for name, secret in CANARIES.items()}


def found_in(text: str | bytes) -> list[str]:
    """Return the names of the canaries that are in a text."""
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    return [name for name, written in FORMS.items() if any(form in text for form in written)]


class Watch:
    """Collects all that a hub writes, tells and logs."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, collector: Collector) -> None:
        self.folder = folder
        self.collector = collector
        self.logs = caplog
        self.written: dict[str, str | bytes] = {}
        self.responses: list[Response] = []

    def hub(self, **options: Any) -> Hub:
        hub = Hub(store=self.folder / "hub.db", durability="process", **options)
        send_telemetry(hub, self.collector.endpoint, content=True)
        return hub

    @asynccontextmanager
    async def open(self, hub: Hub) -> AsyncGenerator[None]:
        async with asyncio.timeout(PATIENCE_S):
            async with hub:
                events = hub.events()
                yield
                await self.look(hub)
                events.close()
                self.written["events"] = b"\n".join([encode(each) async for each in events])
            self._read_files("after it was closed")
            self.written["sent to the collector"] = b"\n".join(body for _, _, body in self.collector.bodies)
            self.written["spans"] = repr([(span.span, span.attributes) for span in self.collector.spans])
            self.written["metrics"] = repr(self.collector.metrics)

    async def look(self, hub: Hub) -> None:
        """Take down all that can be read from the store, through it and past it."""
        await hub.store.flush()
        records = await hub.store.records(limit=10_000)
        self.written["records"] = b"\n".join(map(encode, records))
        self.written["spans without content"] = repr(Spans("local").fold(records))
        self.written["figures"] = MetricsPage(hub).page(ready=True)
        self.written["runs"] = repr(await hub.store.runs())
        self.written["pending"] = repr(await hub.store.pending())
        self.written["facts"] = repr(await hub.store.facts("u-1"))
        self.written["delegations"] = repr([await hub.delegations(run) for run in {each.run for each in records}])
        self._read_files("while it was open")

    async def ask(self, hub: Hub, agent: str, text: str = "", **options: Any) -> Response:
        options.setdefault("user", "u-1")
        response = await hub.ask(agent, text, **options)
        self.responses.append(response)
        return response

    def _read_files(self, when: str) -> None:
        for file in self.folder.rglob("*"):
            if file.is_file():
                self.written[f"{file.name} {when}"] = file.read_bytes()

    def leaks(self) -> dict[str, list[str]]:
        """Return where canaries were found, and which."""
        self.written["log"] = "\n".join(
            f"{each.getMessage()} {each.exc_text} {each.args}" for each in self.logs.records
        )
        self.written["log text"] = self.logs.text
        self.written["faults"] = repr([each.fault for each in self.responses])
        return {place: names for place, text in self.written.items() if (names := found_in(text))}


@pytest.fixture
def watch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Generator[Watch]:
    caplog.set_level(logging.DEBUG)
    with Collector() as collector:
        yield Watch(tmp_path, caplog, collector)


def test_every_canary_is_one_that_detectors_find() -> None:
    """Else this file would prove nothing."""
    clean = strike([TEXT, JSON, SAID, CONTEXT, FAULT], Sealing(b"k", detector_pipeline()), {})
    assert sorted(found_in(TEXT)) == sorted(CANARIES)
    assert found_in(encode(clean)) == []


def test_the_search_finds_a_canary_however_it_is_written() -> None:
    for text in (TEXT, repr(TEXT), json.dumps(TEXT), encode(TEXT), TEXT.upper(), TEXT.lower(), TEXT.replace(" ", "")):
        assert "email" in found_in(text)
        assert "card" in found_in(text)


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

PATHS: dict[str, Callable[[Watch], Awaitable[None]]] = {}


def path(function: Callable[[Watch], Awaitable[None]]) -> Callable[[Watch], Awaitable[None]]:
    PATHS[function.__name__.removeprefix("_").replace("_", " ")] = function
    return function


async def quiet(brief: Brief) -> str:
    return "done"


async def repeat(brief: Brief) -> Any:
    return [brief.objective, brief.input, brief.request.hints, brief.request.reason, brief.original_request]


@path
async def _what_a_user_says(watch: Watch) -> None:
    hub = watch.hub()
    hub.agent("a")(repeat)
    async with watch.open(hub):
        for given in (None, TEXT, JSON, [TEXT], NUMBER):
            await watch.ask(hub, "a", TEXT, input=given, handoff=SAID, hints=(TEXT,), context=CONTEXT)
        async for _ in hub.stream("a", TEXT, input=JSON, user="u-1"):
            pass


@path
async def _what_an_agent_says_to_another(watch: Watch) -> None:
    hub = watch.hub()
    for name in ("b", "c"):
        hub.agent(name)(repeat)
    options: Any = {"handoff": SAID, "hints": (TEXT,), "reason": TEXT, "context": CONTEXT, "max_tokens": 5_000}

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> Any:
        responses = [
            await brief.delegate("b", objective=TEXT, input=given, **options) for given in (JSON, TEXT, NUMBER)
        ]
        responses += await brief.fan_out(
            [Call(target="b", input=TEXT), Call(target="c", objective=f"2 {TEXT}", **options)]
        )
        responses += await brief.chain([Call(target="b", input=JSON), Call(target="c", objective="go on")])
        return [each.result for each in responses]

    @hub.agent("thread", may_call=["*"])
    def thread(brief: Brief) -> Any:
        return brief.wait(brief.delegate("b", input=[TEXT, brief.input])).result

    @hub.agent("one", may_call=["*"])
    async def one(brief: Brief) -> Call:
        return Call(target="b", objective=TEXT, input=JSON, handoff=SAID)

    @hub.agent("several", may_call=["*"])
    async def several(brief: Brief) -> list[Call]:
        return [Call(target="b", input=TEXT), Call(target="c", input=JSON)]

    async with watch.open(hub):
        for name in ("a", "thread", "one", "several"):
            assert (await watch.ask(hub, name)).ok


@path
async def _what_an_agent_answers(watch: Watch) -> None:
    hub = watch.hub()

    @hub.agent("b")
    async def b(brief: Brief) -> Answer:
        return Answer(
            JSON,
            summary=TEXT,
            artifacts=(Artifact(type="json", value=JSON, label=TEXT), Artifact(type="url", value=TEXT)),
            new_facts=(TEXT,),
            sources=(Source(owner_scope="u-1", source_id=CANARIES["email"]),),
            warnings=(TEXT,),
            finished=(TEXT,),
            unfinished=(TEXT,),
            metadata={"x": JSON, TEXT: TEXT},
        )

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        reply = await brief.delegate("b")
        return [reply.result, await brief.facts(), [encode(each).decode() for each in await brief.conversation()]]

    async with watch.open(hub):
        await watch.ask(hub, "b", session="s")
        await watch.ask(hub, "b", session="s")
        await watch.ask(hub, "a")


@path
async def _conversations(watch: Watch) -> None:
    with TemporaryDirectory() as work:
        await _converse(watch, Path(work))


async def _converse(watch: Watch, work: Path) -> None:
    (work / "notes.txt").write_text(TEXT, encoding="utf-8")
    (work / "package.json").write_text(json.dumps({"name": TEXT}), encoding="utf-8")

    async def summarize(source: str, tokens: int) -> tuple[str, Usage]:
        assert found_in(source) == []
        return source, Usage(prompt=1)

    hub = watch.hub(workspace=work, summarizer=summarize)
    wanted = ContextFilter(
        keywords=(TEXT, CANARIES["email"], "we"),
        include_summary=True,
        include_workspace=True,
        workspace_files=("notes.txt", f"{CANARIES['email']}.txt"),
        include_contents=True,
    )

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        assert found_in(encode(brief.request)) == []
        assert "[EMAIL:" in brief.view.workspace
        brief.note("decision", TEXT)
        brief.record_tool_use(TEXT, JSON, error=TEXT)
        brief.record_tool_use("grep", JSON, error=TEXT)
        for letter in TEXT:
            brief.say(letter)
        return TEXT

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        for number in range(2):
            reply = await brief.delegate("b", objective=f"{number} {TEXT}", context=wanted, session="b")
            assert reply.ok, reply
        brief.say(TEXT)
        return f"{TEXT} Shall I write to {CANARIES['email']}?"

    async with watch.open(hub):
        for _ in range(3):
            text = f"We decided: {TEXT} It must reach {CANARIES['email']}."
            assert (await watch.ask(hub, "a", text, session="a", context=wanted)).ok
        watch.written["notes"] = repr(await hub.store.notes("a"))
        watch.written["messages"] = repr(await hub.store.messages("b", ContextFilter(), now_ms=0, tokens=100_000))


@path
async def _what_tools_are_given_and_give(watch: Watch) -> None:
    hub = watch.hub()

    @hub.tool()
    async def once(text: str, data: dict[str, Any]) -> Any:
        return [TEXT, JSON]

    @hub.tool(safe_to_repeat=True)
    def often(text: str) -> str:
        return text

    @hub.tool()
    async def fails(text: str) -> str:
        raise ValueError(text) from KeyError(TEXT)

    @hub.tool()
    async def refuses(text: str) -> str:
        raise RemitError(
            fault(Code.DELEGATION_FAILED, TEXT, suggestion=TEXT, foreign=TEXT, problems=(Problem(TEXT, TEXT),))
        )

    @hub.tool()
    async def unsayable(text: str) -> Any:
        return {TEXT: object()}

    @hub.agent("a", tools=["once", "often", "fails", "refuses", "unsayable"])
    async def a(brief: Brief) -> Any:
        uses: list[tuple[str, dict[str, Any]]] = [
            ("once", {"text": TEXT, "data": JSON}),
            ("often", {"text": TEXT}),
            ("fails", {"text": TEXT}),
            ("refuses", {"text": TEXT}),
            ("unsayable", {"text": TEXT}),
            ("often", {"text": JSON}),
            ("often", {TEXT: TEXT}),
            ("often", {}),
            (f"to {CANARIES['email']}", {"text": TEXT}),
            (TEXT, {"text": TEXT}),
            ("missing", {"text": TEXT}),
        ]
        for tool, arguments in uses:
            with suppress(RemitError, TypeError):
                await brief.use(tool, **arguments)
        return await brief.use("fails", text=TEXT)

    async with watch.open(hub):
        await watch.ask(hub, "a")


@path
async def _agents_that_raise(watch: Watch) -> None:
    hub = watch.hub()
    errors: list[Callable[[], Any]] = [
        lambda: ValueError(TEXT),
        lambda: KeyError(TEXT),
        lambda: ValueError(JSON),
        lambda: ExceptionGroup(TEXT, [ValueError(TEXT), KeyError(TEXT)]),
        lambda: RemitError(
            fault(Code.RATE_LIMITED, TEXT, suggestion=TEXT, foreign=TEXT, problems=(Problem(TEXT, TEXT),))
        ),
        lambda: RemitError(TEXT),  # pyright: ignore[reportArgumentType]
        lambda: SystemExit(TEXT),
        lambda: UnicodeDecodeError("utf-8", TEXT.encode(), 0, 1, TEXT),
    ]

    def throw(number: int) -> None:
        error = errors[number]()
        error.add_note(TEXT)
        if number % 2:
            raise error
        raise error from ValueError(TEXT)

    for number in range(len(errors)):

        @hub.agent(f"task-{number}")
        async def in_a_task(brief: Brief, number: int = number) -> None:
            throw(number)

        @hub.agent(f"thread-{number}")
        def in_a_thread(brief: Brief, number: int = number) -> None:
            throw(number)

        @hub.agent(f"caller-{number}", may_call=["*"])
        async def caller(brief: Brief, number: int = number) -> Any:
            (await brief.delegate(f"task-{number}")).unwrap()

    async with watch.open(hub):
        for name in hub.cards:
            assert not (await watch.ask(hub, name)).ok


@path
async def _answers_that_are_none(watch: Watch) -> None:
    hub = watch.hub(limits=Limits(max_result_bytes=20_000))
    answers: list[Any] = [
        Answer(TEXT, confidence=7),
        Answer(TEXT, summary=JSON),  # pyright: ignore[reportArgumentType]
        Answer(TEXT, artifacts=(Artifact(type=TEXT, value=TEXT),)),  # pyright: ignore[reportArgumentType]
        Answer(TEXT, sources=(Source(owner_scope=TEXT, source_id=TEXT),)),
        Answer(TEXT, new_facts=(TEXT, 7)),  # pyright: ignore[reportArgumentType]
        {TEXT: object()},
        {TEXT: float("nan")},
        {TEXT: {1: TEXT, "1": TEXT}},
        {TEXT: 2**60},
        "\ud800" + TEXT,
        TEXT * 200,
        [Call(target=TEXT, objective=TEXT)],
        [Call(target="a-0", max_tokens=TEXT)],  # pyright: ignore[reportArgumentType]
    ]
    for number, answer in enumerate(answers):

        @hub.agent(f"a-{number}", may_call=["*"])
        async def a(brief: Brief, answer: Any = answer) -> Any:
            return answer

    async with watch.open(hub):
        for name in hub.cards:
            assert not (await watch.ask(hub, name)).ok


@path
async def _progress_and_time_outs(watch: Watch) -> None:
    hub = watch.hub(limits=Limits(max_progress=2, grace_ms=50))

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        partial = Answer(JSON, summary=TEXT, finished=(TEXT,), unfinished=(TEXT,), warnings=(TEXT,))
        for _ in range(4):
            brief.progress(TEXT, partial=partial)
        with suppress(RemitError):
            brief.progress(TEXT, partial=Answer(TEXT, confidence=7))
        await asyncio.Event().wait()
        return TEXT

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        return (await brief.delegate("b", input=TEXT, deadline_ms=100)).result

    late, ended = asyncio.Event(), asyncio.Event()

    @hub.agent("stubborn")
    async def stubborn(brief: Brief) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await late.wait()
        ended.set()
        return TEXT

    async with watch.open(hub):
        await watch.ask(hub, "b", TEXT, deadline_ms=100)
        await watch.ask(hub, "a")
        await watch.ask(hub, "stubborn", TEXT, deadline_ms=50)
        late.set()
        await ended.wait()


@path
async def _cancellations(watch: Watch) -> None:
    started = asyncio.Event()

    async def never(question: Question) -> bool:
        started.set()
        await asyncio.Event().wait()
        return True

    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask(TEXT) if request.target == "asked" else ALLOW

    hub = watch.hub(limits=Limits(grace_ms=50), approver=never, guards=[asks])

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        brief.progress("x", partial=Answer(TEXT))
        started.set()
        await asyncio.Event().wait()
        return TEXT

    hub.agent("asked")(quiet)

    async with watch.open(hub):
        for name in ("a", "asked"):
            started.clear()
            task = asyncio.create_task(watch.ask(hub, name, TEXT, request_id=name))
            await started.wait()
            assert hub.cancel(name, TEXT)
            await task
        started.clear()
        gone = asyncio.create_task(watch.ask(hub, "a", TEXT))
        await started.wait()
        gone.cancel(TEXT)
        with suppress(asyncio.CancelledError):
            await gone


@path
async def _calls_that_are_refused(watch: Watch) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "integer"}}, "additionalProperties": False}
    hub = watch.hub(limits=Limits(max_fan_out=2, max_result_bytes=100_000))
    hub.agent("b", capabilities=[Capability(code="SEND", input_schema=schema, result_schema=schema)])(repeat)
    hub.agent("stranger")(quiet)

    @hub.agent("a", may_call=["a", "b"])
    async def a(brief: Brief) -> Any:
        arguments: dict[str, Any] = {
            "objective": TEXT,
            "input": JSON,
            "handoff": SAID,
            "hints": (TEXT,),
            "reason": TEXT,
            "context": CONTEXT,
        }
        wishes: list[dict[str, Any]] = [
            {"target": "nobody"},
            {"target": "stranger"},
            {"target": "a"},
            {"target": "b", "capability": "SEND"},
            {"target": "b", "capability": "SEND", "input": {"to": TEXT}},
            {"target": "b", "capability": "SEND", "input": {"to": 1}},
            {"target": "b", "capability": "MISSING"},
            {"target": "b", "max_tokens": 1},
            {"target": "b", "max_tokens": -1},
            {"target": "b", "max_tokens": TEXT},
            {"target": "b", "hints": TEXT},
            {"target": "b", "priority": TEXT},
            {"target": "b", "handoff": {"data": TEXT, TEXT: TEXT}},
            {"target": "b", "input": object()},
            {"target": "b", "input": {TEXT: float("nan")}},
            {"target": "b", "objective": TEXT * 1_000},
            {"target": "b", "deadline_ms": 1},
            {"target": "b", "tools": {"x"}},
            {"target": "b", "max_depth": 0},
        ]
        replies = [await brief.delegate(**{**arguments, **wish}) for wish in wishes]
        replies += await brief.fan_out([Call(target="b", input=TEXT)] * 3)
        await brief.delegate("b", objective=TEXT, max_tokens=5_000)
        replies.append(await brief.delegate("b", objective=TEXT, max_tokens=5_000))
        return [repr(each.fault) for each in replies]

    async with watch.open(hub):
        assert (await watch.ask(hub, "a")).ok
        for agent, options in (
            ("nobody", {}),
            ("b", {"capability": "SEND", "input": {"to": TEXT}}),
            ("b", {"capability": "SEND", "input": {TEXT: TEXT}}),
            ("b", {"capability": "SEND", "input": {"to": 1}}),
            ("b", {"capability": "MISSING"}),
            ("b", {"max_tokens": 1}),
            ("b", {"deadline_ms": 1}),
        ):
            await watch.ask(hub, agent, TEXT, handoff=SAID, **options)


@path
async def _guards_that_object(watch: Watch) -> None:
    def guard(request: Request, facts: Facts) -> Verdict:
        match request.target:
            case "raises":
                raise ValueError(f"{request.objective} {request.input}") from KeyError(TEXT)
            case "refuses":
                return Refuse(fault(Code.PERMISSION_DENIED, f"no {request.objective}", suggestion=TEXT))
            case "mumbles":
                return f"{request.objective} {request.input}"  # pyright: ignore[reportReturnType]
            case _:
                return ALLOW

    hub = watch.hub(guards=[guard])
    for name in ("raises", "refuses", "mumbles"):
        hub.agent(name)(quiet)

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> Any:
        names = ("raises", "refuses", "mumbles")
        return [(await brief.delegate(name, objective=TEXT, input=JSON)).fault for name in names]

    async with watch.open(hub):
        for name in ("a", "raises", "refuses", "mumbles"):
            await watch.ask(hub, name, TEXT, input=JSON)


@path
async def _questions_to_people(watch: Watch) -> None:
    async def approver(question: Question) -> Decision | bool | None:
        assert found_in(encode(question)) == []
        match question.request.target:
            case "raises":
                raise ValueError(TEXT) from KeyError(TEXT)
            case "declines":
                return Decision(agreed=False, by="carol", reason=TEXT)
            case "edits":
                return Decision(agreed=True, by="carol", reason=TEXT, edits={"input": JSON, "objective": TEXT})
            case "edits-wrongly":
                return Decision(agreed=True, by="carol", edits={"handoff": TEXT, TEXT: TEXT})
            case "mumbles":
                return TEXT  # pyright: ignore[reportReturnType]
            case "waits":
                await asyncio.Event().wait()
                return True
            case _:
                return True

    def asks(request: Request, facts: Facts) -> Verdict:
        if request.target == "a":
            return ALLOW
        return Ask(f"May it do {request.objective}, {request.input}?", frozenset({"input", "objective"}))

    hub = watch.hub(approver=approver, guards=[asks], limits=Limits(approval_timeout_ms=100))
    names = ("raises", "declines", "edits", "edits-wrongly", "mumbles", "waits", "agrees")
    for name in names:
        hub.agent(name)(repeat)

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> Any:
        return [(await brief.delegate(name, objective=TEXT, input=JSON, handoff=SAID)).fault for name in names]

    async with watch.open(hub):
        for name in ("a", *names):
            await watch.ask(hub, name, TEXT, input=JSON, handoff=SAID)


# HOLE: `question.decision` and `control.reason` hold what a person wrote, raw.
@path
async def _questions_that_wait_for_people(watch: Watch) -> None:
    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask(f"May it do {request.objective}?", frozenset({"input"}))

    hub = watch.hub(approver="inbox", guards=[asks])
    hub.agent("b")(repeat)
    async with watch.open(hub):
        tasks = [asyncio.create_task(watch.ask(hub, "b", f"{n} {TEXT}", input=JSON, handoff=SAID)) for n in range(3)]
        pending = await eventually(hub.pending, when=lambda questions: len(questions) == 3)
        await watch.look(hub)
        assert watch.leaks() == {}
        await hub.decide(pending[0].id, agreed=False, by="carol", reason=TEXT)
        await hub.decide(pending[1].id, agreed=True, by="carol", reason=TEXT, edits={"input": JSON})
        await hub.store.control(pending[2].request.run, "cancel", "carol", TEXT)
        await asyncio.wait(tasks)


@path
async def _nobody_to_be_asked(watch: Watch) -> None:
    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask(TEXT)

    hub = watch.hub(guards=[asks])
    hub.agent("b")(repeat)
    async with watch.open(hub):
        await watch.ask(hub, "b", TEXT, input=JSON)


@path
async def _duplicates(watch: Watch) -> None:
    hub = watch.hub()
    hub.agent("b")(repeat)
    async with watch.open(hub):
        first = await watch.ask(hub, "b", TEXT, input=JSON, request_id="1")
        again = await watch.ask(hub, "b", TEXT, input=JSON, request_id="1")
        other = await watch.ask(hub, "b", f"not {TEXT}", input=JSON, request_id="1")
    assert (again, other.fault is None) == (first, False)
    assert TEXT in repr(first.result)


@path
async def _steps_of_a_resumable_run(watch: Watch) -> None:
    hub = watch.hub()
    stopped = asyncio.Event()

    @hub.tool()
    async def look(at: str) -> str:
        return f"{at} {TEXT}"

    hub.agent("b", resumable=True)(repeat)

    @hub.agent("a", resumable=True, may_call=["b"], tools=["look"])
    async def a(brief: Brief) -> Any:
        results = [await brief.delegate("b", objective=TEXT, input=JSON), await brief.use("look", at=TEXT)]
        stopped.set()
        await asyncio.Event().wait()
        return results

    async with watch.open(hub):
        task = asyncio.create_task(watch.ask(hub, "a", TEXT, input=JSON))
        await stopped.wait()
        await watch.look(hub)
        assert rows(watch.folder, "SELECT count(*) FROM journal") == [(2,)]
        assert watch.leaks() == {}
    await asyncio.wait({task})


# ── agents in processes of their own ──────────────────────────────────────────────────────────────────────────────────


def apart_raises(brief: Brief) -> None:
    raise ValueError(TEXT) from KeyError(TEXT)


def apart_refuses(brief: Brief) -> None:
    raise RemitError(FAULT)


def apart_mumbles(brief: Brief) -> Any:
    return {TEXT: object()}


def apart_mistypes(brief: Brief) -> Any:
    return Answer(TEXT, confidence=7, summary=JSON)  # pyright: ignore[reportArgumentType]


async def apart_asks(brief: Brief) -> Any:
    brief.progress(TEXT, partial=Answer(JSON, summary=TEXT))
    responses: list[Any] = [await brief.delegate("b", objective=TEXT, input=JSON, handoff=SAID)]
    responses.append(await brief.delegate("b", objective=TEXT, max_tokens=TEXT))  # pyright: ignore[reportArgumentType]
    responses.append(await brief.delegate("nobody", objective=TEXT, input=JSON))
    for tool in ("fails", "missing"):
        with suppress(RemitError):
            await brief.use(tool, text=TEXT)
    return [encode(each).decode() for each in responses]


async def apart_speaks_out_of_turn(brief: Brief) -> Any:
    """Say on the channel itself what no brief would: a call with a field that no call has."""
    from remit_cli.processes.channel import DelegateFrame, raw

    await brief._backend._wish(DelegateFrame(number=77, call=raw({TEXT: 1})), object)  # pyright: ignore


def apart_dies(brief: Brief) -> None:
    import os

    os._exit(3)


# HOLE: `log.exception` in agents/process.py shows what a process said on the channel, raw.
@path
async def _agents_in_processes(watch: Watch) -> None:
    hub = watch.hub()

    @hub.tool()
    async def fails(text: str) -> str:
        raise ValueError(text)

    hub.agent("b")(repeat)
    functions = (
        apart_raises,
        apart_refuses,
        apart_mumbles,
        apart_mistypes,
        apart_asks,
        apart_speaks_out_of_turn,
        apart_dies,
    )
    for function in functions:
        hub.agent(function.__name__, isolation="process", may_call=["b"], tools=["fails"])(function)

    async with watch.open(hub):
        for function in functions:
            response = await watch.ask(hub, function.__name__, TEXT, input=JSON)
            assert response.ok is (function is apart_asks), response


# ── the search ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PATHS)
async def test_no_canary_is_in_anything_that_was_written(
    name: str, watch: Watch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """X12: files, log at DEBUG, events, records, runs, questions, faults, spans and figures hold tokens only."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])  # for those that are imported by their processes
    await PATHS[name](watch)
    out, err = capfd.readouterr()
    watch.written["stdout"], watch.written["stderr"] = out, err
    assert "records" in watch.written
    assert any(place.startswith("hub.db-wal") for place in watch.written)
    assert (len(watch.collector.spans) > 0, len(watch.collector.metrics) > 0) == (True, True)
    assert watch.leaks() == {}


async def test_the_spans_that_are_searched_hold_what_was_said(watch: Watch) -> None:
    """Else the search through them would prove nothing."""
    await PATHS["what an agent says to another"](watch)
    spans = watch.written["spans"], watch.written["spans without content"]
    # What a caller gives as its reason is part of every span (C9); what it asks for is not.
    assert ["[EMAIL:" in str(each) for each in spans] == [True, True]
    assert ["gen_ai.input.messages" in str(each) for each in spans] == [True, False]


# ── digests ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(folder / "hub.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(query))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    finally:
        connection.close()


async def test_no_digest_in_the_file_can_be_compared_with_a_guess(watch: Watch) -> None:
    """X12: whoever has the file and guesses what was said cannot find out whether that is so."""
    requests: list[Request] = []

    def listen(request: Request, facts: Facts) -> Verdict:
        requests.append(request)
        return Ask(TEXT) if request.target == "b" else ALLOW

    hub = watch.hub(guards=[listen], approver=agrees)
    hub.agent("b", resumable=True)(repeat)
    replies: dict[str, str] = {}

    @hub.agent("a", resumable=True, may_call=["b"])
    async def a(brief: Brief) -> Any:
        replies["reply"] = str((await brief.delegate("b", objective=TEXT, input=TEXT)).result)
        return TEXT

    async with watch.open(hub):
        response = await watch.ask(hub, "a", TEXT, input=JSON, request_id="1")
    assert response.result == TEXT
    schema = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    tables = [name for (name,) in rows(watch.folder, schema)]
    cells = [str(cell).encode() if not isinstance(cell, bytes) else cell
             for table in tables for row in rows(watch.folder, f"SELECT * FROM {table}") for cell in row]  # fmt: skip
    guesses = [TEXT, json.dumps(TEXT), *CANARIES.values()]
    contents = [each.encode() for each in guesses] + [encode(each) for each in (TEXT, JSON, *requests)]
    for request in requests:
        contents += [encode(request.objective), encode(request.input)]
        contents.append(encode((request.target, request.objective, request.input, request.capability)))
    digests = [digest(request) for request in requests]
    digests += [
        hashlib.new(name, content).digest()
        for content in contents
        for name in ("sha256", "sha1", "md5", "sha512", "blake2b", "blake2s", "sha3_256")
    ]
    digests += [hashlib.blake2b(content, digest_size=size).digest() for content in contents for size in (8, 16, 32)]
    written = b"\0".join(cells)
    for each in digests:
        assert each[:8] not in written
        assert each.hex()[:8].encode() not in written


async def agrees(question: Question) -> bool:
    return True
