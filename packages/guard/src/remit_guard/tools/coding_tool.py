"""What the guard has to know of a coding tool."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from remit_guard.service import GuardService
from remit_guard.tools.json_lines import ToolHook, has_hooks, settings_of, with_hooks, without_hooks, written

Answering = Callable[[bytes], Awaitable[dict[str, Any]]]
"""Answers one event of a tool, as its hook or plugin sends it."""


class CodingTool(ABC):
    """One coding tool: the file that the guard is put into, and the events that it answers."""

    name: ClassVar[str]
    """What it is called on the command line and in the team file."""
    title: ClassVar[str]
    command: ClassVar[str] = ""
    """The program, if it is not called as the tool is."""
    tried: ClassVar[tuple[str, ...]]
    """The versions that the guard was tried with."""

    @abstractmethod
    def path(self, project: Path | None) -> Path:
        """Return the file to change: that of one person in a project, or that of the user."""

    @abstractmethod
    def changes(self, path: Path) -> str:
        """Say what happens to the file."""

    @abstractmethod
    def put_in(self, text: str | None, folder: Path) -> str:
        """Return the content of the file with the guard of a folder in it."""

    @abstractmethod
    def take_out(self, text: str, folder: Path) -> str | None:
        """Return a content that was changed since, without the guard; None: it is to be left alone."""

    @abstractmethod
    def is_in(self, text: str, folder: Path) -> bool:
        """Return whether a content has all of the guard."""

    def obstacle(self, path: Path, folder: Path) -> str:  # noqa: ARG002 - most tools run what is in their files
        """Say what keeps the tool from running the guard that a file has, and what to do; empty: nothing known."""
        return ""

    @abstractmethod
    def answering(self, service: GuardService, user: str) -> Answering:
        """Return what answers the events of all sessions."""


class HookedTool(CodingTool):
    """A coding tool that runs commands at certain events: the hooks of its settings."""

    hooks: ClassVar[tuple[ToolHook, ...]]
    second: ClassVar[int] = 1
    """One second in the unit of its limits."""

    def changes(self, path: Path) -> str:
        events = ", ".join(dict.fromkeys(hook.event for hook in self.hooks))
        return f"This adds hooks to {path}: {events}.\nThey ask the guard by curl."

    def put_in(self, text: str | None, folder: Path) -> str:
        return with_hooks(text, folder, self.name, self.hooks, second=self.second)

    def take_out(self, text: str, folder: Path) -> str | None:
        return written(without_hooks(settings_of(text), folder))

    def is_in(self, text: str, folder: Path) -> bool:
        return has_hooks(text, folder, self.name, self.hooks, second=self.second)
