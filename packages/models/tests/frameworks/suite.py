"""What every adapter of a framework is tested for, beyond what every agent is: with real agents and scripted models.

A framework's own model for tests asks a `Script` what to do, so that all of them do the same.
"""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from planted import add_server, planted, sentence
from remit import (
    Answer,
    Artifact,
    Brief,
    Capability,
    Code,
    Decision,
    File,
    Handoff,
    Hub,
    Question,
    Response,
    Source,
    Status,
    Usage,
)
from remit.policy.budget import estimate
from remit.policy.redaction import TOKEN
from remit.policy.verdict import Guard
from remit.ports import Approver
from remit.protocol.errors import RemitError, fault
from remit.protocol.records import ToolUse
from remit_cli import Rule, guard_of
from remit_models.frameworks.bounds import MAX_MODEL_CALLS
from remit_testing.agents import (
    ARGUMENTS,
    COMPLETION,
    CRASH,
    ERRAND,
    HELPED,
    HELPER,
    OWN_FOUND,
    OWN_TOOL,
    PIECES,
    PROMPT,
    TESTED,
    TOOL,
    AgentConformance,
    Behaviour,
)
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

HAS_MCP = False
with suppress(ImportError):  # CrewAI asks for an earlier version of the package
    HAS_MCP = bool(import_module("remit_models.mcp.connection"))

SHELVES = 5
CUT_RUNS = 66
FILLER = "The shelf is long, and most of what stands on it is of no use to anybody who looks for tea. " * 4

ASKS_HELPER = {"agent_name": HELPER, "task": ERRAND}

USES = {
    "own tool": ("own_tool", {}),
    "tool": (TOOL, ARGUMENTS),
    "failure": ("fall", {}),
    "server": ("shop_customers", {}),
    "answer": ("sub_agent", {"agent_name": HELPER, "task": ERRAND}),
}

GIVEN = Source(owner_scope="public", source_id="handbook", relevance=0.9)


async def ask(
    agent: object,
    text: str = "Make tea",
    guards: Sequence[Guard] = (),
    approver: Approver | None = None,
    **options: Any,
) -> Response:
    """Ask an agent of a framework, which may call a helper."""
    hub = Hub(store=MemoryStore(), guards=guards, approver=approver)

    @hub.agent(HELPER)
    async def helper(brief: Any) -> str:
        return HELPED

    hub.add("tea", agent, may_call=[HELPER])
    async with hub:
        return await hub.ask("tea", text, user="u-1", **options)


def refused(response: Response) -> str:
    """Return why a tool was refused."""
    assert response.fault is not None
    assert response.fault.code is Code.TOOL_NOT_ALLOWED
    return response.fault.message


class Thing(BaseModel):
    """An artifact, as the output of an agent may declare it."""

    type: str
    value: str
    label: str


class Reply(BaseModel):
    """An output with the fields of an answer."""

    answer: str
    summary: str
    confidence: float
    sources: list[str]
    facts: list[str]
    artifacts: list[Thing]
    follow_up: bool


class Cups(BaseModel):
    """An output of another kind, though one of its fields is called as one of an answer's."""

    answer: str
    count: int


SAID = Reply(
    answer="Seven cups.",
    summary="Seven.",
    confidence=0.8,
    sources=["handbook", "shelf-2"],
    facts=["The cups are on the shelf."],
    artifacts=[Thing(type="id", value="shelf-2", label="shelf")],
    follow_up=True,
)
MEANT = Answer(
    "Seven cups.",
    summary="Seven.",
    confidence=0.8,
    sources=(GIVEN, Source(owner_scope="u-1", source_id="shelf-2")),
    new_facts=("The cups are on the shelf.",),
    artifacts=(Artifact(type="id", value="shelf-2", label="shelf"),),
    requires_followup=True,
)


@dataclass(frozen=True)
class Seen:
    """What a model is given in one call."""

    text: str
    """Everything that it may read, instructions included."""
    tool_results: Sequence[str] = ()
    """The results of the tools that it called last."""
    tools: Sequence[str] = ()
    max_tokens: int | None = None


class TooManyError(Exception):
    """What a provider's client raises for HTTP 429."""

    status_code = 429
    response = SimpleNamespace(status_code=429, headers={"retry-after": "2"})


@dataclass(frozen=True)
class Say:
    """The model answers."""

    pieces: Sequence[str]
    usage: tuple[int, int] | None = (PROMPT, COMPLETION)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Use:
    """The model wants a tool to be used."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    usage: tuple[int, int] | None = (PROMPT, COMPLETION)


Script = Callable[[Seen], Awaitable[Say | Use]]


def say(text: str) -> Script:
    """Answer the same, whatever was asked."""

    async def script(seen: Seen) -> Say:
        return Say([text])

    return script


def use_once(tool: str, arguments: dict[str, Any]) -> Script:
    """Use a tool, and answer with what came of it."""

    async def script(seen: Seen) -> Say | Use:
        return Say([" ".join(seen.tool_results)]) if seen.tool_results else Use(tool, arguments)

    return script


YES, NO = Decision(agreed=True, by="ann"), Decision(agreed=False, by="ann", reason="too much")
# What a person decides about a payment of 500, and what is paid then.
DECISIONS = ((YES, [500]), (Decision(agreed=True, by="ann", edits={"input": {"amount": 3}}), [3]), (NO, []))

Maker = Callable[[Script, Sequence[Callable[..., Any]]], Any]


@dataclass(frozen=True)
class Payment:
    """What came of a run whose model calls the tool `pay`."""

    response: Response
    ledger: list[int]
    questions: list[Question]
    uses: list[ToolUse]

    @property
    def asked(self) -> list[tuple[str, str, object]]:
        return [(each.text, each.request.target, each.request.input) for each in self.questions]


class FrameworkConformance(AgentConformance):
    """The same for every framework; a subclass makes its agent, and says what cannot be held to."""

    most_estimated_prompt = 20
    """The most tokens that a task of eight words may be estimated at, with what the framework adds."""
    most_estimated_output = 12
    """The same for an answer of four words."""
    no_cap = ""
    """Why what a model call may write cannot be limited for one run."""
    no_last_answer = ""
    """Why its model is not called once more at a limit."""
    reads_clear = ""
    """Why its model reads what its own tools find as it is."""
    no_clash = ""
    """Why the agent's tools and the hub's may have the same name."""
    ends_loops_itself = ""
    """Why a model that gets nowhere is ended by the framework."""
    attempts = 1
    """How often the framework begins anew when its model fails."""
    swallows_tool_errors = False
    """Whether the framework tells its model when a tool fails, and goes on."""

    no_edits = ""
    """Why its tools do not take the arguments that a person edited."""
    no_questions = ""
    """Why its author cannot say that the use of a tool has to be approved."""
    no_typed_output = ""
    """Why the agent cannot be made to answer in a form of its own."""

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        """Return an agent of the framework, with a model that follows the script and these tools of its own."""
        raise NotImplementedError

    def make_typed(self, answer: BaseModel) -> Any:
        """Return an agent whose output is of the type of *answer*, and whose model says that."""
        raise NotImplementedError

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        """Return an agent with this tool of its own, each use of which its author wants approved."""
        raise NotImplementedError

    def state_of(self, agent: Any) -> object:
        """Return what must be the same after runs as before them."""
        raise NotImplementedError

    # ── behaviours ────────────────────────────────────────────────────────────────────────────────────────────────────

    def agent(self, behaviour: Behaviour) -> object:
        return self.make(self.script_of(behaviour), [self.tool_of_its_own()])

    def tool_of_its_own(self) -> Callable[..., Any]:
        def own_tool() -> str:
            """Look in the drawer."""
            return self.own_tool()

        return own_tool

    def some_tool(self) -> Use:
        return Use(OWN_TOOL) if self.no_tools else Use(TOOL, ARGUMENTS)

    async def hang(self) -> None:
        self.hangs()
        await asyncio.Event().wait()

    def script_of(self, behaviour: Behaviour) -> Script:
        async def script(seen: Seen) -> Say | Use:
            match behaviour:
                case Behaviour.ANSWERS:
                    return Say([seen.text])
                case Behaviour.STREAMS:
                    return Say(PIECES)
                case Behaviour.DELEGATES if not seen.tool_results:
                    return Use("sub_agent", ASKS_HELPER)
                case Behaviour.USES_TOOL if not seen.tool_results:
                    return Use(TOOL, ARGUMENTS)
                case Behaviour.USES_OWN_TOOL if not seen.tool_results:
                    return Use(OWN_TOOL)
                case Behaviour.SPENDS_AND_HANGS if not seen.tool_results:
                    return self.some_tool()
                case Behaviour.LOOPS:
                    return self.some_tool()
                case Behaviour.HANGS | Behaviour.SPENDS_AND_HANGS:
                    await self.hang()
                case Behaviour.CRASHES:
                    raise RuntimeError(CRASH)
                case _:
                    pass
            return Say([" ".join(seen.tool_results) or "Something."])

        return script

    # ── what a model is shown ─────────────────────────────────────────────────────────────────────────────────────────

    async def test_the_instructions_of_the_agent_and_of_the_team_both_reach_its_model(self) -> None:
        answered = await self.ask_in_hub(
            self.make(self.script_of(Behaviour.ANSWERS), [], instructions="You are a tea master."),
            prompt="Answer in verse.",
        )
        assert answered.ok, answered.fault
        assert "You are a tea master." in answered.unwrap()
        assert "Answer in verse." in answered.unwrap()

    async def test_its_own_instructions_are_there_also_when_there_is_a_history(self) -> None:
        self._unless(self.no_history)
        hub = self.hub()
        hub.add(TESTED, self.make(self.script_of(Behaviour.ANSWERS), [], instructions="You are a tea master."))
        async with hub:
            first = await hub.ask(TESTED, "One lump.", user="u-1")
            second = await hub.ask(TESTED, "How many?", user="u-1", session=first.session)
        assert "You are a tea master." in second.unwrap()
        assert "One lump." in second.unwrap()

    async def test_the_hubs_tools_are_tools_of_the_framework_beside_its_own(self) -> None:
        self._unless(self.no_tools)
        seen: list[Seen] = []
        await self.ask_with(self.watched(say("Yes."), seen))
        assert sorted(seen[0].tools) == sorted([OWN_TOOL, TOOL, "sub_agent"])

    async def test_its_model_sees_tokens_and_the_hubs_tool_gets_values(self) -> None:
        self._unless(self.no_tools)
        email, phone, shown, given = "ada@example.org", "+1 415-555-2671", list[Seen](), list[str]()

        async def script(seen: Seen) -> Say | Use:
            shown.append(seen)
            if seen.tool_results:
                return Say([" ".join(seen.tool_results)])
            return Use(TOOL, {"key": next(match[0] for match in TOKEN.finditer(seen.text))})

        hub = self.hub()

        @hub.tool(TOOL, sees=["EMAIL"])
        async def look_up(key: str) -> str:  # pyright: ignore[reportUnusedFunction]
            given.append(key)
            return f"{key} has {phone}"

        hub.add(TESTED, self.make(script, []), tools=[TOOL])
        async with hub:
            response = await hub.ask(TESTED, f"Who is {email}?", user="u-1")
        assert response.ok, response.fault
        assert (given, response.result) == ([email], f"{email} has {phone}")
        assert len(shown) > 1
        assert not any(raw in repr(shown) for raw in (email, phone))

    async def test_its_model_is_not_shown_what_the_remit_forbids(self) -> None:
        self._unless(self.no_tools or self.refuses_restriction)
        seen: list[Seen] = []
        await self.ask_with(self.watched(say("Yes."), seen), tools=(TOOL,), may_delegate=False)
        assert [list(each.tools) for each in seen] == [[TOOL]]

    async def test_one_of_its_own_tools_can_be_allowed_by_name(self) -> None:
        self._unless(self.refuses_restriction)
        response = await self.ask_with(use_once(OWN_TOOL, {}), tools=(OWN_TOOL,))
        assert response.ok, response.fault
        assert OWN_FOUND in response.result

    async def test_a_result_with_a_schema_is_asked_for_and_read_as_json(self) -> None:
        seen: list[Seen] = []
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        script = self.watched(say('```json\n{"count": 7}\n```'), seen)
        hub = self.hub()
        hub.add(TESTED, self.make(script, []), capabilities=[Capability(code="COUNT", result_schema=schema)])
        async with hub:
            response = await hub.ask(TESTED, "Count", user="u-1", capability="COUNT")
        assert response.unwrap() == {"count": 7}
        assert '"count"' in seen[0].text

    async def test_references_and_hints_reach_its_model(self) -> None:
        """X1: handoff_data.references and context_hints."""
        seen: list[Seen] = []
        mine = Source(owner_scope="u-1", source_id="shelf-2")
        handoff = Handoff(references=(GIVEN, mine))
        await self.reply_of(
            self.make(self.watched(say("Seven."), seen), []), handoff=handoff, hints=("kitchen", "blue ones")
        )
        assert "References:\n- handbook (relevance 0.9)\n- shelf-2\nHints: kitchen; blue ones" in seen[0].text

    # ── what it gives back ────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_typed_output_with_the_fields_of_an_answer_is_one(self) -> None:
        """X2: summary, confidence, sources, facts, artifacts, follow-up."""
        self._unless(self.no_typed_output)
        reply = await self.reply_of(self.make_typed(SAID), handoff=Handoff(references=(GIVEN,)))
        assert reply.ok, reply.fault
        answer = Answer(
            reply.result,
            summary=reply.summary,
            confidence=reply.confidence,
            sources=reply.sources,
            new_facts=reply.new_facts,
            artifacts=reply.artifacts,
            requires_followup=reply.requires_followup,
            warnings=reply.warnings,
        )
        assert answer == MEANT

    async def test_another_typed_output_is_the_result_whole(self) -> None:
        self._unless(self.no_typed_output)
        reply = await self.reply_of(self.make_typed(Cups(answer="on the shelf", count=7)))
        assert reply.unwrap() == {"answer": "on the shelf", "count": 7}

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_model_call_may_write_no_more_than_is_left(self) -> None:
        self._unless(self.no_cap)
        seen: list[Seen] = []
        await self.ask_with(self.watched(use_once(OWN_TOOL, {}), seen), max_tokens=4_000)
        first, second = (each.max_tokens or 0 for each in seen)
        assert 2_500 < first < 4_000
        assert 2_000 < second < first - COMPLETION

    async def test_a_large_budget_does_not_limit_what_a_model_writes(self) -> None:
        """Providers refuse a call that asks for more than their model can write."""
        self._unless(self.no_cap)
        seen: list[Seen] = []
        await self.ask_with(self.watched(say("Yes."), seen), max_tokens=50_000)
        assert [each.max_tokens for each in seen] == [None]

    async def test_what_a_model_does_not_report_is_estimated(self) -> None:
        async def silent(seen: Seen) -> Say:
            return Say(["Seven cups, I believe."], usage=None)

        response = await self.ask_with(silent)
        assert response.ok, response.fault
        assert response.usage.estimated
        assert response.usage.prompt > 0
        assert 0 < response.usage.completion <= self.most_estimated_output

    async def test_what_was_used_before_a_failure_is_settled(self) -> None:
        async def fails(seen: Seen) -> Use:
            if seen.tool_results:
                raise RuntimeError(CRASH)
            return self.some_tool()

        response = await self.ask_with(fails)
        assert response.fault is not None
        assert CRASH in response.fault.message
        if not self.no_usage:
            assert response.usage.prompt == PROMPT * self.attempts
            assert response.usage.completion == COMPLETION * self.attempts

    async def test_a_model_call_that_is_cut_off_is_metered_by_estimate(self) -> None:
        """What was asked has been paid for, whoever ends the call: a deadline or a person."""
        self._unless(self.no_usage)
        self._loop = asyncio.get_running_loop()
        hub: Hub = self.hub()
        hub.add(TESTED, self.make(self.script_of(Behaviour.HANGS), []))
        async with hub:
            asking = asyncio.create_task(hub.ask(TESTED, "Count the cups on the shelf, one by one", user="u-1"))
            await self._until_it_hangs()
            [run] = await hub.store.runs()
            assert hub.cancel(run.run)
            response = await self._ended(asking)
        assert response.usage.estimated
        assert 5 < response.usage.prompt <= self.most_estimated_prompt

    async def test_a_provider_that_answers_429_is_a_rate_limit(self) -> None:
        async def refused(seen: Seen) -> Say:
            raise TooManyError

        response = await self.ask_with(refused, deadline_ms=50_000)
        assert response.fault is not None
        assert (response.fault.code, response.fault.retry_after_ms) == (Code.RATE_LIMITED, 2_000), response.fault

    async def test_a_model_that_gets_nowhere_is_stopped(self) -> None:
        seen: list[Seen] = []
        response = await self.ask_with(
            self.watched(self.script_of(Behaviour.LOOPS), seen), max_tokens=1_000_000, deadline_ms=50_000
        )
        if self.ends_loops_itself:
            assert 1 < len(seen) < MAX_MODEL_CALLS, len(seen)
        assert response.status is Status.FAILED
        assert response.fault is not None
        assert response.fault.code is Code.DELEGATION_FAILED, response.fault
        # Where a last answer is possible, it is asked for, too.
        assert len(seen) == MAX_MODEL_CALLS + (not self.no_last_answer) or self.ends_loops_itself

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_what_must_end_a_run_is_not_told_to_the_model_instead(self) -> None:
        self._unless(self.no_tools)
        seen: list[Seen] = []
        hub = self.hub()

        @hub.tool(TOOL)
        async def look_up(key: str) -> str:
            raise RemitError(fault(Code.STORE_UNAVAILABLE, "the tin is locked"))

        hub.add(TESTED, self.make(self.watched(use_once(TOOL, ARGUMENTS), seen), []), tools=[TOOL])
        async with hub:
            response = await hub.ask(TESTED, "Look", user="u-1")
        assert response.fault is not None
        assert (response.fault.code, response.fault.message) == (Code.STORE_UNAVAILABLE, "the tin is locked")
        assert len(seen) == 1

    async def test_what_is_wrong_with_a_tool_call_is_told_to_the_model(self) -> None:
        self._unless(self.no_tools)
        response = await self.ask_with(use_once(TOOL, {"lock": "tea"}))
        assert response.ok, response.fault
        assert Code.INPUT_VALIDATION_FAILED in response.result

    async def test_a_name_that_is_no_tools_is_told_to_the_model(self) -> None:
        """One bad call does not end a run: the model can correct itself."""
        seen: list[Seen] = []

        async def script(given: Seen) -> Say | Use:
            return Say(["Then not."]) if len(seen) > 1 else Use("make_coffee")

        response = await self.ask_with(self.watched(script, seen))
        assert response.unwrap() == "Then not."
        assert len(seen) == 2
        text = " ".join((*seen[1].tool_results, seen[1].text))
        assert "make_coffee" in text or "not found" in text
        assert "make_coffee" not in response.tool_calls

    async def test_at_the_limit_of_tokens_it_answers_once_more_with_what_it_found(self) -> None:
        self._unless(self.no_last_answer or self.no_own_tools)
        email, calls = "ada@example.org", list[Seen]()

        def own_tool() -> str:
            """Look in the drawer."""
            return f"{OWN_FOUND} It is of {email}."

        async def script(seen: Seen) -> Say | Use:
            calls.append(seen)
            return Use(OWN_TOOL, usage=(400, 40)) if seen.tools else Say(["What there is."], usage=(300, 20))

        hub = self.hub()
        hub.add(TESTED, self.make(script, [own_tool]))
        async with hub:
            response = await hub.ask(TESTED, "Look", user="u-1", max_tokens=3_000)
        assert (response.status, response.result) == (Status.PARTIAL, "What there is.")
        assert response.unfinished == ("its tokens were nearly spent, and it answered with what it had",)
        assert OWN_FOUND in calls[-1].text
        assert email not in calls[-1].text
        assert (response.usage.total <= 3_000, response.usage.overrun) == (True, 0)
        assert response.usage.total == 440 * (len(calls) - 1) + 320

    async def test_of_runs_that_a_limit_cuts_nearly_all_have_an_answer(self) -> None:
        """Limits of tokens, money and time are drawn from a third to nearly all of what the whole run takes."""
        self._unless(self.no_last_answer or self.no_own_tools)
        draws, spent, usable, clock = random.Random(7), [0], list[bool](), ManualClock()
        loop, seconds = asyncio.get_running_loop(), [0.0]

        def own_tool(shelf: int) -> str:
            """Look at a shelf."""
            return f"On shelf {shelf}: tea-{shelf}. {FILLER}"

        async def script(seen: Seen) -> Say | Use:
            loop.call_soon_threadsafe(clock.advance, seconds[0])
            found, prompt = sorted(set(re.findall(r"tea-\d+", seen.text))), estimate(seen.text) + 100
            goes_on = bool(seen.tools) and len(found) < SHELVES
            words = f"The shelves have {', '.join(found)}. That is what can be told of them.".split()
            # A word of this text is no more than two tokens.
            words = words if seen.max_tokens is None else words[: seen.max_tokens // 2]
            usage = prompt, 20 if goes_on else 2 * len(words)
            spent[0] += sum(usage)
            return Use(OWN_TOOL, {"shelf": len(found)}, usage) if goes_on else Say([" ".join(words)], usage)

        def prices(agent: str, model: str, usage: Usage) -> int:
            return usage.prompt + 4 * usage.completion

        async def run(**options: Any) -> Response:
            spent[0] = 0
            response = await hub.ask(TESTED, "Look", user="u-1", **options)
            assert (response.usage.total, response.usage.overrun) == (spent[0], 0), options
            return response

        hub = self.hub(prices=prices, clock=clock)
        hub.add(TESTED, self.make(script, [own_tool]))
        async with hub:
            whole = await run()
            assert (whole.status, len(whole.tool_calls)) == (Status.SUCCESS, SHELVES)
            for number in range(CUT_RUNS):
                share, of = draws.uniform(0.3, 0.9), ("tokens", "money", "time")[number % 3]
                seconds[0] = draws.uniform(0.5, 3) if of == "time" else 0.0
                tokens, cost = round(whole.usage.total * share), round(whole.usage.cost * share)
                time_ms = round(seconds[0] * draws.uniform(2.2, SHELVES) * 1_000)  # for two calls at least
                options = {
                    "tokens": {"max_tokens": tokens},
                    "money": {"max_cost": cost},
                    "time": {"deadline_ms": time_ms},
                }
                response = await run(**options[of])
                assert response.usage.total <= tokens or of != "tokens"
                assert response.usage.cost <= cost or of != "money"
                usable.append(response.status is Status.PARTIAL and "tea-" in str(response.result))
        assert sum(usable) >= 0.95 * CUT_RUNS, usable

    async def test_what_it_found_before_its_tokens_were_spent_is_in_its_answer(self) -> None:
        self._unless(self.no_own_tools)

        async def script(seen: Seen) -> Say | Use:
            return Use(OWN_TOOL, usage=(400, 40)) if seen.tools else Say([OWN_FOUND], usage=(300, 20))

        def own_tool() -> str:
            """Look in the drawer."""
            return OWN_FOUND

        hub = self.hub()
        hub.add(TESTED, self.make(script, [own_tool]))
        async with hub:
            response = await hub.ask(TESTED, "Look", user="u-1", max_tokens=2_000)
        # AutoGen's assistant uses its tools once, and answers with what they found before anything runs out.
        assert response.status in (Status.PARTIAL, Status.FAILED, Status.SUCCESS), response.status
        assert OWN_FOUND in str(response.result), response.fault

    async def test_its_model_reads_what_a_tool_of_its_own_finds_with_tokens(self) -> None:
        self._unless(self.no_own_tools or self.reads_clear)
        planted = ["ada@example.org", "4111 1111 1111 1111", "AKIAIOSFODNN7EXAMPLX"]
        seen: list[Seen] = []

        def own_tool() -> str:
            """Look in the drawer."""
            return f"{OWN_FOUND} It is of {' and '.join(planted)}."

        hub = self.hub()
        hub.add(TESTED, self.make(self.watched(use_once(OWN_TOOL, {}), seen), [own_tool]))
        async with hub:
            (await hub.ask(TESTED, "Look", user="u-1")).unwrap()
        read = f"{seen[-1].text} {seen[-1].tool_results}"
        assert OWN_FOUND in read
        assert [each for each in planted if each in read] == []

    async def test_none_of_500_planted_values_is_in_a_prompt(self, tmp_path: Path) -> None:
        """However they come: in the request, files, results and failures of tools, MCP results, answers and forms."""
        ways = ["request", "file", *(() if self.reads_clear else ("own tool",))]
        ways += [] if self.no_tools else ["tool", "failure", *(["server"] if HAS_MCP else [])]
        ways += [] if self.no_delegation else ["answer", "form"]
        values = planted()
        told = {way: f"By {way}: {sentence(values[place :: len(ways)])}" for place, way in enumerate(ways)}
        seen, uses = list[Seen](), [Use(*USES[way]) for way in ways if way in USES]

        async def script(given: Seen) -> Say | Use:
            seen.append(given)
            return uses.pop(0) if uses else Say(["done"])

        async def fills(_: Question) -> Decision:
            return Decision(agreed=True, by="ann", edits={"input": {"note": told["form"]}})

        hub = self.hub(approver=fills)

        @hub.tool(TOOL)
        async def look_up(key: str) -> list[dict[str, str]]:  # pyright: ignore[reportUnusedFunction]
            return [{"note": told["tool"]}]

        @hub.tool("fall")
        async def fall() -> None:  # pyright: ignore[reportUnusedFunction]
            raise RemitError(fault(Code.DELEGATION_FAILED, told["failure"]))

        @hub.agent(HELPER)
        async def helper(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
            form = await brief.fill("What is it?", {"type": "object", "properties": {"note": {"type": "string"}}})
            return f"{told['answer']} {(form or {}).get('note')}"

        def own_tool() -> str:
            """Look in the drawer."""
            return told["own tool"]

        options: dict[str, Any] = {}
        if not self.no_tools:
            options = {"tools": [TOOL, "fall", *(["shop.customers"] if HAS_MCP else [])]}
        if "server" in told:
            add_server(hub, told["server"], tmp_path)
        hub.add(TESTED, self.make(script, [] if self.reads_clear else [own_tool]), may_call=[HELPER], **options)
        file = File(name="notes.txt", media_type="text/plain", data=told["file"].encode())
        async with hub:
            response = await hub.ask(TESTED, "Look", user="u-1", input=told["request"], files=[file])
        assert response.ok, response.fault
        read = " ".join(f"{each.text} {each.tool_results}" for each in seen)
        assert [value for value in values if value in read] == []
        unread = [way for way in ways if f"By {way}" not in read and way != "file"]
        assert unread == [], "it never reached the model"

    async def test_a_tool_of_its_own_is_recorded_with_its_arguments_and_its_failure(self) -> None:
        self._unless(self.no_own_tools)

        def own_tool(drawer: str) -> str:
            """Look in a drawer."""
            raise ValueError(f"the {drawer} drawer is stuck")

        hub = self.hub()
        hub.add(TESTED, self.make(use_once(OWN_TOOL, {"drawer": "upper"}), [own_tool]))
        async with hub:
            response = await hub.ask(TESTED, "Look", user="u-1")
            records = await hub.store.records(run=response.run)
        assert response.ok == self.swallows_tool_errors
        uses = [record.body for record in records if isinstance(record.body, ToolUse)]
        assert [use.begun for use in uses] == [True, False]
        assert (uses[0].tool, uses[0].input) == (OWN_TOOL, {"drawer": "upper"})
        assert uses[-1].fault is not None
        assert "the upper drawer is stuck" in uses[-1].fault.message

    async def test_a_rule_refuses_a_tool_of_its_own_by_its_arguments_before_it_runs(self) -> None:
        rules = [Rule(then="refuse", tool="pay", where={"amount": "> 100"}, say="Not that much.")]
        paid = await self.pay(self.make, {"amount": 500}, guards=[guard_of(rules)])
        assert (paid.ledger, paid.questions) == ([], [])
        assert "Not that much." in paid.response.unwrap()
        [use] = paid.uses
        assert use.fault is not None
        assert (use.input, use.fault.code) == ({"amount": 500}, Code.PERMISSION_DENIED)
        assert paid.response.tool_calls == ()
        paid = await self.pay(self.make, {"amount": 50}, guards=[guard_of(rules)])
        assert (paid.ledger, "paid 50" in paid.response.unwrap()) == ([50], True)

    async def test_its_authors_wish_for_approval_becomes_a_question_and_it_goes_on(self) -> None:
        self._unless(self.no_questions)
        for decision, ledger in DECISIONS:
            paid = await self.pay(self.asking, {"amount": 500}, decision)
            assert paid.asked == [(f"May {TESTED} use pay?", "pay", {"amount": 500})]
            assert (paid.ledger, paid.response.ok) == (ledger, True), paid.response.fault
            assert ("too much" in paid.response.result) == (decision is NO)

    async def test_a_person_is_asked_once_if_a_rule_and_the_author_both_want_it(self) -> None:
        self._unless(self.no_questions)
        rules = [Rule(then="ask", tool="pay", say="May this be paid?")]
        paid = await self.pay(self.asking, {"amount": 500}, YES, guards=[guard_of(rules)])
        assert (len(paid.questions), paid.ledger) == (1, [500])

    async def test_a_tool_that_a_rule_refuses_asks_nobody(self) -> None:
        self._unless(self.no_questions)
        paid = await self.pay(self.asking, {"amount": 500}, YES, guards=[guard_of([Rule(then="refuse", tool="pay")])])
        assert (paid.questions, paid.ledger, paid.response.ok) == ([], [], True)

    async def test_two_tools_of_the_same_name_are_refused(self) -> None:
        self._unless(self.no_tools or self.no_clash)

        def look_up(key: str) -> str:
            """Look somewhere else."""
            return "elsewhere"

        response = await self.ask_in_hub(self.make(use_once(TOOL, ARGUMENTS), [look_up]), tools=[TOOL])
        assert response.fault is not None
        assert response.fault.code is Code.TEAM_INVALID
        assert f"`{TOOL}`" in response.fault.message

    async def test_cancelling_reaches_a_tool_of_its_own(self) -> None:
        self._unless(self.no_own_tools or self.no_stop)
        ended = asyncio.Event()

        async def own_tool() -> str:
            """Look for ever."""
            try:
                await self.hang()
            finally:
                ended.set()
            return ""

        await self.cancelled_while_it_hangs(self.make(use_once(OWN_TOOL, {}), [own_tool]))
        async with asyncio.timeout(5):
            await ended.wait()

    async def test_cancelling_reaches_a_delegation(self) -> None:
        self._unless(self.no_delegation)
        await self.cancelled_while_it_hangs(self.make(use_once("sub_agent", ASKS_HELPER), []))

    # ── many runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_twenty_runs_at_once_each_delegate_in_their_own_name(self) -> None:
        self._unless(self.no_delegation)
        users: list[str] = []
        hub = self.hub()

        @hub.agent(HELPER)
        async def helper(brief: Brief) -> str:
            users.append(brief.user)
            await asyncio.sleep(0.01)
            return f"{HELPED} For {brief.user}, at depth {brief.remit.depth}."

        agent = self.make(use_once("sub_agent", ASKS_HELPER), [self.tool_of_its_own()])
        before = self.state_of(agent)
        hub.add(TESTED, agent, may_call=[HELPER])
        async with hub, asyncio.TaskGroup() as group:
            tasks = {
                user: group.create_task(hub.ask(TESTED, f"Count for {user}", user=user))
                for user in (f"u-{number}" for number in range(20))
            }
        for user, task in tasks.items():
            assert f"{HELPED} For {user}, at depth 1." in json.dumps(task.result().unwrap())
        assert sorted(users) == sorted(tasks)
        assert self.state_of(agent) == before

    async def test_the_agent_is_the_same_after_a_run_as_before(self) -> None:
        agent = self.make(use_once(OWN_TOOL, {}), [self.tool_of_its_own()], instructions="Be brief.")
        before = self.state_of(agent)
        assert (await self.ask_in_hub(agent, tools=[TOOL])).ok
        assert self.state_of(agent) == before

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def watched(self, script: Script, seen: list[Seen]) -> Script:
        async def watching(given: Seen) -> Say | Use:
            seen.append(given)
            return await script(given)

        return watching

    async def ask_with(self, script: Script, **options: Any) -> Response:
        """Ask an agent that follows a script, beside the helper and the tool of the hub."""
        self.agent = lambda _: self.make(script, [self.tool_of_its_own()])
        async with self.opened(Behaviour.ANSWERS) as hub:
            return await hub.ask(TESTED, "Count the cups", user="u-1", **options)

    def asking(self, script: Script, tools: Sequence[Callable[..., Any]]) -> Any:
        return self.make_asking(script, tools[0])

    async def pay(
        self, make: Maker, arguments: dict[str, Any], decision: Decision | None = None, guards: Sequence[Guard] = ()
    ) -> "Payment":
        """Have a model call its tool `pay`, and a person who is asked decide."""
        ledger, questions = list[int](), list[Question]()

        def pay(amount: int) -> str:
            """Pay an amount."""
            ledger.append(amount)
            return f"paid {amount}"

        async def approver(question: Question) -> Decision | None:
            questions.append(question)
            return decision

        hub = self.hub(guards=guards, approver=approver)
        hub.add(TESTED, make(use_once("pay", arguments), [pay]))
        async with hub:
            response = await hub.ask(TESTED, "Pay", user="u-1")
            records = await hub.store.records(run=response.run)
        return Payment(response, ledger, questions, [each.body for each in records if isinstance(each.body, ToolUse)])

    async def reply_of(self, agent: object, **call: Any) -> Response:
        """Return what another agent gets back from the agent."""
        hub, replies = self.hub(), list[Response]()
        hub.add(TESTED, agent)

        @hub.agent("boss", may_call=[TESTED])
        async def boss(brief: Brief) -> str:
            replies.append(await brief.delegate(TESTED, objective="Count the cups", **call))
            return "done"

        async with hub:
            (await hub.ask("boss", "Go", user="u-1")).unwrap()
        return replies[0]

    async def ask_in_hub(self, agent: object, **options: Any) -> Response:
        hub = self.hub()

        @hub.tool(TOOL)
        async def look_up(key: str) -> str:
            return "in the tin"

        hub.add(TESTED, agent, **options)
        async with hub:
            return await hub.ask(TESTED, "Count the cups", user="u-1")

    async def cancelled_while_it_hangs(self, agent: object) -> None:
        self._loop = asyncio.get_running_loop()
        before = asyncio.all_tasks()
        hub: Hub = self.hub()
        hub.add(TESTED, agent, may_call=[HELPER])

        @hub.agent(HELPER)
        async def helper(brief: Brief) -> str:
            self.hangs()
            await asyncio.Event().wait()
            return ""

        async with hub:
            asking = asyncio.create_task(hub.ask(TESTED, "Look", user="u-1"))
            await self._until_it_hangs()
            [run] = await hub.store.runs()
            assert hub.cancel(run.run)
            response = await self._ended(asking)
        assert response.status is Status.CANCELLED
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=5)
        assert not left, f"these are left behind: {left}"
