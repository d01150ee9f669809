"""The vault, inbox, controls, facts and notes of the store in memory."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from remit.protocol.envelope import Note
from remit.runtime.ports import (
    FACTS,
    MOST_FACTS,
    MOST_NOTES,
    ControlAction,
    ControlCommand,
    Decision,
    Question,
    SealedValue,
)

# How long questions that are over and controls are kept.
DAY_MS = 24 * 3_600_000


class _Asked(Struct, kw_only=True):
    """A question and its answer."""

    question: Question
    over_ms: int
    """When it was answered, or expires."""
    decision: Decision | None = None

    def is_open(self, now_ms: int) -> bool:
        return self.decision is None and self.question.expires_ms > now_ms


class _Vault(NamedTuple):
    """The sealed values of one scope, and when the first was sealed."""

    at_ms: int
    sealed: dict[str, SealedValue]


class MemoryVault:
    """Sealed values by scope and token."""

    def __init__(self) -> None:
        self._vaults: dict[str, _Vault] = {}

    def seal(self, scope: str, sealed: Sequence[SealedValue], now_ms: int) -> None:
        vault = self._vaults.setdefault(scope, _Vault(now_ms, {}))
        for each in sealed:
            known = vault.sealed.setdefault(each.token, each)
            vault.sealed[each.token] = known._replace(of_user=known.of_user or each.of_user)

    def unseal(self, scope: str) -> list[SealedValue]:
        return list(self._vaults[scope].sealed.values()) if scope in self._vaults else []

    def forget(self, scope: str) -> None:
        self._vaults.pop(scope, None)

    def forget_old(self, before_ms: int, lasts: Callable[[str], bool]) -> None:
        """Delete values sealed until *before_ms*, unless they are facts about a user or *lasts* says of the scope."""
        for scope, vault in list(self._vaults.items()):
            if vault.at_ms <= before_ms and not scope.startswith(FACTS) and not lasts(scope):
                del self._vaults[scope]


class MemoryInbox:
    """Questions to people, with their answers."""

    def __init__(self) -> None:
        self._questions: dict[str, _Asked] = {}

    def put(self, question: Question) -> Question:
        return self._questions.setdefault(question.id, _Asked(question=question, over_ms=question.expires_ms)).question

    def decide(self, question: str, decision: Decision, now_ms: int) -> bool:
        asked = self._questions.get(question)
        if asked is None or not asked.is_open(now_ms):
            return False
        asked.decision, asked.over_ms = decision, now_ms
        return True

    def decision(self, question: str) -> Decision | None:
        asked = self._questions.get(question)
        return asked.decision if asked is not None else None

    def withdraw(self, question: str) -> None:
        asked = self._questions.get(question)
        if asked is not None and asked.decision is None:
            del self._questions[question]

    def pending(self, now_ms: int) -> list[Question]:
        found = [asked.question for asked in self._questions.values() if asked.is_open(now_ms)]
        return sorted(found, key=lambda question: question.asked_ms)

    def was_asked_since(self, run: str, since_ms: int) -> bool:
        """Return whether a question about a run was open at that time, or still is."""
        asked = [each for each in self._questions.values() if each.question.request.run == run]
        return any(each.decision is None or each.over_ms >= since_ms for each in asked)

    def withdraw_all(self, run: str) -> None:
        """Withdraw the questions about a run that nobody has answered."""
        for asked in [each for each in self._questions.values() if each.question.request.run == run]:
            self.withdraw(asked.question.id)

    def forget_old(self, now_ms: int, running: Callable[[str], bool]) -> None:
        for id, asked in list(self._questions.items()):
            if asked.over_ms <= now_ms - DAY_MS and not running(asked.question.request.run):
                del self._questions[id]


class MemoryControls:
    """Control commands, numbered in order."""

    def __init__(self) -> None:
        self._controls: list[tuple[int, ControlCommand]] = []
        self._last = 0

    def add(self, run: str, action: ControlAction, by: str, reason: str, delegation: str, now_ms: int) -> int:
        self._last += 1
        self._controls.append((now_ms, ControlCommand(self._last, run, action, by, reason, delegation)))
        return self._last

    def after(self, number: int, run: str | None) -> list[ControlCommand]:
        return [control for _, control in self._controls if control.seq > number and run in (None, control.run)]

    def last(self) -> int:
        return self._controls[-1][1].seq if self._controls else 0

    def forget_old(self, now_ms: int, running: Callable[[str], bool]) -> None:
        self._controls = [
            (at_ms, control) for at_ms, control in self._controls if at_ms > now_ms - DAY_MS or running(control.run)
        ]


class MemoryKnowledge:
    """Facts about users, and notes of conversations."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, str]] = {}
        self._notes: dict[str, dict[tuple[str, str], Note]] = {}

    def remember(self, user: str, run: str, facts: tuple[str, ...]) -> None:
        known = self._facts.setdefault(user, {})
        for text in facts:
            known.setdefault(text, run)

    def facts(self, user: str) -> tuple[str, ...]:
        return tuple(self._facts.get(user, ()))[-MOST_FACTS:]

    def note(self, session: str, notes: Sequence[Note]) -> None:
        fresh = {(note.kind, note.text): note for note in notes}
        kept = {at: note for at, note in self._notes.get(session, {}).items() if at not in fresh}
        self._notes[session] = kept | fresh

    def notes(self, session: str) -> list[Note]:
        return list(self._notes.get(session, {}).values())[-MOST_NOTES:]
