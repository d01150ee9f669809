"""The results of a check: ok, warning or problem."""

from remit.documents.team import Check


def ok(about: str, says: str, todo: str = "") -> Check:
    return Check(state="ok", about=about, says=says, todo=todo)


def warning(about: str, says: str, todo: str) -> Check:
    return Check(state="warning", about=about, says=says, todo=todo)


def problem(about: str, says: str, todo: str) -> Check:
    return Check(state="problem", about=about, says=says, todo=todo)
