"""The promises of a team of hubs, checked against what clients, callees and the record say: a pure function.

Everything is a list of lines. Callees wrote theirs into a ledger of their own, clients and those who answer questions
kept theirs, and the rest was exported from the record at the end.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "began",  # a callee: its code began, with a grant of tokens
    "charged",  # a callee: it charged, with a receipt
    "spent",  # a callee: it spent tokens
    "heard",  # a callee: what it was told of its own callee
    "asked",  # a client: it sends a request with a budget
    "abandoned",  # a client: it was killed, and hears no answer
    "answered",  # a client: the outcome
    "cancelled",  # a client: its cancel was accepted
    "question",  # a person: they are asked
    "decided",  # a person: their answer was accepted
    "unsure",  # a person: whether their answer was accepted is not known
    "started",  # the record: a delegation began
    "ended",  # the record: its outcome
]

NOT_STARTED = frozenset({"DELEGATION_UNAVAILABLE", "OVERLOADED"})
"""The codes which say that nothing was started, whatever the status is."""
ASK_AGAIN = "STORE_UNAVAILABLE"
"""The code which says that no answer may leave now: the same id is to be sent again."""
REJECTED = "rejected"
"""The status of an answer which says that the client's request is wrong: here, none is."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a ledger."""

    kind: Kind
    request: str
    """The client's name for the request, which is the objective of everything below it."""
    at: float = 0.0
    """Seconds by the clock of the machine that only passes: it is the same in all processes. On record: the number."""
    by: str = ""
    agent: str = ""
    user: str = ""
    run: str = ""
    call: str = ""
    """The id of a delegation; where it crosses the bus, it is part of the caller's run, and begins one of its host."""
    parent: str = ""
    """The id of the caller's delegation; on record, it is empty at the beginning of a run."""
    tokens: int = 0
    status: str = ""
    code: str = ""
    receipt: str = ""
    question: str = ""
    agreed: bool = False

    @property
    def outcome(self) -> tuple[str, str, str]:
        return self.status, self.code, self.receipt

    @property
    def is_kept(self) -> bool:
        """Whether the request has this outcome from now on: one that was refused may be asked again."""
        return self.status not in ("refused", REJECTED) and self.code != ASK_AGAIN

    @property
    def says_not_started(self) -> bool:
        return (self.status == "refused" and self.code != ASK_AGAIN) or self.code in NOT_STARTED


class Promises(Struct, frozen=True, kw_only=True):
    """What depends on the team."""

    may_repeat: frozenset[str] = frozenset()
    """Agents whose code may run again for one delegation: they are resumable."""
    user_tokens_per_day: int | None = None


class Violation(Struct, frozen=True, order=True):
    """A broken promise."""

    rule: str
    request: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.request}: {self.text}"


class Story:
    """All lines, by request, kind and time."""

    def __init__(self, lines: Iterable[Line], promises: Promises) -> None:
        self.promises = promises
        self._lines: defaultdict[str, defaultdict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
        for line in sorted(lines, key=lambda each: each.at):
            self._lines[line.request][line.kind].append(line)

    @property
    def requests(self) -> list[str]:
        return sorted(self._lines)

    def of(self, request: str, kind: Kind) -> list[Line]:
        return self._lines[request][kind]

    def all(self, kind: Kind) -> list[Line]:
        return [line for request in self.requests for line in self.of(request, kind)]


def check(lines: Iterable[Line], promises: Promises, findings: Collection[str] = ()) -> list[Violation]:
    """Return every broken promise; *findings* are those of `remit audit verify`."""
    story = Story(lines, promises)
    violations = [Violation(*broken) for rule in _RULES for broken in rule(story)]
    return sorted([*violations, *(Violation("record", "-", each) for each in findings)])


Broken = Iterator[tuple[str, str, str]]


def _nothing_runs_twice(story: Story) -> Broken:
    for request in story.requests:
        if len(charges := story.of(request, "charged")) > 1:
            yield "charged twice", request, ", ".join(f"{each.agent} by {each.by}" for each in charges)
        executions: defaultdict[str, list[Line]] = defaultdict(list)
        for began in story.of(request, "began"):
            executions[began.call].append(began)
        for call, runs in executions.items():
            if len(runs) > 1 and runs[0].agent not in story.promises.may_repeat:
                yield "executed twice", request, f"{runs[0].agent} {call} by {', '.join(each.by for each in runs)}"


def _what_was_not_started_did_not_run(story: Story) -> Broken:
    for request in story.requests:
        ran = story.of(request, "began")
        effects = [each for each in ran if each.agent not in story.promises.may_repeat]
        for answer in story.of(request, "answered"):
            # A callee's code may be that of what it called; a refusal is about the request itself.
            if answer.says_not_started and (effects or (ran and answer.status == "refused")):
                yield "not started but ran", request, f"answered {_words(answer)}; began {_who(effects or ran)}"
        for reply in story.of(request, "heard"):
            if not reply.says_not_started:
                continue
            callers = [each for each in ran if each.call == reply.parent]
            own = max((each.at for each in callers if each.by == reply.by and each.at <= reply.at), default=0.0)
            if any(own < each.at < reply.at for each in callers):
                continue  # its hub was replaced, and nobody is told what it heard
            # Its caller may have been resumed since then, and have asked again.
            resumed = min((each.at for each in callers if each.at > reply.at), default=inf)
            if began := [each for each in ran if each.call == reply.call and each.at < resumed]:
                yield "not started but ran", request, f"{reply.by} heard {_words(reply)}; began {_who(began)}"


def _budgets_hold(story: Story) -> Broken:
    days: defaultdict[str, list[str]] = defaultdict(list)
    for request in story.requests:
        for order in story.of(request, "asked"):
            days[order.user].append(request)
            if order.tokens and (text := _excess(story, [request], order.tokens)):
                yield "budget", request, text
    for user, requests in days.items():
        most = story.promises.user_tokens_per_day
        if most is not None and (text := _excess(story, requests, most)):
            yield "budget", user, f"of a day: {text}"


def _excess(story: Story, requests: list[str], budget: int) -> str:
    """Say what was spent beyond a budget, apart from the last call of each agent that went beyond its grant."""
    spent = sorted((each for request in requests for each in story.of(request, "spent")), key=lambda each: each.at)
    began = {(each.call, each.by): each for request in requests for each in story.of(request, "began")}
    calls: defaultdict[tuple[str, str], list[Line]] = defaultdict(list)
    total = within = used_up = 0.0
    for each in spent:
        execution = began[each.call, each.by]
        if used_up and execution.at > used_up:
            return f"{each.call} began after {budget} tokens were used up"
        if sum(before.tokens for before in calls[each.call, each.by]) > execution.tokens:
            return f"{each.call} went on after it had spent the {execution.tokens} tokens that it was granted"
        calls[each.call, each.by].append(each)
        total += each.tokens
        used_up = used_up or (each.at if total > budget else 0.0)
    for execution, made in calls.items():
        within += min(began[execution].tokens, sum(each.tokens for each in made))
    return f"spent {total:.0f} of {budget} tokens, {within:.0f} of them within grants" if within > budget else ""


def _questions_are_answered_once(story: Story) -> Broken:
    for request in story.requests:
        runs = {each.question: _run_of(each.question) for each in story.of(request, "question")}
        # A run that was refused was not started: whoever asks again is asked again.
        refused = {each.run for each in story.of(request, "ended") if each.status == "refused"}
        if len(runs) > 1 and (len(set(runs.values())) < len(runs) or len(set(runs.values()) - refused) > 1):
            yield "asked twice", request, ", ".join(sorted(runs))
        decided = story.of(request, "decided")
        if len(decided) > len({each.question for each in decided}):
            yield "answered twice", request, ", ".join(f"{each.by}: {each.agreed}" for each in decided)
        agreed, unsure = {each.agreed for each in decided}, bool(story.of(request, "unsure"))
        vault = [each for each in story.of(request, "began") if each.agent == "vault"]
        if vault and True not in agreed and not unsure:
            yield "ran unasked", request, f"vault by {_who(vault)} and nobody agreed"
        replies = [*story.of(request, "answered"), *story.of(request, "heard")]
        declined = [each for each in replies if each.code == "APPROVAL_DECLINED"]
        if declined and False not in agreed and not unsure:
            yield "answer lost", request, f"{_words(declined[0])}, and nobody declined"


def _every_answer_is_kept(story: Story) -> Broken:
    for request in story.requests:
        answers, orders = story.of(request, "answered"), story.of(request, "asked")
        if orders and not answers and not story.of(request, "abandoned"):
            yield "stuck", request, "asked, and never answered"
        kept = {each.outcome for each in answers if each.is_kept}
        if len(kept) > 1:
            yield "outcomes", request, "answers differ: " + ", ".join(sorted(map(" ".join, kept)))
        started = story.of(request, "started")
        rows = [*started, *story.of(request, "ended")]
        ended: defaultdict[tuple[str, str], list[Line]] = defaultdict(list)
        for end in story.of(request, "ended"):
            ended[end.run, end.call].append(end)
        for each in started:
            ends = ended[each.run, each.call]
            # A caller that was resumed may have asked again for what had failed.
            successes = {end.outcome for end in ends if end.status == "success"}
            if len(successes) > 1 or (not each.parent and len(ends) != 1):
                yield "outcomes", request, f"{each.call} of run {each.run} has {len(ends)} outcomes on record"
            elif not each.parent and (late := [row for row in rows if row.run == each.run and row.at > ends[0].at]):
                yield "outcomes", request, f"run {each.run} had ended when {late[0].call} {late[0].kind} was recorded"
        recorded = {end.outcome for each in started if each.by == "user" for end in ended[each.run, each.call]}
        if kept and not kept <= recorded:
            yield "answer lost", request, f"answered {sorted(kept)}, recorded {sorted(recorded)}"
        if unrecorded := {each.call for each in story.of(request, "began")} - {each.call for each in started}:
            yield "record", request, f"{', '.join(sorted(unrecorded))} ran and is not on record"


def _answers_are_true(story: Story) -> Broken:
    for request in story.requests:
        receipts = {each.receipt for each in story.of(request, "charged")}
        for answer in story.of(request, "answered"):
            if answer.receipt and answer.receipt not in receipts:
                yield "untrue", request, f"nobody charged {answer.receipt}"
            if answer.status == REJECTED:
                yield "untrue", request, f"{answer.code} says that the request is wrong"
            if answer.status == "timeout" and story.of(request, "cancelled"):
                yield "cancel lost", request, "its cancel was accepted, and it went on until its time was up"


_RULES: tuple[Callable[[Story], Broken], ...] = (
    _nothing_runs_twice,
    _what_was_not_started_did_not_run,
    _budgets_hold,
    _questions_are_answered_once,
    _every_answer_is_kept,
    _answers_are_true,
)


def _words(line: Line) -> str:
    return " ".join(filter(None, line.outcome))


def _who(lines: Iterable[Line]) -> str:
    return ", ".join(f"{each.agent} by {each.by}" for each in lines)


def _run_of(question: str) -> str:
    """Return the run of a question, whose id begins with the path of its delegation."""
    return question.partition("-")[0].partition(".")[0]
