"""Crews and agents of CrewAI in a hub."""

import asyncio
import itertools
import json
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of how it imports itself
    from crewai import Agent, BaseLLM, Crew, Process, Task
    from crewai.telemetry import Telemetry
    from crewai.tools import tool

from frameworks.suite import NO, YES, FrameworkConformance, Say, Script, Seen, Use, ask, say, use_once
from remit import Code, Decision, Hub, Question, Response, Status
from remit.protocol.records import Delta
from remit_testing.agents import COMPLETION, HELPER, PROMPT
from remit_testing.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore")  # and of much else that it does itself

NUMBERS = itertools.count()


class FollowsScript(BaseLLM):
    """A model that asks a script, in whichever thread CrewAI calls it."""

    script: Any

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 200_000  # of one that is not known, CrewAI gives long results of tools in parts

    def call(
        self, messages: Any, tools: Any = None, from_task: Any = None, from_agent: Any = None, **options: Any
    ) -> Any:
        step = asyncio.run(self.script(seen_by(messages, tools or ())))
        if step.usage:
            counts = {"prompt_tokens": step.usage[0], "completion_tokens": step.usage[1]}
            self._track_token_usage_internal({**counts, "total_tokens": sum(step.usage)})
        if isinstance(step, Use):
            function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
            return [{"id": f"call-{next(NUMBERS)}", "type": "function", "function": function}]
        for piece in step.pieces:
            self._emit_stream_chunk_event(chunk=piece, from_task=from_task, from_agent=from_agent)
        return step.text


def seen_by(messages: Any, tools: Sequence[Any]) -> Seen:
    last = messages[-1]
    return Seen(
        text="\n".join(str(each.get("content") or "") for each in messages),
        tool_results=[str(last["content"])] if last["role"] == "tool" else [],
        tools=[each["function"]["name"] for each in tools],
    )


def agent_of(script: Script, tools: Sequence[Any] = (), **options: Any) -> Agent:
    own = [tool(each.__name__)(each) if callable(each) else each for each in tools]
    model = FollowsScript(model="script", script=script)
    return Agent(**{"role": "tea master", "goal": "make tea", "backstory": ""} | options, llm=model, tools=own)


def crew_of(*agents: Agent, **options: Any) -> Crew:
    tasks = [Task(description="{task}", expected_output="an answer", agent=each) for each in agents]
    return Crew(agents=list(agents), tasks=tasks, **options)


class TestCrews(FrameworkConformance):
    most_estimated_prompt = 1_000  # its own prompts are much longer than the task
    most_estimated_output = 50
    no_questions = "CrewAI has no approvals of tools"
    no_last_answer = "its adapter does not call a model by itself"
    no_cap = "each provider's model has its own name for how long an answer may be"
    ends_loops_itself = "an agent's own `max_iter` does, and so do five calls of a tool that come to the same"
    no_stop = "what happens in a thread cannot be stopped from outside: it ends at its next model or tool call"
    attempts = 3
    swallows_tool_errors = True

    async def hang(self) -> None:
        self.hangs()
        self.released.wait(30)

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        agent = agent_of(script, tools)
        agent.backstory = instructions
        return crew_of(agent)

    def make_typed(self, answer: BaseModel) -> Any:
        agent = agent_of(say(answer.model_dump_json()))
        task = Task(description="{task}", expected_output="cups", agent=agent, output_pydantic=type(answer))
        return Crew(agents=[agent], tasks=[task])

    def state_of(self, agent: Any) -> object:
        return [(list(each.tools), each.llm, each.verbose) for each in agent.agents], [
            (each.description, list(each.tools)) for each in agent.tasks
        ]


class TestAgentsAlone(TestCrews):
    attempts = 1
    no_typed_output = "in which form it answers is said by a task"

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        agent = agent_of(script, tools)
        agent.backstory = instructions
        return agent

    def state_of(self, agent: Any) -> object:
        return list(agent.tools), agent.llm, agent.verbose


async def echo(given: Seen) -> Say:
    return Say([given.text])


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    agent = agent_of(say('{"count": 7, "where": ["shelf"]}'))
    task = Task(description="Count.", expected_output="cups", agent=agent, output_pydantic=Cups)
    response = await ask(Crew(agents=[agent], tasks=[task]))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_a_crew_that_asks_for_fields_gets_those_of_the_input() -> None:
    agent = agent_of(echo)
    task = Task(description="Brew {leaves}.", expected_output="tea", agent=agent)
    crew = Crew(agents=[agent], tasks=[task])
    answer = (await ask(crew, input={"leaves": "sencha {not a field}", "cups": 2})).unwrap()
    assert "Brew sencha {not a field}." in answer
    assert crew.tasks[0].description == "Brew {leaves}."


async def test_a_crew_that_asks_for_nothing_is_told_all_the_same() -> None:
    agent = agent_of(echo)
    crew = Crew(agents=[agent], tasks=[Task(description="Do it.", expected_output="tea", agent=agent)])
    assert "Make tea {with} milk" in (await ask(crew, "Make tea {with} milk")).unwrap()
    assert crew.tasks[0].description == "Do it."


async def test_only_the_answer_of_a_crew_is_heard_and_all_of_it_is_metered() -> None:
    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("tea", crew_of(agent_of(say("I look. ")), agent_of(say("Here it is. "), role="waiter")))
    async with hub:
        records = [record async for record in hub.stream("tea", "Make tea", user="u-1")]
    assert [record.body.text for record in records if isinstance(record.body, Delta)] == ["Here it is. "]
    assert records[-1].body.usage.total == 2 * (PROMPT + COMPLETION)


async def test_an_agent_of_a_subclass_is_known_too_and_says_what_it_is_for() -> None:
    class Mine(Agent):
        pass

    model = FollowsScript(model="script", script=say("yes"))
    hub = Hub(store=MemoryStore())
    hub.add("tea", Mine(role="Tea master", goal="Make tea", backstory="", llm=model))
    assert hub.cards["tea"].description == "Tea master: Make tea"


async def test_what_cannot_be_held_to_a_remit_is_refused() -> None:
    delegating = crew_of(agent_of(say("yes"), allow_delegation=True))
    managed = crew_of(agent_of(say("yes")), process=Process.hierarchical, manager_agent=agent_of(say("yes")))
    for crew, why in ((delegating, "`allow_delegation`"), (managed, "its manager")):
        response = await ask(crew, tools=[])
        assert response.fault is not None
        assert response.fault.code is Code.TOOL_NOT_ALLOWED
        assert why in response.fault.message


async def test_a_task_with_human_input_becomes_a_question_until_nothing_is_to_improve() -> None:
    questions: list[str] = []
    improve = Decision(agreed=True, by="ann", edits={"input": {"feedback": "Less milk."}})

    async def script(given: Seen) -> Say:
        return Say(["black tea" if "Less milk." in given.text else "white tea"])

    async def asked(*decisions: Decision) -> Response:
        left = list(decisions)
        questions.clear()

        async def approver(question: Question) -> Decision:
            questions.append(question.text)
            return left.pop(0)

        agent = agent_of(script)
        task = Task(description="Ask.", expected_output="tea", agent=agent, human_input=True)
        return await ask(Crew(agents=[agent], tasks=[task]), approver=approver)

    assert (await asked(YES)).unwrap() == "white tea"
    assert (await asked(improve, YES)).unwrap() == "black tea"
    assert questions == ["Is this answer good? white tea", "Is this answer good? black tea"]
    declined = (await asked(NO)).fault
    assert declined is not None
    assert (declined.code, "white tea" in declined.message) == (Code.APPROVAL_DECLINED, True)


async def test_crews_that_ask_crews_do_not_wait_for_each_others_threads() -> None:
    hub = Hub(store=MemoryStore())
    for number in range(3):
        asks = use_once("sub_agent", {"agent_name": f"crew-{number + 1}", "task": "go on", "allow_nested_calls": True})
        hub.add(f"crew-{number}", crew_of(agent_of(asks)), may_call=[f"crew-{number + 1}"])
    hub.add("crew-3", crew_of(agent_of(say("the last one"))))
    async with hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.ask("crew-0", f"Go {number}", user="u-1")) for number in range(12)]
    for task in tasks:
        assert "the last one" in task.result().unwrap()


async def test_a_thread_that_was_left_behind_ends_at_its_next_call() -> None:
    hanging, released, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop, seen = asyncio.get_running_loop(), list[Seen]()

    async def script(given: Seen) -> Say | Use:
        seen.append(given)
        return Say(given.tool_results) if given.tool_results else Use("wait_here")

    def wait_here() -> str:
        """Wait."""
        loop.call_soon_threadsafe(hanging.set)
        released.wait(10)
        ended.set()
        return "done"

    hub = Hub(store=MemoryStore())
    hub.add("tea", crew_of(agent_of(script, [wait_here])))
    async with hub:
        asking = asyncio.create_task(hub.ask("tea", "Wait", user="u-1"))
        await hanging.wait()
        [run] = await hub.store.runs()
        hub.cancel(run.run)
        assert (await asking).status is Status.CANCELLED
        released.set()
        await asyncio.to_thread(ended.wait, 10)
        while any(thread.name.startswith("remit-crewai") for thread in threading.enumerate()):
            await asyncio.sleep(0.01)
    assert len(seen) == 1


async def test_a_crew_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    (
        await ask(
            crew_of(
                agent_of(use_once("sub_agent", {"agent_name": HELPER, "task": "count"}), verbose=True), verbose=True
            )
        )
    ).unwrap()
    assert capfd.readouterr() == ("", "")


async def test_nothing_is_reported_to_crewai() -> None:
    (await ask(crew_of(agent_of(say("yes"))))).unwrap()
    assert not Telemetry()._should_execute_telemetry()


@pytest.mark.parametrize("alone", [True, False])
async def test_an_agent_that_reaches_its_limit_has_failed(alone: bool) -> None:
    """CrewAI would have its model say something, and call that the answer."""
    seen: list[Seen] = []

    async def looks_again(given: Seen) -> Say | Use:
        seen.append(given)
        return Use("look", {"place": f"drawer {len(seen)}"}) if given.tools else Say(["Enough."])

    def look(place: str) -> str:
        """Look somewhere."""
        return f"nothing in {place}"

    agent = agent_of(looks_again, [look], max_iter=3)
    response = await ask(agent if alone else crew_of(agent))
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED
    assert "`max_iter`" in response.fault.message
    assert len(seen) == 3
