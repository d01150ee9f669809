"""The figures of the source tree that `bench/layout.py` prints."""

from functools import cache

import pytest

from layout import BUDGETS, PACKAGES, imports_within, measure

# What misses its budget may become smaller, and not larger: whoever adds lines deletes others, or gives a reason here.
CEILINGS = {
    "modules": 653,
    "lines": 155_060,
    "lines of tests": 154_845,
    # Upkeep of a store came from the core, and a process asks before it uses a tool of its own, or more tokens. Whoever
    # approves can reveal what tokens stand for: here, in the core, and over HTTP with its two clients. Each command
    # that limits tokens limits money, and a plugin can reach an agent by its address. The terminal shows what it cut
    # before a yes counts, and commands of three packages stop at a signal by one piece of code here.
    # Doctor says where prices come from, and the team file names a reader, a language and an encoder. Rules judge
    # answers, too: by personal data, size, a schema and functions of the team. `remit eval` and `remit runs replay`
    # have their checks and their sentences here. Tools that an agent brings along have rates.
    "package cli: lines": 21_415,
    # Cards that could not be read are read again, and users take turns for an agent that another hub hosts.
    "package cluster: lines": 8_795,
    # Tools that an agent brings along are used like those of the hub, what models read is redacted, cancels are kept,
    # money is a budget as tokens are, a person is asked for more, and what is shown of a question is made in one place.
    # Callers limit the arguments of tools, a person allows a model without a price, and plugins bring guards and
    # companions. Tools have rates, conditions judge paths and the items of lists, and a call waits for tokens that
    # others of its run hold. A user's day is shared by the runs that go on at once, in a module of its own. Answers of
    # peers are read as far as they can be, and guards judge answers: a module for each.
    # A day gets back what a cancelled run drew, resumed runs draw on it, tools that agents bring along have rates, and
    # long arguments are recorded by their beginning.
    "package core: lines": 34_950,
    "package core: modules": 139,
    # Each use of a tool is judged and recorded, and each coding tool has its own way to be told of changed arguments.
    # Money of a session is limited, asked about, refused, extended and shown as tokens are.
    "package guard: lines": 4_620,
    # Eight frameworks each have their own way to stop at a tool, to ask, to count, and to go on with other arguments.
    "package models: lines": 8_980,
    "package otel: lines": 1_741,
    # A chat names each option that is not for it.
    "package relay: lines": 27_335,
    # Credentials and the extension of A2A carry money and limits on the arguments of tools, and a cancel over A2A and
    # MCP does not need the store. Answers in A2A and every dialect are read in the forms that peers write.
    # Evaluations and replays have documents, and the guard's has what each session has used.
    "package server: lines": 27_895,
    # Money and limits on tools go over every transport, any A2A agent can be checked for Remit's extension, and a store
    # in memory begins with a copy of an empty one. Answers are judged at the hub of their caller over every transport.
    "package testing: lines": 3_585,
    # Hidden characters in a question are written out before it is kept. A hub can be recorded and replayed.
    "lines that Hub needs": 33_270,
    "files run by hub.ask with a nested delegation": 39,
    # Nine of them are fair shares of tokens, and answers that are compared with earlier ones; nine more are money, and
    # two the limits on the arguments of tools, and two the day of a user.
    "entries into a file by hub.ask with a nested delegation": 175,
    "files run by a POST to a served hub": 44,
    "entries into a file by a POST to a served hub": 157,
}


@cache
def figures() -> dict[str, tuple[float, bool | None]]:
    """Return the value of each figure, and whether it meets its goal."""
    return {figure.name.removeprefix("layout: "): (figure.value, figure.ok) for figure in measure()}


def test_every_figure_of_the_layout_meets_its_goal_or_its_ceiling() -> None:
    missed = {name: value for name, (value, ok) in figures().items() if ok is False}
    assert {name: value for name, value in missed.items() if value > CEILINGS.get(name, 0)} == {}


def test_a_figure_has_a_ceiling_only_while_it_misses_its_goal() -> None:
    assert [name for name in CEILINGS if figures()[name][1] is not False] == []


@pytest.mark.parametrize(
    "name", ["files run by hub.ask with a nested delegation", "files run by a POST to a served hub"]
)
def test_the_way_of_a_request_is_measured(name: str) -> None:
    assert figures()[name][0] > 10


def test_every_package_has_a_budget() -> None:
    assert sorted(BUDGETS) == PACKAGES


def test_imports_within_a_package_are_found_by_module_and_by_name() -> None:
    imports = imports_within("remit.runtime")
    assert "remit.runtime.frames" in imports["remit.runtime.context"]
    assert "remit.runtime.delegation.combine" in imports["remit.runtime.brief_backend"], (
        "an import within a function counts too"
    )
    assert "remit.runtime.engine" not in imports["remit.runtime.frames"]
