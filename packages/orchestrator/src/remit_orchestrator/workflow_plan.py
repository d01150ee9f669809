"""The steps of a workflow: their dependencies, which can begin, what they refer to, and what is wrong with them."""

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, cast

from msgspec import Struct

from remit.protocol.codec import checked, text_of
from remit.protocol.envelope import Json
from remit.protocol.errors import Problem, RemitError
from remit.protocol.orchestration import Step, Workflow
from remit.protocol.problems import did_you_mean
from remit.protocol.records import PlannedStep

# The names of the workflow's input and of the user's text; no step may have them.
INPUT, REQUEST = "input", "request"

# What a condition may ask of a step besides its result.
_OF_A_STEP = ("ok", "failed", "skipped", "status", "confidence")


class StepOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a step."""

    state: Literal["done", "partial", "failed", "skipped"]
    result: Json = None
    """Its result; the step's default if it was skipped or failed."""
    confidence: float | None = None
    why: str = ""
    """Why it failed or was skipped."""
    wanted: bool = True
    """Whether it was to be done: false if it was skipped because its condition is false."""

    @property
    def usable(self) -> bool:
        return self.state in ("done", "partial")

    @property
    def missing(self) -> bool:
        """Whether it was to be done and has no result: it failed, or depends on one that did."""
        return self.wanted and not self.usable


class NextSteps(Struct, frozen=True, kw_only=True):
    """The next steps."""

    begin: tuple[Step, ...] = ()
    skip: tuple[tuple[Step, StepOutcome], ...] = ()
    """Steps that will not be done, and why."""


# ── ready steps ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ready(
    workflow: Workflow,
    ended: Mapping[str, StepOutcome],
    given: Json,
    running: Collection[str] = (),
    *,
    waits: Mapping[str, frozenset[str]] | None = None,
) -> NextSteps:
    """Return the steps that can begin, and those that never will, now that others have *ended*.

    *waits* holds the dependencies of each step, so that repeated calls need not compute them again.
    """
    begin: list[Step] = []
    skip: list[tuple[Step, StepOutcome]] = []
    for step in workflow.steps:
        if step.name in ended or step.name in running:
            continue
        before = waits_for(step) if waits is None else waits[step.name]
        if not before <= ended.keys():
            continue
        why = _obstacle(workflow, step, ended) if any(ended[name].missing for name in before) else None
        if why is not None:
            skip.append((step, StepOutcome(state="skipped", why=why, result=step.default)))
        elif step.when is not None and not holds(step.when, ended, given):
            why = f"its condition does not hold: {step.when}"
            skip.append((step, StepOutcome(state="skipped", why=why, wanted=False, result=step.default)))
        else:
            begin.append(step)
    return NextSteps(begin=tuple(begin), skip=tuple(skip))


def waits_for(step: Step) -> frozenset[str]:
    """Return the steps that must have ended before this one."""
    return frozenset(awaited(step)) | needs(step) | {name for name, _ in condition_steps(step)}


def planned_steps(
    workflow: Workflow, waits: Mapping[str, frozenset[str]], title: Callable[[Step], str]
) -> tuple[PlannedStep, ...]:
    """Return the steps of a workflow as they are recorded; what was done in an earlier run is no step of this one."""
    names = [step.name for step in workflow.steps]
    return tuple(
        PlannedStep(
            name=step.name,
            title=title(step),
            agent=step.agent,
            capability=step.capability,
            after=tuple(name for name in names if name in waits[step.name]),
            when=step.when or "",
            optional=step.optional,
            attempts=step.attempts,
            fallback=step.fallback,
        )
        for step in workflow.steps
    )


def awaited(step: Step) -> tuple[str, ...]:
    """Return the names of the steps that a step says it comes after."""
    return tuple(each.removesuffix("?") for each in step.after)


def needs(step: Step) -> frozenset[str]:
    """Return the steps that this one refers to."""
    names = {name for name, _ in references([step.objective, step.input])}
    names |= {name for name, attribute in condition_steps(step) if attribute not in _OF_A_STEP}
    return frozenset(names - {INPUT, REQUEST})


def _obstacle(workflow: Workflow, step: Step, ended: Mapping[str, StepOutcome]) -> str | None:
    """Return why a step that waits for nothing any more cannot be done; None: it can.

    A step that was skipped because its condition is false does not block others, so branches can join after it.
    """
    dispensable = {each.name for each in workflow.steps if each.optional}
    dispensable |= {each.removesuffix("?") for each in step.after if each.endswith("?")}
    for name in sorted(needs(step) - dispensable):
        if ended[name].missing:
            return f"it needs the result of `{name}`, which {_became(ended[name])}"
    asked_about = {name for name, _ in condition_steps(step)}
    for name in awaited(step):
        if name not in asked_about and name not in dispensable and ended[name].missing:
            return f"`{name}`, after which it comes, {_became(ended[name])}"
    return None


def _became(ended: StepOutcome) -> str:
    return "failed" if ended.state == "failed" else "was skipped"


# ── which results are compared ────────────────────────────────────────────────────────────────────────────────────────


def questions(workflow: Workflow) -> dict[str, str]:
    """Return the question that each step answers: results are compared only if they answer the same one.

    Steps that ask the same of several agents answer one question, and so do those that the workflow compares.
    """
    asked_for = {step.name: _question(step) for step in workflow.steps}
    compared = {asked_for[name] for name in workflow.compare}
    return {name: "" if question in compared else question for name, question in asked_for.items()}


def _question(step: Step) -> str:
    if step.capability is None and not step.objective:
        return step.name  # its name is all that is asked
    return text_of([step.capability, step.objective, step.input])


# ── references ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Includes all braces before and after it: in more than one pair it is literal. Runs of braces are matched whole, so
# that a text of nothing else takes linear time.
_REFERENCE = re.compile(r"(?<!\{)(\{++)([A-Za-z_][A-Za-z0-9_]{0,63})((?:\.[A-Za-z0-9_-]{1,64})*)(\}++)")


def references(value: Json) -> Iterator[tuple[str, str]]:
    """Return the step and the path in its result for every reference in a text or structure."""
    match value:
        case str():
            yield from ((each[2], each[3][1:]) for each in _REFERENCE.finditer(value) if not _is_literal(each))
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield from references(name)
                yield from references(each)
        case list() | tuple():
            for each in cast("list[Json]", value):
                yield from references(each)
        case _:
            pass


def filled(value: Json, results: Mapping[str, Json]) -> Json:
    """Return a text or structure with its references replaced by values; missing values are null."""
    match value:
        case str():
            whole = _REFERENCE.fullmatch(value)
            if whole is not None and len(whole[1]) == len(whole[4]) == 1 and whole[2] in results:
                return _value_at(results[whole[2]], whole[3][1:])
            return _REFERENCE.sub(lambda match: _substitute(match, results), value)
        case dict():
            return {
                text_of(filled(name, results)): filled(each, results)
                for name, each in cast("dict[str, Json]", value).items()
            }
        case list() | tuple():
            return [filled(each, results) for each in cast("list[Json]", value)]
        case _:
            return value


def literal(value: Json) -> Json:
    """Return a foreign text or structure, escaped so that `filled` returns the original."""
    match value:
        case str():
            return _REFERENCE.sub(lambda match: f"{{{match[0]}}}", value)
        case dict():
            return {literal(name): literal(each) for name, each in cast("dict[str, Json]", value).items()}
        case list() | tuple():
            return [literal(each) for each in cast("list[Json]", value)]
        case _:
            return value


def _is_literal(match: re.Match[str]) -> bool:
    """Return whether it stands in more than one pair of braces: `{{word}}` is written for `{word}`."""
    return len(match[1]) > 1 and len(match[4]) > 1


def _substitute(match: re.Match[str], results: Mapping[str, Json]) -> str:
    if _is_literal(match):
        return match[0][1:-1]
    if match[2] not in results:
        return match[0]
    value = _value_at(results[match[2]], match[3][1:])
    return match[1][1:] + ("" if value is None else text_of(value)) + match[4][1:]


def _value_at(value: Json, path: str) -> Json:
    for part in path.split(".") if path else ():
        match value:
            case dict():
                value = cast("dict[str, Json]", value).get(part)
            case list() | tuple() if part.isdecimal() and int(part) < len(cast("list[Json]", value)):
                value = cast("list[Json]", value)[int(part)]
            case _:
                return None
    return value


# ── conditions ────────────────────────────────────────────────────────────────────────────────────────────────────────

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
_NOT_IN_CONDITIONS: dict[type[ast.AST], str] = {
    ast.Call: "calls",
    ast.BinOp: "arithmetic",
    ast.Subscript: "brackets: `step.0` is the first of a list",
    ast.IfExp: "`if`",
    ast.Is: "`is`: `==` compares",
    ast.IsNot: "`is not`: `!=` compares",
}
EXAMPLE = "`npv.value > 0 and not audit.failed`"
CONSTANTS: dict[str, Json] = {"true": True, "false": False, "null": None}


def holds(condition: str, ended: Mapping[str, StepOutcome], given: Json) -> bool:
    """Return whether a valid condition is true; comparisons of incomparable values are false."""
    return bool(_value(_parsed(condition), ended, given))


def _parsed(condition: str) -> ast.expr:
    """Return a condition as a syntax tree of allowed elements, or raise `ValueError`."""
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"invalid condition; write it like {EXAMPLE}") from error
    for node in ast.walk(tree):
        match node:
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Compare() | ast.Name() | ast.Attribute() | ast.List():
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())) | ast.Tuple():
                pass
            case ast.Constant(value=str() | int() | float()):
                pass
            case ast.boolop() | ast.unaryop() | ast.expr_context():
                pass
            case ast.cmpop() if type(node) in _COMPARE:
                pass
            case _:
                what = _NOT_IN_CONDITIONS.get(type(node), "anything but comparisons")
                raise ValueError(f"a condition cannot contain {what}; write it like {EXAMPLE}")
    return tree


def _value(node: ast.expr, ended: Mapping[str, StepOutcome], given: Json) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(each, ended, given) for each in values)
        case ast.BoolOp(values=values):
            return any(_value(each, ended, given) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, ended, given)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, ended, given)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_value(each, ended, given) for each in (left, *comparators)]
            return all(_compared(op, *pair) for op, pair in zip(ops, pairwise(values), strict=True))
        case ast.Constant(value=value):
            return value
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(each, ended, given) for each in parts]
        case _:
            return _looked_up(".".join(_path(node)), ended, given)


def _compared(op: ast.cmpop, one: Any, other: Any) -> bool:
    try:
        return _COMPARE[type(op)](one, other)
    except TypeError:
        return False


def _path(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Attribute(value=value, attr=attribute):
            yield from _path(value)
            yield attribute
        case ast.Name(id=name):
            yield name
        case _:
            raise ValueError("only a step or a part of its result can be named")


def _looked_up(path: str, ended: Mapping[str, StepOutcome], given: Json) -> Any:
    name, _, rest = path.partition(".")
    if not rest and name in CONSTANTS:
        return CONSTANTS[name]
    if name == INPUT:
        return _value_at(given, rest)
    step = ended[name]
    match rest:
        case "ok":
            return step.usable
        case "failed":
            return step.state == "failed"
        case "skipped":
            return step.state == "skipped"
        case "status":
            return step.state
        case "confidence":
            return step.confidence
        case _:
            return _value_at(step.result, rest)


def condition_steps(step: Step) -> Iterator[tuple[str, str]]:
    """Return the steps that a step's condition asks about, and what of each."""
    if step.when is None:
        return
    for node in _names(_parsed(step.when)):
        name, _, rest = ".".join(_path(node)).partition(".")
        if name != INPUT and (rest or name not in CONSTANTS):
            yield name, rest


def _names(node: ast.AST) -> Iterator[ast.expr]:
    """Return the whole paths of a condition, without their prefixes."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


Offered = Mapping[str, Collection[str] | None]
"""The agents and the capabilities of each; None: those are not known."""


def problems(
    workflow: Workflow, *, agents: Offered | None = None, capabilities: Collection[str] | None = None
) -> tuple[Problem, ...]:
    """Return every problem of a workflow, each with its place; empty: it can be run."""
    try:
        checked(workflow)
    except RemitError as error:  # a program may have put anything into its fields
        return tuple(Problem(each.path.removeprefix("$."), each.message) for each in error.fault.problems)
    return tuple(_problems(workflow, agents, capabilities))


def _problems(workflow: Workflow, agents: Offered | None, capabilities: Collection[str] | None) -> Iterator[Problem]:
    names = [step.name for step in workflow.steps]
    if not names:
        yield Problem("steps", "a workflow needs at least one step")
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield Problem(f"steps.{name}", "there are two steps with this name")
    for name in sorted({INPUT, REQUEST, *CONSTANTS}.intersection(names)):
        yield Problem(f"steps.{name}", f"no step may be called `{name}`, which is reserved")
    if workflow.result is not None and workflow.result not in names:
        yield Problem("result", f"there is no step `{workflow.result}`{did_you_mean(workflow.result, names)}")
    yield from _unknown("compare", "step", workflow.compare, names)
    if len(set(workflow.compare)) == 1:
        yield Problem("compare", "name at least two steps")
    if sum(step.share or 0 for step in workflow.steps) > 1.0 + 1e-9:
        yield Problem("steps", "the shares of all steps add up to more than 1")
    sound = True
    for step in workflow.steps:
        for problem in _step_problems(step, names, agents, capabilities):
            sound = False
            yield problem
    if sound:
        yield from _circles(workflow.steps)


def _step_problems(
    step: Step, names: Collection[str], agents: Offered | None, capabilities: Collection[str] | None
) -> Iterator[Problem]:
    place = f"steps.{step.name}"
    if step.agent is None and step.capability is None:
        yield Problem(place, "set `agent` or `capability`")
    yield from _unknown(f"{place}.agent", "agent", [step.agent] if step.agent else [], agents)
    yield from _unknown(f"{place}.fallback", "agent", step.fallback, agents)
    yield from _unknown(f"{place}.capability", "capability", [step.capability] if step.capability else [], capabilities)
    if step.capability is not None and (capabilities is None or step.capability in capabilities):
        yield from _unable(place, step, step.capability, agents or {})
    if step.share is not None and step.tokens is not None:
        yield Problem(f"{place}.share", "give either a share or a number of tokens")
    others = [name for name in names if name != step.name]
    yield from _unknown(f"{place}.after", "step", awaited(step), others, step.name)
    for field in ("objective", "input"):
        referenced = [name for name, _ in references(getattr(step, field))]
        yield from _unknown(f"{place}.{field}", "step", referenced, [*others, INPUT, REQUEST], step.name)
    try:
        yield from _unknown(f"{place}.when", "step", [name for name, _ in condition_steps(step)], others, step.name)
    except ValueError as error:
        yield Problem(f"{place}.when", str(error))


def _unable(place: str, step: Step, code: str, agents: Offered) -> Iterator[Problem]:
    """Return which of a step's agents do not offer its capability."""
    if agents and not any(codes is None or code in codes for codes in agents.values()):
        yield Problem(f"{place}.capability", f"no agent has the capability `{code}`")
        return
    for key, named in (("agent", (step.agent,)), ("fallback", step.fallback)):
        for name in named:
            codes = None if name is None else agents.get(name)
            if codes is not None and code not in codes:
                yield Problem(f"{place}.{key}", f"`{name}` does not have the capability `{code}`")


def _unknown(
    place: str, kind: str, named: Iterable[str], known: Collection[str] | None, own: str = ""
) -> Iterator[Problem]:
    for name in dict.fromkeys(named):
        if name == own:
            yield Problem(place, "a step cannot wait for itself")
        elif known is not None and name not in known:
            yield Problem(place, f"there is no {kind} `{name}`{did_you_mean(name, known)}")


def _circles(steps: Iterable[Step]) -> Iterator[Problem]:
    """Return the steps that wait for themselves through others."""
    left = {step.name: waits_for(step) for step in steps}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    if left:
        yield Problem("steps", f"these steps wait for each other: {', '.join(sorted(left))}")
