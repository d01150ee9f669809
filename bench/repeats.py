"""Agents that repeat themselves: which of them are stopped or warned, and which of the others wrongly.

Every figure is taken from runs of a hub. First 500 runs that are made from a seed and repeat nothing: look-ups at once
with different arguments and answers, the pages of a list, a job that is asked for its state until it is done, tests
after each edit. None of them is to be refused or warned.

Then public traces, which are not part of this repository. Give the folders in which copies of them lie:

    python bench/repeats.py --mast MAST/traces/HyperAgent --tau tau-bench/tau_bench/envs

From MAST (multi-agent-systems-failure-taxonomy/MAST on GitHub) come the 30 runs of HyperAgent that people labelled
(`*_human.json`), 7 of them with "Step repetition". A planner asks a navigator, an editor and an executor, and each of
these uses tools. The editor changes something, the others only read. The logs say what the planner was answered and
not what tools returned: a tool is taken to return the same for the same arguments until something is edited, and
something else for others. Lines that a log holds several times in a row are read once: that is a fault of its logger.
A trace counts as found if a call in it is refused, warned of, or answered as before. `calls of one agent` are the same
traces without their structure, as if one agent had used one tool for everything and never got an answer: nothing can
be said of such a trace, and none may be warned.

From tau-bench (sierra-research/tau-bench) come the actions that its tasks take to be right: the name of an action is
the objective, its arguments are the input. None of them is to be refused, or taken for a repetition. Answers are not
part of the tasks: actions with different arguments are taken to have different ones.
"""

import argparse
import ast
import asyncio
import json
import random
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, at_least, at_most, main, sized
from remit import Brief, Call, Capability, Hub, Limits
from remit.protocol.envelope import Json
from remit_testing.memory import MemoryStore

SEED = 7
MADE = sized(500, 40)
FOUND, WRONG = 5, 10
"""The goals: so many of the labelled traces are found, and at most so many in a hundred of the others."""
LIMITS = Limits(max_fan_out=8, max_delegations=10_000, max_agent_delegations=10_000)
READS = ("get_", "find_", "list_", "search_", "calculate", "think")
_HEAD = re.compile(r"^HyperAgent_\S+ - INFO - ", re.MULTILINE)
_SUBGOAL = re.compile(
    r"(?:Intern Name|Intern):\s*(.*?)\s*\n+\s*\**Subgoal\**:\s*(.*?)(?=\n(?:Intern Name|Intern):|\Z)", re.DOTALL
)
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_TOOL = re.compile(r"(\w+)\._run\(")


# ── Runs that repeat nothing ──────────────────────────────────────────────────────────────────────────────────────────


class Ask(NamedTuple):
    """A call of an agent, or the use of a tool, and what it gives."""

    name: str
    objective: str
    given: Json
    answer: Json
    at_once: bool = False
    """Whether it is made together with the next one."""


THINGS = ("bolts", "nuts", "nails", "screws", "hinges", "saws", "drills", "clamps", "planks", "beams", "tiles", "pipes")
PLACES = ("Paris", "Rome", "Oslo", "Bern", "Lima", "Cairo", "Quito", "Delhi", "Accra", "Hanoi", "Perth", "Porto")
STATES = ("queued", "fetching", "building", "testing", "packing", "done")


def look_ups(draw: random.Random) -> list[Ask]:
    """Return look-ups at once, of different things, by a tool or an agent, in data or in words."""
    name, in_words = draw.choice(("search", "store")), draw.random() < 0.5
    several = draw.sample(range(len(THINGS)), draw.randint(4, 8))
    asks: list[Ask] = []
    for each in several:
        left, price = draw.randint(0, 900), draw.randint(1, 90)
        data = {"id": each, "name": THINGS[each], "unit": "piece", "status": "active", "left": left, "price": price}
        words = f"In {PLACES[each]} there are {left} {THINGS[each]} left, for {price} euros apiece."
        objective = (
            f"Look up how many {THINGS[each]} are left in {PLACES[each]}" if in_words else "Look up what is left"
        )
        given: Json = None if in_words else {"item": THINGS[each], "place": PLACES[each], "language": "en"}
        if name == "search":
            objective, given = "", given or {"query": objective}
        asks.append(Ask(name, objective, given, draw.choice((data, words, json.dumps(data))), at_once=True))
    return asks


def pages(draw: random.Random) -> list[Ask]:
    """Return the pages of one list, one after another."""
    name, size, asks = draw.choice(("search", "store")), draw.choice((5, 10, 20)), list[Ask]()
    for page in range(1, draw.randint(5, 12)):
        rows = [{"id": page * size + row, "state": "open", "owner": draw.choice(PLACES)} for row in range(size)]
        given: Json = {"list": "orders", "state": "open", "page": page, "size": size}
        objective = "" if name == "search" else draw.choice(("List the open orders", f"List page {page} of the orders"))
        answer: Json = {"page": page, "of": 40, "rows": rows}
        asks.append(Ask(name, objective, given, draw.choice((answer, json.dumps(answer)))))
    return asks


def polls(draw: random.Random) -> list[Ask]:
    """Return the same question to a tool again and again, while its answer changes now and then."""
    in_words = draw.random() < 0.5
    stages = [state for state in STATES for _ in range(draw.randint(1, 3))]
    answers: list[Json] = [
        f"The job is still {state}." if in_words else {"job": 7, "state": state, "owner": "ann", "queue": "night"}
        for state in stages
    ]
    return [Ask("search", "", {"job": 7}, answer) for answer in answers]


def tests(draw: random.Random) -> list[Ask]:
    """Return edits, each followed by the same test, which may well fail as before."""
    tester, asks = draw.choice(("search", "tester")), list[Ask]()
    lines = [f"value_{number} = {number}" for number in range(draw.randint(5, 60))]
    for edit in range(draw.randint(4, 8)):
        lines[draw.randrange(len(lines))] = f"value = {edit}  # {draw.choice(THINGS)}"
        asks.append(Ask("write", "", {"path": "shop/base.py", "text": "\n".join(lines)}, "written"))
        failing = draw.choice(("2 tests fail: test_prices, test_orders", "all tests pass"))
        asks.append(Ask(tester, "" if tester == "search" else "Run the tests", {"path": "tests"}, failing))
    return asks


KINDS = (look_ups, pages, polls, tests)


class Script:
    """A hub whose agent makes the calls of a script, and is answered as the script says."""

    def __init__(self) -> None:
        self.hub = Hub(store=MemoryStore(), limits=LIMITS, redaction=False)
        self._asked: list[Ask] = []
        self._answers: dict[str, deque[Json]] = {}
        self._refused = 0
        self.hub.add("store", self._answer, capabilities=[Capability(code="READ", read_only=True)])
        self.hub.add("tester", self._answer)
        self.hub.tool(safe_to_repeat=True)(self.search)
        self.hub.tool()(self.write)
        self.hub.add("boss", self._boss, may_call=["*"], tools=["search", "write"])

    async def search(self, query: Json) -> Json:
        return self._next("", query)

    async def write(self, query: Json) -> Json:
        return self._next("", query)

    async def _answer(self, brief: Brief) -> Json:
        return self._next(brief.objective, brief.request.input)

    def _next(self, objective: str, given: Json) -> Json:
        return self._answers[_key(objective, given)].popleft()

    async def _boss(self, brief: Brief) -> None:
        together: list[Ask] = []
        for number, ask in enumerate(self._asked, start=1):
            together.append(ask)
            if not ask.at_once or number == len(self._asked):
                calls = [_call(each) for each in together if each.objective]
                responses = await brief.fan_out(calls) if calls else []
                self._refused += sum(each.fault is not None for each in responses)
                await asyncio.gather(
                    *[brief.use(each.name, query=each.given) for each in together if not each.objective]
                )
                together = []

    async def alarms(self, asks: list[Ask]) -> int:
        """Return how many calls of a script were refused, or warned of."""
        self._asked, self._answers, self._refused = asks, {}, 0
        for each in asks:
            self._answers.setdefault(_key(each.objective, each.given), deque()).append(each.answer)
        root = await self.hub.ask("boss", "Go", user="u")
        root.unwrap()
        return self._refused + len(root.warnings)


def _call(ask: Ask) -> Call:
    capability = "READ" if ask.name == "store" else None
    return Call(target=ask.name, capability=capability, objective=ask.objective, input=ask.given)


def _key(objective: str, given: Json) -> str:
    return json.dumps([objective, given], sort_keys=True)


async def made() -> list[Figure]:
    draw, script, alarming = random.Random(SEED), Script(), 0
    async with script.hub:
        for number in range(MADE):
            alarming += await script.alarms(KINDS[number % len(KINDS)](draw)) > 0
    return [Figure(name=f"repeats: alarms in {MADE} made", value=alarming, unit="runs", bound=at_most(0))]


# ── Traces of HyperAgent ──────────────────────────────────────────────────────────────────────────────────────────────


class Goal(NamedTuple):
    """A call of the planner, the tools that its callee used for it, and what it answered."""

    planner: int
    callee: str
    text: str
    uses: list[tuple[str, str]]
    answer: list[str]


def goals_of(trajectory: list[str]) -> list[Goal]:
    """Return the calls of the planners in a log of HyperAgent; each restart has another planner."""
    planner, last, goals = 0, "", list[Goal]()
    for part in _HEAD.split("\n".join(trajectory)):
        if part == last:
            continue
        last = part
        who, _, text = part.partition(":")
        if part.startswith("Initialized tools"):
            planner += 1
        elif who == "Planner's Response":
            goals += [Goal(planner, _role(name), goal.strip(), [], []) for name, goal in _SUBGOAL.findall(text)]
        elif who.startswith("Inner-") and goals:
            for code in _CODE.findall(text):
                if tools := _TOOL.findall(code):
                    goals[-1].uses.append(("edit" if "editor" in tools else "read", code))
        elif who.endswith("->Planner") and goals:
            goals[-1].answer.append(text)
    return goals


def _role(name: str) -> str:
    return next((role for role in ("editor", "navigator") if role in name.lower()), "executor")


class Trace:
    """A hub in which the agents of a trace make their calls again."""

    def __init__(self, goals: list[Goal], *, flat: bool = False) -> None:
        self.hub = Hub(store=MemoryStore(), limits=LIMITS, redaction=False)
        self._goals = goals
        self._current = goals[0]
        self._edits = self._alarms = 0
        reads = Capability(code="DO", read_only=True)
        for role in ("navigator", "executor", "editor"):
            capability = Capability(code="DO") if role == "editor" else reads
            self.hub.add(role, self._work, capabilities=[capability], tools=["read", "edit"])
        self.hub.tool(safe_to_repeat=True)(self.read)
        self.hub.tool()(self.edit)
        self.hub.add("planner", self._plan, may_call=["*"])
        self.hub.add("root", self._flat if flat else self._start, may_call=["*"], tools=["silent"])
        self.hub.tool(safe_to_repeat=True)(self.silent)

    async def silent(self, code: str) -> None:
        """Return nothing, as in a log without answers."""

    async def read(self, code: str) -> str:
        return f"what {code} gives after {self._edits} edits"

    async def edit(self, code: str) -> str:
        self._edits += 1
        return f"done: {code}"

    async def _work(self, brief: Brief) -> str | None:
        for tool, code in self._current.uses:
            await brief.use(tool, code=code)
        return self._current.answer[-1] if self._current.answer else None

    async def _plan(self, brief: Brief) -> None:
        for goal in self._goals:
            if str(goal.planner) == brief.objective:
                self._current = goal
                response = await brief.delegate(goal.callee, capability="DO", objective=goal.text)
                self._alarms += response.cache == "hit" or response.fault is not None

    async def _start(self, brief: Brief) -> None:
        for planner in dict.fromkeys(goal.planner for goal in self._goals):
            await brief.delegate("planner", objective=str(planner))

    async def _flat(self, brief: Brief) -> None:
        for goal in self._goals:
            for code in (goal.text, *(code for _, code in goal.uses)):
                await brief.use("silent", code=code)

    async def alarms(self) -> int:
        """Return how many calls are refused, warned of, or answered as before."""
        async with self.hub:
            root = await self.hub.ask("root", "Go", user="u")
        root.unwrap()
        return self._alarms + len(root.warnings)


async def mast(paths: list[Path]) -> list[Figure]:
    alarmed: dict[bool, list[bool]] = {True: [], False: []}
    flat = 0
    for path in paths:
        trace: dict[str, Any] = json.loads(path.read_text("utf-8"))
        goals = goals_of(trace["trajectory"])
        repeats = trace["note"]["options"].get("Step repetition") == "yes"
        alarmed[repeats].append(await Trace(goals).alarms() > 0)
        flat += not repeats and await Trace(goals, flat=True).alarms() > 0
    labelled, others = len(alarmed[True]), len(alarmed[False])
    return [
        Figure(name=f"repeats: found, of {labelled}", value=sum(alarmed[True]), unit="traces", bound=at_least(FOUND)),
        Figure(
            name=f"repeats: of {others} others",
            value=100 * sum(alarmed[False]) / others,
            unit="%",
            bound=at_most(WRONG),
        ),
        Figure(name="repeats: the others without answers", value=flat, unit="traces", bound=at_most(0)),
    ]


# ── Tasks of tau-bench ────────────────────────────────────────────────────────────────────────────────────────────────


def actions(path: Path) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Return the actions of each task of a file, without running it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Task":
            given = {each.arg: each.value for each in node.keywords}
            calls = [each for each in ast.walk(given["actions"]) if isinstance(each, ast.Call)]
            arguments = [{each.arg: ast.literal_eval(each.value) for each in call.keywords} for call in calls]
            yield [(each["name"], each["kwargs"]) for each in arguments]


async def tau(folder: Path) -> list[Figure]:
    total = alarms = 0
    script = Script()
    async with script.hub:
        for path in (folder / "airline" / "tasks_test.py", folder / "retail" / "tasks_test.py"):
            for task in actions(path):
                total += len(task)
                alarms += await script.alarms(
                    [
                        Ask("store" if name.startswith(READS) else "tester", name, given, f"what {given} gives")
                        for name, given in task
                    ]
                )
    return [Figure(name=f"repeats: alarms in {total} right", value=100 * alarms / total, unit="%", bound=at_most(1))]


async def figures() -> list[Figure]:
    measured = await made()
    if GIVEN.mast is not None:
        measured += await mast(sorted(GIVEN.mast.glob("*_human.json")))
    if GIVEN.tau is not None:
        measured += await tau(GIVEN.tau)
    if len(measured) == 1:
        print("repeats: no traces given (--mast, --tau), only runs that were made", file=sys.stderr)
    return measured


def measure() -> list[Figure]:
    return asyncio.run(figures())


class Given(argparse.Namespace):
    mast: Path | None = None
    tau: Path | None = None


GIVEN = Given()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--mast", type=Path)
    parser.add_argument("--tau", type=Path)
    _, rest = parser.parse_known_args(namespace=GIVEN)
    sys.argv[1:] = rest
    main(measure)
