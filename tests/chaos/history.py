"""What clients asked, hubs executed and the store kept, and a checker that finds where these contradict each other.

The checker is pure: it gets a history and what the store holds at the end, and returns violations. A history is written
by many processes, one file each, a line per event. A line is one write, so that a process that is killed leaves whole
lines only.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Kind = Literal["asked", "accepted", "answered", "executed", "returned"]
"""asked, accepted (durable, outcome follows) and answered: seen by a client; executed and returned: by agent code."""

NOT_STARTED = frozenset({"DELEGATION_UNAVAILABLE", "OVERLOADED"})
"""The codes which say that nothing was started, whatever the status is."""
ASK_AGAIN = "STORE_UNAVAILABLE"
"""The code which says that no answer may leave now: the same id is to be sent again."""


REJECTED = "rejected"
"""The status of an answer which says that the client's request is wrong: here, none is."""


class Outcome(Struct, frozen=True):
    """The end of a request as a client hears it, or as the store keeps it."""

    status: str
    code: str = ""
    receipt: str = ""
    """The result of a success: no two executions return the same."""

    @property
    def is_kept(self) -> bool:
        """Whether the id has this outcome from now on: a refused request was not started and may be asked again."""
        return self.status not in ("refused", REJECTED) and self.code != ASK_AGAIN


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a history."""

    kind: Kind
    id: str
    agent: str
    by: str
    """The client with the hub that it asked, or the process of a hub that executed."""
    user: str = ""
    at: float = 0.0
    """Seconds by the clock of the machine that only passes: it is the same in all processes."""
    epoch: int = 0
    receipt: str = ""
    outcome: Outcome | None = None


class StoredRequest(Struct, frozen=True, kw_only=True):
    """A client's request in the store at the end."""

    id: str
    agent: str
    user: str
    outcome: Outcome | None
    """None: it has not ended."""
    outcomes: int = 1
    """How many outcomes of its run are on record."""
    tokens: int = 0
    """The tokens that its run spent."""


class Rules(Struct, frozen=True, kw_only=True):
    """The promises that depend on the team."""

    may_repeat: frozenset[str] = frozenset()
    """The agents that may be executed several times for one id: their capabilities say so."""
    run_tokens: int | None = None
    user_tokens_per_day: int | None = None


class Violation(Struct, frozen=True, order=True):
    """A broken promise."""

    rule: str
    id: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.id}: {self.text}"


# ── writing and reading ───────────────────────────────────────────────────────────────────────────────────────────────


class HistoryFile:
    """The history of one process; what was added survives the process."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def add(self, event: Event) -> None:
        """Add an event, with the present time."""
        os.write(self._handle, self._encode(msgspec.structs.replace(event, at=time.monotonic())) + b"\n")

    def close(self) -> None:
        os.close(self._handle)


def read_history(folder: Path) -> list[Event]:
    """Return the events of all processes in the order of time."""
    decode = msgspec.json.Decoder(Event).decode
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines())
    return sorted(map(decode, lines), key=lambda event: event.at)


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class History:
    """A history by request id, with what the store holds at the end."""

    def __init__(self, events: Iterable[Event], stored: Iterable[StoredRequest], rules: Rules) -> None:
        self.rules = rules
        self.stored = {each.id: each for each in stored}
        self.target: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.answers: defaultdict[str, list[Outcome]] = defaultdict(list)
        self.executed: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
        """The executions of each agent for each id."""
        self.returned: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            match event.kind:
                case "asked":
                    self.target[event.id] = event.agent
                case "accepted":
                    self.accepted.add(event.id)
                case "answered":
                    assert event.outcome is not None, "an answer has an outcome"
                    self.answers[event.id].append(event.outcome)
                case "executed":
                    self.executed[event.id, event.agent].append(event)
                case "returned":
                    self.returned[event.id].append(event)

    def kept(self, id: str) -> list[Outcome]:
        """Return the answers that later ones must equal."""
        return [each for each in self.answers[id] if each.is_kept]


def check(
    events: Iterable[Event],
    stored: Iterable[StoredRequest],
    rules: Rules,
    *,
    findings: Collection[str] = (),
    unchained: int = 0,
) -> list[Violation]:
    """Return every broken promise; *findings* and *unchained* come from the verification of the record."""
    history = History(events, stored, rules)
    found = [violation for rule in _RULES for violation in rule(history)]
    found += [Violation("chain", "-", each) for each in findings]
    if unchained:
        found.append(Violation("chain", "-", f"{unchained} records are not in the chain"))
    return sorted(found)


def _nothing_acknowledged_is_lost(history: History) -> Iterator[Violation]:
    for id in sorted(history.accepted | set(history.answers)):
        kept, stored = history.kept(id), history.stored.get(id)
        if not kept and id not in history.accepted:
            continue
        if stored is None:
            # A request that was accepted and then refused was not started; the store need not keep it.
            if kept or not history.answers[id]:
                yield Violation("lost", id, "a client was told that it is accepted or answered; the store has no trace")
        elif kept and stored.outcome != kept[-1]:
            yield Violation("lost", id, f"answered {_words(kept[-1])}, kept {_words(stored.outcome)}")


def _one_outcome(history: History) -> Iterator[Violation]:
    for id in list(history.answers):
        if len(different := set(history.kept(id))) > 1:
            yield Violation("outcomes", id, "answers differ: " + ", ".join(sorted(map(_words, different))))
    for stored in history.stored.values():
        if stored.outcomes > 1:
            yield Violation("outcomes", stored.id, f"{stored.outcomes} outcomes are on record")


def _no_second_execution(history: History) -> Iterator[Violation]:
    for (id, agent), found in history.executed.items():
        if len(found) > 1 and agent not in history.rules.may_repeat:
            who = ", ".join(f"{each.by} (epoch {each.epoch})" for each in found)
            yield Violation("executed twice", id, f"{agent} by {who}")


def _nothing_is_stuck(history: History) -> Iterator[Violation]:
    for id in history.target:
        if not history.answers[id]:
            yield Violation("stuck", id, "asked, and never answered")
    for stored in history.stored.values():
        if stored.outcome is None:
            yield Violation("stuck", stored.id, "the store has no outcome at the end")


def _answers_are_true(history: History) -> Iterator[Violation]:
    executed: defaultdict[str, int] = defaultdict(int)
    for (id, agent), found in history.executed.items():
        if agent not in history.rules.may_repeat:
            executed[id] += len(found)
    for id, answers in history.answers.items():
        receipts = {each.receipt for each in history.returned[id]}
        for answer in set(answers):
            if answer.status == "success" and answer.receipt not in receipts:
                yield Violation("untrue", id, f"no execution returned {answer.receipt or 'its result'}")
            if answer.status == REJECTED:
                yield Violation("untrue", id, f"{answer.code} says that the request is wrong")
            refused = answer.status == "refused" and answer.code != ASK_AGAIN
            if (refused or answer.code in NOT_STARTED) and executed[id]:
                yield Violation("untrue", id, f"{_words(answer)} says that nothing was started; it was executed")


def _the_replaced_cannot_write(history: History) -> Iterator[Violation]:
    for stored in history.stored.values():
        began = history.executed[stored.id, stored.agent]
        if stored.outcome is None or not stored.outcome.receipt or not began:
            continue
        # An agent that passes a result on returns the same each time it is executed.
        ended = [
            each
            for each in history.returned[stored.id]
            if each.receipt == stored.outcome.receipt and each.agent == stored.agent
        ]
        last, newest = max(ended, key=lambda each: each.epoch, default=None), max(each.epoch for each in began)
        if last is not None and last.epoch < newest:
            text = f"the outcome is of epoch {last.epoch} by {last.by}; epoch {newest} had begun"
            yield Violation("fencing", stored.id, text)


def _budgets_hold(history: History) -> Iterator[Violation]:
    rules = history.rules
    spent: defaultdict[str, int] = defaultdict(int)
    for stored in history.stored.values():
        spent[stored.user] += stored.tokens
        if rules.run_tokens is not None and stored.tokens > rules.run_tokens:
            yield Violation("budget", stored.id, f"spent {stored.tokens} of {rules.run_tokens} tokens of a run")
    for user, tokens in spent.items():
        if rules.user_tokens_per_day is not None and tokens > rules.user_tokens_per_day:
            yield Violation("budget", user, f"spent {tokens} of {rules.user_tokens_per_day} tokens of a day")


_RULES: Sequence[Callable[[History], Iterator[Violation]]] = (
    _nothing_acknowledged_is_lost,
    _one_outcome,
    _no_second_execution,
    _nothing_is_stuck,
    _answers_are_true,
    _the_replaced_cannot_write,
    _budgets_hold,
)


def _words(outcome: Outcome | None) -> str:
    return "nothing" if outcome is None else " ".join(filter(None, (outcome.status, outcome.code, outcome.receipt)))
