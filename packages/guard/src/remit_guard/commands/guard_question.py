"""A question of the guard, on the terminal where it runs."""

import sys

import click

from remit.runtime.ports import Question
from remit.words.terminal import several_lines


def show_question(question: Question) -> None:
    """Print a question with the command that answers it, and ring the bell of a terminal."""
    bell = "\a" if sys.stderr.isatty() else ""
    answer = f"remit pending approve {question.id} --store guard"
    click.echo(f"{bell}{several_lines(question.text)}\n→ {answer}   (or: reject)", err=True)
