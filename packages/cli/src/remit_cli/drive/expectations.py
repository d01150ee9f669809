"""What a case expects of a run, held against its answer and its calls."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, cast

from msgspec import UNSET

from remit.policy.budget import amounts
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Json, Response, Usage
from remit.protocol.records import Delegation, Record, ToolUse
from remit.runtime.run_tree import Node, ToolRun, Tree, delegations
from remit.runtime.schemas import misfits
from remit_cli.config.sections.cases import Expectation, ExpectedUse, Times, TimesRange
from remit_cli.config.values import duration_ms, millionths
from remit_cli.show.screen import cut, spell_ms

# As much of an answer as fits into a line about it.
_SHOWN = 80

AnswerCheck = Callable[[Response, list[Delegation]], object]
"""A team's own check: it returns false or a text if the answer or the calls are wrong, or raises an error."""


class AgentUse(NamedTuple):
    """A use of a tool, and the agent that used it."""

    agent: str
    tool: ToolRun

    @property
    def is_refused(self) -> bool:
        """Whether it never ran."""
        return self.tool.use.refused


class CaseRun:
    """What happened in one run of a case, over all of its turns."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.calls: list[Node] = []
        """The calls between agents, in their order."""
        self.delegations: list[Delegation] = []
        self.uses: list[AgentUse] = []

    def add(self, response: Response, records: Iterable[Record]) -> None:
        """Add a turn."""
        tree = Tree()
        for record in records:
            node = tree.feed(record)
            if isinstance(record.body, ToolUse) and not record.body.begun and node.last_tool is not None:
                self.uses.append(AgentUse(node.agent, node.last_tool))
        self.responses.append(response)
        nodes = [node for node in tree.nodes_in_order() if node.request is not None and node.request.origin != USER]
        self.calls += sorted(nodes, key=lambda each: each.first_seq)
        self.delegations += delegations(tree)

    @property
    def usage(self) -> Usage:
        """What all turns spent."""
        return sum((each.usage for each in self.responses), Usage())

    @property
    def duration_ms(self) -> int:
        """How long all turns took."""
        return sum(each.duration_ms for each in self.responses)

    @property
    def begun(self) -> list[Node]:
        """The calls that were not refused."""
        return [node for node in self.calls if not node.is_refused]


def failures(expect: Expectation, run: CaseRun, check: AnswerCheck | None) -> Iterator[str]:
    """Yield what a run has not done as expected, one sentence for each."""
    response = run.responses[-1]
    code = response.fault.code if response.fault else None
    if response.status is not expect.status or (expect.code is not None and code is not expect.code):
        wanted = f"{expect.status} ({expect.code})" if expect.code else expect.status
        why = f" ({code}: {cut(response.fault.message, _SHOWN)})" if response.fault else ""
        yield f"it ended as {response.status}{why}, not as {wanted}"
    yield from _of_answer(expect, response)
    yield from _of_calls(expect, run)
    yield from _of_tools(expect, run)
    yield from _of_spending(expect, run)
    if check is not None:
        try:
            verdict = check(response, run.delegations)
        except Exception as error:  # noqa: BLE001 - the team's own function; an assertion is how it may disagree
            verdict = str(error) if isinstance(error, AssertionError) else f"raised {type(error).__name__}: {error}"
        if verdict is False or isinstance(verdict, str):
            yield f"{expect.check}: {verdict or 'returned false'}"


def _of_answer(expect: Expectation, response: Response) -> Iterator[str]:
    text = text_of(response.result)
    shown = cut(text, _SHOWN) or "empty"
    if expect.equals is not UNSET and response.result != expect.equals:
        yield f"the answer is {shown}, not {cut(text_of(expect.equals), _SHOWN)}"
    yield from (f"the answer lacks `{each}`: {shown}" for each in _texts(expect.contains) if each not in text)
    yield from (f"the answer has `{each}`: {shown}" for each in _texts(expect.lacks) if each in text)
    if expect.matches is not None and re.search(expect.matches, text) is None:
        yield f"the answer does not match `{expect.matches}`: {shown}"
    if isinstance(expect.answer_schema, dict):
        for problem in misfits(expect.answer_schema, response.result):
            yield f"the answer does not fit the schema: {problem.path}: {problem.message}"


def _texts(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _of_calls(expect: Expectation, run: CaseRun) -> Iterator[str]:
    asked = Counter(node.agent for node in run.begun)
    for agent, times in expect.asked.items():
        if not _fits(asked[agent], times):
            yield f"{agent} was called {_often(asked[agent])}, expected {_range(times)}"
    yield from (f"{agent} was called {_often(asked[agent])}" for agent in expect.not_asked if asked[agent])
    if expect.order:
        called = [node.agent for node in run.begun]
        rest = iter(called)
        if not all(agent in rest for agent in expect.order):
            yield f"the calls were {', '.join(called) or 'none'}, not in the order {', '.join(expect.order)}"
    if expect.refused is not None:
        refused = {node.agent: node.fault.code for node in run.calls if node.is_refused and node.fault}
        refused |= {
            each.tool.use.tool: each.tool.use.fault.code for each in run.uses if each.is_refused and each.tool.use.fault
        }
        for name, code in expect.refused.items():
            if name not in refused:
                yield f"{name} was not refused"
            elif refused[name] is not code:
                yield f"{name} was refused with {refused[name]}, not {code}"
        yield from (f"{name} was refused ({refused[name]})" for name in refused if name not in expect.refused)


def _of_tools(expect: Expectation, run: CaseRun) -> Iterator[str]:
    used = [each for each in run.uses if not each.is_refused]
    for wanted in expect.tools:
        count = sum(_is_use(each, wanted) for each in used)
        if not _fits(count, wanted.times):
            by = f" by {wanted.agent}" if wanted.agent else ""
            given = f" with {text_of(wanted.arguments)}" if wanted.arguments else ""
            yield f"{wanted.tool} was used{by}{given} {_often(count)}, expected {_range(wanted.times)}"
    for tool in expect.not_used:
        if count := sum(each.tool.use.tool == tool for each in used):
            yield f"{tool} was used {_often(count)}"


def _is_use(use: AgentUse, wanted: ExpectedUse) -> bool:
    if use.tool.use.tool != wanted.tool or wanted.agent not in (None, use.agent):
        return False
    passed: object = use.tool.input
    given = cast("dict[str, Json]", passed) if isinstance(passed, dict) else {}
    return all(name in given and given[name] == value for name, value in wanted.arguments.items())


def _of_spending(expect: Expectation, run: CaseRun) -> Iterator[str]:
    usage = run.usage
    if expect.max_tokens is not None and usage.total > expect.max_tokens:
        yield f"it spent {usage.total:,} tokens, more than {expect.max_tokens:,}"
    if expect.max_cost is not None:
        most = millionths(expect.max_cost)
        if usage.cost > most:
            spent, limit = amounts(usage.cost, most)
            yield f"it cost {spent}, more than {limit}"
        if usage.unpriced:
            yield f"its cost is not known: {usage.unpriced:,} tokens have no price"
    if expect.max_time is not None and run.duration_ms > (most := duration_ms(expect.max_time)):
        yield f"it took {spell_ms(run.duration_ms)}, more than {spell_ms(most)}"


def _fits(count: int, times: Times | TimesRange) -> bool:
    if isinstance(times, int):
        return count == times
    return times.at_least <= count and (times.at_most is None or count <= times.at_most)


def _often(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _range(times: Times | TimesRange) -> str:
    if isinstance(times, int):
        return _often(times)
    most = "" if times.at_most is None else f"at most {_often(times.at_most)}"
    least = f"at least {_often(times.at_least)}" if times.at_least else ""
    return " and ".join(filter(None, (least, most)))
