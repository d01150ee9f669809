"""Loads the file of `remit eval`, and reports all errors at once."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.problems import WrongPart, did_you_mean, wrong_fields
from remit.runtime.schemas import check_schema
from remit_cli.config.code import CodeError, code_at
from remit_cli.config.load import ValueSource, parse_text, read_schema
from remit_cli.config.sections.cases import EvalCase, EvalFile, Expectation
from remit_cli.config.team import Team


def load_cases(path: Path, load: Callable[[EvalFile], Team]) -> tuple[EvalFile, Team]:
    """Return the cases in a file with their team, or raise a `RemitError` that names each invalid key with its line.

    The team is loaded once it is known whether it is asked, or recordings of it.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is not text in UTF-8"
        raise RemitError(fault(Code.TEAM_INVALID, f"{path} cannot be read: {why}", suggestion=_MANUAL)) from error
    values, lines = parse_text(text, path, suggestion=_MANUAL)

    def refuse(wrong: list[WrongPart]) -> None:
        if wrong:
            count = "one thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
            problems = tuple(ValueSource(path.name, lines, {}).problems(values, wrong))
            raise RemitError(
                fault(Code.TEAM_INVALID, f"{count} wrong in {path}", problems=problems, suggestion=_MANUAL)
            )

    refuse([WrongPart(place, _plainer(message)) for place, message in wrong_fields(values, EvalFile)])
    file = msgspec.convert(values, EvalFile)
    cases = {name: _with_schema(case, path.parent) for name, case in file.cases.items()}
    refuse([WrongPart(("cases", name, "expect", "schema"), why) for name, why in cases.items() if isinstance(why, str)])
    file = replace(file, cases=cases)
    team = load(file)
    refuse(list(_mistaken(file, team)))
    return file, team


_MANUAL = "`remit docs evaluating` lists the keys."


def _plainer(message: str) -> str:
    return (
        message.replace("unknown field", "unknown key")
        .replace("known fields:", "known keys:")
        .replace("required field is missing", "required key is missing")
    )


def _with_schema(case: EvalCase, folder: Path) -> EvalCase | str:
    """Return a case with its schema read from the file that it names, or what is wrong with the schema."""
    given = case.expect.answer_schema
    if given is None:
        return case
    schema, why = (given, None) if isinstance(given, dict) else read_schema(folder / given)
    why = why or (check_schema(schema) if schema is not None else None)
    return why or replace(case, expect=replace(case.expect, answer_schema=schema))


def _mistaken(file: EvalFile, team: Team) -> Iterator[WrongPart]:
    """Yield what the types alone do not show to be wrong."""
    if not file.cases:
        yield WrongPart(("cases",), "there is no case: add a table `[cases.NAME]`")
    if file.agent is not None:
        yield from _unknown(("agent",), [file.agent], team)
    for name, case in file.cases.items():
        place, expect = ("cases", name), case.expect
        if case.agent is None and file.agent is None:
            yield WrongPart((*place, "agent"), "name the agent to ask, here or at the top of the file")
        if case.turns and case.task:
            yield WrongPart((*place, "turns"), "a case has `task` or `turns`, not both")
        if not (case.turns or case.task or case.input is not None or case.capability):
            yield WrongPart((*place, "task"), "nothing is asked: give `task`, `turns`, `input` or `capability`")
        if case.agent is not None:
            yield from _unknown((*place, "agent"), [case.agent], team)
        for key, agents in (("asked", expect.asked), ("not_asked", expect.not_asked), ("order", expect.order)):
            yield from _unknown((*place, "expect", key), agents, team)
        yield from _unreadable((*place, "expect"), expect, team)


def _unreadable(place: tuple[str, ...], expect: Expectation, team: Team) -> Iterator[WrongPart]:
    if expect.matches is not None:
        try:
            re.compile(expect.matches)
        except re.error as error:
            yield WrongPart((*place, "matches"), f"this is not a regular expression: {error}")
    if expect.check is not None:
        try:
            code_at(expect.check, team.folder)
        except CodeError as error:
            yield WrongPart((*place, "check"), str(error))
    if expect.max_cost is not None and not expect.max_cost.endswith(team.currency):
        yield WrongPart((*place, "max_cost"), f"the prices of the team are in {team.currency}")
    if expect.code is not None and expect.status is Status.SUCCESS:
        yield WrongPart((*place, "code"), "a run with an error code does not succeed: give `status` as well")


def _unknown(place: tuple[str, ...], agents: Iterable[str], team: Team) -> Iterator[WrongPart]:
    for agent in agents:
        if agent not in team.everyone:
            near = did_you_mean(agent, team.everyone) or f"; this team has: {', '.join(team.everyone)}"
            yield WrongPart(place, f"no such agent `{agent}`{near}")
