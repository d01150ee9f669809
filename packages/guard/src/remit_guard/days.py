"""The tokens that all sessions of a user spend in a day, kept in a file for each day.

A line is the total of one session on that day, and the last one counts. So a session that is read again from its
beginning is not counted twice, and what a killed guard has counted is known to the next one.
"""

import logging
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

_log = logging.getLogger("remit.guard")
# A session that lasts over days is known again; nobody works in one for a month.
KEPT_DAYS = 31


class DayTotal(Struct, frozen=True, array_like=True):
    """The tokens of one session on one day."""

    tool: str
    session: str
    project: str
    """The project whose limits hold for it; empty: none."""
    tokens: int


class DayLimit(Struct, frozen=True):
    """The tokens that all sessions, or those in one project, may spend in a day."""

    tokens: int
    project: str = ""
    """Empty: it holds for all sessions."""

    @property
    def name(self) -> str:
        """What it is called in a sentence, with the key that sets it."""
        where = f" in {self.project}" if self.project else ""
        key = f'[guard.projects."{self.project}"]' if self.project else "[guard]"
        return f"{self.tokens:,} tokens of this day{where} (`day` of `{key}`)"


class DayLedger:
    """What all sessions have spent, today and on the days before, and what is set aside for their sub-agents."""

    def __init__(self, folder: Path | None = None, today: Callable[[], date] = date.today) -> None:
        self.today = today
        """The day in local time."""
        self._folder = folder
        self._days: dict[date, dict[tuple[str, str], DayTotal]] = {}
        self._granted: dict[tuple[date, str], int] = {}
        self._held: dict[object, tuple[str, int]] = {}
        if folder is not None:
            self._load(folder)

    # ── what was spent ────────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, day: date, total: DayTotal) -> None:
        """Note what a session has spent on a day; a total that is smaller than the one known changes nothing."""
        if day < self._oldest():
            return
        totals = self._days.setdefault(day, {})
        known = totals.get((total.tool, total.session))
        if total.tokens <= (0 if known is None else known.tokens):
            return
        totals[total.tool, total.session] = total
        if self._folder is not None:
            try:
                with (self._folder / f"{day.isoformat()}.jsonl").open("ab") as file:
                    # The line begins with its end, so that one that was broken off by a crash spoils no other.
                    file.write(b"\n" + encode(total))
            except OSError as error:  # it counts here all the same, and the next line has all of it
                _log.warning("the tokens of a day are not written: %s", error)

    # ── what may be spent ─────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, agent: object, project: str, tokens: int) -> None:
        """Set tokens aside for a sub-agent that starts."""
        self._held[agent] = project, tokens

    def use_held(self, agent: object, tokens: int) -> None:
        """Take what a sub-agent has spent from what is set aside for it."""
        if agent in self._held:
            project, held = self._held[agent]
            self._held[agent] = project, max(0, held - tokens)

    def held(self, agent: object) -> int:
        """Return what is set aside for a sub-agent."""
        return self._held.get(agent, ("", 0))[1]

    def release(self, agent: object) -> None:
        """Set nothing aside for a sub-agent any more."""
        self._held.pop(agent, None)

    def used(self, limit: DayLimit) -> int:
        """Return the tokens under a limit that are spent or set aside today."""
        spent = ((each.project, each.tokens) for each in self._days.get(self.today(), {}).values())
        under = (tokens for project, tokens in (*spent, *self._held.values()) if limit.project in ("", project))
        return sum(under)

    def left(self, limit: DayLimit) -> int:
        """Return what is left of a limit today, with what was granted beyond it; below zero: it is exceeded."""
        return limit.tokens + self._granted.get((self.today(), limit.project), 0) - self.used(limit)

    def grant(self, limit: DayLimit, tokens: int) -> None:
        """Let today have more tokens, as a person decided."""
        key = self.today(), limit.project
        self._granted[key] = self._granted.get(key, 0) + tokens

    def _oldest(self) -> date:
        return self.today() - timedelta(days=KEPT_DAYS)

    def _load(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        oldest = self._oldest()
        for path in folder.glob("*.jsonl"):
            try:
                day = date.fromisoformat(path.stem)
            except ValueError:  # not ours
                continue
            if day < oldest:
                path.unlink(missing_ok=True)
                continue
            totals = self._days[day] = {}
            for line in path.read_bytes().splitlines():
                try:
                    total = decode(line, type=DayTotal)
                except (DecodeError, UnicodeDecodeError):  # empty, or broken off
                    continue
                totals[total.tool, total.session] = total
