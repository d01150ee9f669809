"""Runs a conversation from its first line to its exit code."""

import sys
from pathlib import Path

import click

from remit.cli.drive import running
from remit.cli.drive.order import Order
from remit.cli.drive.running import data_only, hearing
from remit.cli.talk.conversation import ChatSession, hint
from remit.config.load import load_team
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault


def chat_with_agent(order: Order, *, as_jsonl: bool, verbose: bool, named_team: Path | None) -> int:
    """Run a conversation to its end, and return the exit code of its last run."""
    with data_only() as data:
        team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        _refuse_profile(team, order.agent)
        terminal = sys.stdin.fileno() if sys.stdin.isatty() and sys.stderr.isatty() else None
        chat = ChatSession(order, team, data, as_jsonl=as_jsonl, verbose=verbose, terminal=terminal)
        with hearing(chat.hear):
            _, stuck = running.run(chat.serve())
        if stuck:
            running.leave(chat.code)
        click.echo(hint(order, named_team), err=True)
        return chat.code


def _refuse_profile(team: Team, name: str) -> None:
    """Raise a `RemitError` if a profile was named without a device."""
    if name in team.everyone or name not in team.profiles:
        return
    raise RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"`{name}` is a profile, not an agent; it works with an agent that another device shares",
            suggestion=f"Give the device and the objective: remit chat {name} DEVICE --objective TEXT",
        )
    )
