"""Prints what the guards decide about a request."""

import click

from remit.protocol.codec import text_of
from remit.protocol.envelope import USER
from remit_cli.show.screen import many, print_beside, print_fields, spoken
from remit_server.documents.verdicts import Explanation, Placing

_SHOWN = {"allow": ("ok", "green"), "rewrite": ("rewrite", "cyan"), "ask": ("ask", "yellow")}
_OBJECTION = ("refuse", "red")


_OUTCOMES = {"allowed": "green", "asks": "yellow", "refused": "red"}


def print_explanation(found: Explanation, asked_at: str) -> None:
    """Print what would happen to a request, what to do about it, and then what each guard says."""
    print_beside(f"{found.outcome}  ", _conclusion(found, asked_at), fg=_OUTCOMES[found.outcome])
    if found.fault is not None:
        for problem in found.fault.problems:
            print_beside("  ", f"{problem.path}: {problem.message}")
        print_beside("→ ", found.fault.suggestion)
    if found.authority is not None:
        print_beside("", _authority(found))
    if found.place is not None:
        print_beside("", _placing(found.place))
    click.echo()
    width = max(len(each.guard) for each in found.guards)
    for each in found.guards:
        word, colour = _SHOWN.get(each.verdict, _OBJECTION)
        code = f"{each.code}: " if each.code else ""
        print_beside(f"{word:7}  {each.guard:{width}}  ", f"{code}{each.says}", fg=colour)
    if found.struck:
        click.echo()
        seen = {False: f"{found.target} sees a token", True: f"{found.target} sees it in clear, by the team file"}
        print_fields((each.kind, f"in {each.place}; {seen[each.shown]}") for each in found.struck)
        click.echo()
        print_fields([("objective", found.request.objective), ("input", text_of(found.request.input))])


def _authority(found: Explanation) -> str:
    is_own = found.authority == "own" or found.origin == USER
    whose = "its own permissions" if is_own else f"at most the permissions of {found.origin}"
    tools, targets = ", ".join(found.tools) or "none", ", ".join(found.targets) or "nobody"
    return f"{found.target} has {whose} (authority = {found.authority}): tools {tools}; may call {targets}."


def _placing(place: Placing) -> str:
    what = "should delegate it" if place.decision == "route" else "should handle it itself"
    sure = "" if place.confidence is None else f", {place.confidence:.0%} sure"
    return f"{place.agent} {what} ({place.reason}): {place.why} [{place.capability}{sure}]."


def _conclusion(found: Explanation, asked_at: str) -> str:
    what = f"{found.origin} asking {found.target}"
    match found.outcome:
        case "allowed":
            remit = found.request.remit
            return f"{what} would be allowed, with {spoken(remit.time_ms)} and {many(remit.tokens, 'token')}."
        case "asks":
            where = "on the terminal" if asked_at == "terminal" else "in the inbox (`remit pending`)"
            edits = f" They may edit: {', '.join(found.editable)}." if found.editable else ""
            return f"{what} would wait for a person, asked {where} by {found.by}: {found.question}{edits}"
        case "refused":
            why = f"{found.fault.code}: {found.fault.message}" if found.fault else ""
            return f"{what} would be refused by {found.by}. {why}"
