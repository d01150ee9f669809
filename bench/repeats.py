"""Agents that repeat themselves, in public traces: who of them is stopped or warned, and who of the others wrongly.

The traces are not part of this repository. Give the folders in which copies of them lie:

    python bench/repeats.py --mast MAST/traces/HyperAgent --tau tau-bench/tau_bench/envs

From MAST (multi-agent-systems-failure-taxonomy/MAST on GitHub) come the 30 runs of HyperAgent that people labelled
(`*_human.json`), 7 of them with "Step repetition". A planner asks a navigator, an editor and an executor, and each of
these uses tools. The logs say what the planner was answered and not what tools returned, so a tool's answer counts as
unknown. The editor changes something, the others only read. Lines that a log holds several times in a row are read
once: that is a fault of its logger.

The thresholds of `remit.policy.repeats` were chosen on these traces, so the figures flatter them. What to expect of
others is printed beside: each trace is left out once, thresholds are chosen on the rest by the goals, and judged on it.

From tau-bench (sierra-research/tau-bench) come the actions that its tasks take to be right: the name of an action is
the objective, its arguments are the input. None of them is to be refused, or taken for a repetition. Those that only
read are given an earlier answer, or run again after a change. Answers are not part of the tasks: actions with different
arguments are taken to have different ones.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, at_least, at_most, main
from remit.policy.repeats import (
    ANSWER_SHARE,
    CALL_SHARE,
    ENOUGH,
    CallKey,
    CallWords,
    call_key,
    repeated_without_progress,
    words_of,
)

MOST_WATCHED = 50
READS = ("get_", "find_", "list_", "search_", "calculate", "think")
_HEAD = re.compile(r"^HyperAgent_\S+ - INFO - ", re.MULTILINE)
_SUBGOAL = re.compile(
    r"(?:Intern Name|Intern):\s*(.*?)\s*\n+\s*\**Subgoal\**:\s*(.*?)(?=\n(?:Intern Name|Intern):|\Z)", re.DOTALL
)
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_TOOL = re.compile(r"(\w+)\._run\(")


class Step(NamedTuple):
    """A call in a trace: which delegation makes it, of whom, what for; or, with nobody asked, an answer."""

    frame: str
    callee: str
    text: str


class Counts(NamedTuple):
    calls: int
    found: int


class Thresholds(NamedTuple):
    call_share: float = CALL_SHARE
    answer_share: float = ANSWER_SHARE
    enough: int = ENOUGH


GRID = [
    Thresholds(call_share, answer_share, enough)
    for call_share in (0.2, 0.3, 0.4)
    for answer_share in (0.3, 0.5, 0.7)
    for enough in (2, 3, 4)
]
# The goals: so many of the labelled traces are named, and at most so many of the calls in the others.
NAMED, WRONG = 5, 0.01


class Caller:
    """One delegation of a trace: what it has asked for, as a hub keeps it."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds._asdict()
        self.done: dict[CallKey, int] = {}
        self.asked: dict[str, list[CallWords]] = {}
        self.warned: set[str] = set()

    def ask(self, callee: str, text: str, *, reads: bool, changes: int) -> bool:
        """Say whether a call is stopped or warned of: it repeats an earlier one, exactly or nearly."""
        key = call_key(callee, None, text, None)
        stopped = key in self.done and not (reads and self.done[key] != changes)
        self.done[key] = changes
        before, words = self.asked.setdefault(callee, []), words_of(text)
        near = callee not in self.warned and repeated_without_progress(words, before[:MOST_WATCHED], **self._thresholds)
        if near:
            self.warned.add(callee)
        before.append(CallWords(words, None))
        return stopped or near

    def answered(self, callee: str, text: str) -> None:
        """Note what the last call to a callee was answered."""
        if before := self.asked.get(callee):
            before[-1] = before[-1]._replace(answer=words_of(text))


def steps_of(trajectory: list[str]) -> Iterator[Step]:
    """Return the calls and answers of a log of HyperAgent."""
    run = number = 0
    last = asked = ""
    for part in _HEAD.split("\n".join(trajectory)):
        if part == last:
            continue
        last = part
        who, _, text = part.partition(":")
        if part.startswith("Initialized tools"):
            run += 1
        elif who == "Planner's Response":
            for callee, goal in _SUBGOAL.findall(text):
                number, asked = number + 1, callee.strip(" *")
                yield Step(f"planner {run}", asked, goal.strip())
        elif who.startswith("Inner-"):
            for code in _CODE.findall(text):
                if tools := _TOOL.findall(code):
                    yield Step(f"inner {run}.{number}", "+".join(tools), code)
        elif who.endswith("->Planner"):
            yield Step(f"planner {run}", "", asked + "\n" + text)


def replay(steps: Sequence[Step], thresholds: Thresholds) -> Counts:
    """Return how many calls there are in a trace, and how many are stopped or warned of."""
    callers: dict[str, Caller] = {}
    calls = found = changes = 0
    for step in steps:
        caller = callers.setdefault(step.frame, Caller(thresholds))
        if not step.callee:
            caller.answered(*step.text.split("\n", 1))
            continue
        edits = "editor" in step.callee.lower()
        is_tool = step.frame.startswith("inner")
        calls += 1
        # A tool may be used as often as its agent likes: only the warning holds for it.
        found += caller.ask(step.callee, step.text, reads=not edits or is_tool, changes=-calls if is_tool else changes)
        changes += edits
    return Counts(calls, found)


class Trace(NamedTuple):
    """A run that people labelled, and what each of the thresholds finds in it."""

    repeats: bool
    counts: dict[Thresholds, Counts]


class Judged(NamedTuple):
    """What thresholds are worth: labelled traces that are named, and calls in the others that are, of how many."""

    named: int
    wrong: int
    calls: int

    @property
    def worth(self) -> tuple[bool, int, int]:
        return self.wrong <= WRONG * self.calls, self.named, -self.wrong

    @property
    def share(self) -> float:
        return 100 * self.wrong / self.calls


def judged(traces: Iterable[Trace], thresholds: Callable[[Trace], Thresholds]) -> Judged:
    counts = [(each.repeats, each.counts[thresholds(each)]) for each in traces]
    others = [each for repeats, each in counts if not repeats]
    named = sum(repeats and each.found > 0 for repeats, each in counts)
    return Judged(named, sum(each.found for each in others), sum(each.calls for each in others))


def mast(folder: Path) -> list[Figure]:
    traces: list[Trace] = []
    for path in sorted(folder.glob("*_human.json")):
        trace: dict[str, Any] = json.loads(path.read_text("utf-8"))
        steps = list(steps_of(trace["trajectory"]))
        repeats = trace["note"]["options"].get("Step repetition") == "yes"
        traces.append(Trace(repeats, {each: replay(steps, each) for each in GRID}))

    def chosen_without(left_out: Trace) -> Thresholds:
        """Return what names the most of the others within the goal, and of that what names the least wrongly."""
        rest = [each for each in traces if each is not left_out]
        return max(GRID, key=lambda each: judged(rest, lambda _: each).worth)

    labelled = sum(each.repeats for each in traces)
    fitted, left_out = judged(traces, lambda _: Thresholds()), judged(traces, chosen_without)
    of = f"of {fitted.calls} other calls"
    return [
        Figure(name=f"repeats: named, of {labelled}", value=fitted.named, unit="traces", bound=at_least(NAMED)),
        Figure(name=f"repeats: {of}", value=fitted.share, unit="%", bound=at_most(100 * WRONG)),
        Figure(name=f"repeats: named, of {labelled}, left out", value=left_out.named, unit="traces"),
        Figure(name=f"repeats: {of}, left out", value=left_out.share, unit="%"),
    ]


def actions(path: Path) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Return the actions of each task of a file, without running it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Task":
            given = {each.arg: each.value for each in node.keywords}
            calls = [each for each in ast.walk(given["actions"]) if isinstance(each, ast.Call)]
            found = [{each.arg: ast.literal_eval(each.value) for each in call.keywords} for call in calls]
            yield [(each["name"], each["kwargs"]) for each in found]


def tau(folder: Path) -> list[Figure]:
    total = refused = warned = 0
    for path in (folder / "airline" / "tasks_test.py", folder / "retail" / "tasks_test.py"):
        for task in actions(path):
            keys: set[CallKey] = set()
            before: dict[str, list[CallWords]] = {}
            for name, arguments in task:
                key, words = call_key("shop", None, name, arguments), words_of(name, arguments)
                total += 1
                refused += key in keys and not name.startswith(READS)
                keys.add(key)
                earlier = before.setdefault(name, [])
                warned += repeated_without_progress(words, earlier)
                earlier.append(CallWords(words, words_of(f"what {name} gives for {key[2]!r}")))
    return [
        Figure(name=f"repeats: refused of {total} right", value=100 * refused / total, unit="%", bound=at_most(1)),
        Figure(name=f"repeats: warned of {total} right", value=100 * warned / total, unit="%", bound=at_most(1)),
    ]


def measure() -> list[Figure]:
    figures: list[Figure] = []
    if GIVEN.mast is not None:
        figures += mast(GIVEN.mast)
    if GIVEN.tau is not None:
        figures += tau(GIVEN.tau)
    if not figures:
        print("repeats: no traces given (--mast, --tau), nothing measured", file=sys.stderr)
    return figures


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
