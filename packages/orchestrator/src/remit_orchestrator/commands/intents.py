"""`remit intents`: checks the examples of a team against each other, and adds examples to the team file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from remit.ports import RunSummary, StoreError
from remit.protocol.card import Capability
from remit.protocol.codec import text_of
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.options import SubcommandGroup, json_option, same_team, team_options
from remit_cli.show.screen import many, print_json, print_text
from remit_server.documents.team import AskedBack, CloseCapabilities, FewExamples, IntentsCheck, MisreadExample

if TYPE_CHECKING:
    from remit_cli.config.team import Team

# Runs of a user that are looked through, the newest first.
NEWEST_RUNS = 500
# Decisions of an orchestrator after which the user has to say more.
_ASKING = frozenset({"said_back", "offered", "asked", "cannot"})


@click.group(cls=SubcommandGroup)
def intents() -> None:
    """Check how well the examples of capabilities tell them apart, and add more.

    An orchestrator knows what users want by the examples in the team file. See `remit docs orchestrator-examples`.

    \b
    Example:
      remit intents check
      remit intents add PIZZA "I could eat a horse"
    """


@intents.command()
@click.option("--log", "reads_log", is_flag=True, help="Also read your requests in the store that were asked back.")
@click.option("--user", metavar="NAME", help="With --log: whose requests. Ask them first.  [default: current user]")
@team_options
@json_option
def check(reads_log: bool, user: str | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check the examples of the team file against each other.

    Each example is left out once and read by what the others have taught. Shown are examples that are read as another
    capability, capabilities that are too close to each other, and those with fewer than three examples. With --log,
    also requests that were asked back, each with what the user then chose. No other user's requests are read.

    \b
    Example:
      remit intents check
      remit intents check --log
    """
    from remit_cli.places import current_user, team_of

    if user is not None and not reads_log:
        raise click.UsageError("--user needs --log")
    team = team_of(team_file, overrides)
    asked = tuple(_asked_back(team, user or current_user())) if reads_log else ()
    checked = _checked([each.capability(code) for code, each in team.capabilities.items()], asked)
    if as_json:
        print_json(checked)
        return
    for line in _lines(checked, same_team(team_file)):
        print_text(line)


@intents.command()
@click.argument("capability")
@click.argument("text")
@team_options
def add(capability: str, text: str, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Add an example of a capability to the team file.

    Nothing else in the file changes: comments, order and spacing stay. Run `remit reload` for hubs that run already.

    \b
    Example:
      remit intents add PIZZA "I could eat a horse"
    """
    from remit_cli.places import relative_path, team_of, team_path

    team = team_of(team_file, overrides)
    example = " ".join(text.split())
    if not example:
        raise click.UsageError("the example is empty")
    if capability not in team.capabilities:
        raise click.UsageError(f"no capability `{capability}`{did_you_mean(capability, team.capabilities)}")
    for code, each in team.capabilities.items():
        if example.casefold() in (known.casefold() for known in each.examples):
            raise click.UsageError(f"`{code}` has this example already")
    path = team_path(team_file)
    _write_example(path, capability, example)
    print_text(f"Added to `{capability}` in {relative_path(path.absolute())}: {example}")


def _write_example(path: Path, code: str, example: str) -> None:
    from remit_orchestrator.commands.team_examples import with_example

    # As bytes, so that line ends and a byte order mark stay.
    changed = with_example(path.read_bytes().decode("utf-8-sig"), code, example)
    if changed is None:
        why = f"the examples of `{code}` are not in a table `[capabilities.{code}]` of {path.name}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Add the example there by hand."))
    mark = b"\xef\xbb\xbf" if path.read_bytes().startswith(b"\xef\xbb\xbf") else b""
    # Beside it and moved, so that a full disk leaves the file as it was; what a link leads to is changed, not the link.
    target = path.resolve()
    draft = target.with_name(f".{target.name}.new")
    try:
        draft.write_bytes(mark + changed.encode())
        draft.chmod(target.stat().st_mode & 0o7777)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


# ── the check ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(capabilities: Sequence[Capability], asked: tuple[AskedBack, ...]) -> IntentsCheck:
    from remit_orchestrator.examples import judge_examples

    verdict = judge_examples(capabilities)
    return IntentsCheck(
        capabilities=len(capabilities),
        examples=verdict.total,
        misread=tuple(
            MisreadExample(capability=e.code, text=e.text, read_as=e.read_as or None) for e in verdict.misread
        ),
        close=tuple(CloseCapabilities(capabilities=(e.one, e.other), misread=e.examples) for e in verdict.close),
        few=tuple(FewExamples(capability=code, examples=count) for code, count in verdict.few),
        asked_back=asked,
    )


def _lines(checked: IntentsCheck, team: str) -> Iterator[str]:
    right = checked.examples - len(checked.misread)
    there = f"{many(checked.examples, 'example')} of {many(checked.capabilities, 'capability')}"
    yield f"{there}: {right} read right by the others"
    for each in checked.close:
        one, other = each.capabilities
        yield f"too close: {one} and {other}: {many(each.misread, 'example')} of one are read as the other"
    for each in checked.misread:
        yield f"misread: {each.capability}: “{one_line(each.text)}” is read as {each.read_as or 'nothing'}"
    for each in checked.few:
        yield f"too few: {each.capability} has {many(each.examples, 'example')}"
    for each in checked.asked_back:
        yield f"asked back: “{one_line(each.text)}”{f' meant {each.meant}' if each.meant else ''}"
        if each.meant:
            yield f"→ remit intents add{team} {each.meant} {quote(each.text)}"
    if not (checked.misread or checked.few or checked.asked_back):
        yield "Nothing to do."


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _asked_back(team: "Team", user: str) -> Iterator[AskedBack]:
    """Yield a user's requests that an orchestrator asked back about, each with what was done in the end."""
    known = {example.casefold() for each in team.capabilities.values() for example in each.examples}
    for first, rest in _requests(team, user):
        text = " ".join(first.objective.split())
        if not text or text.casefold() in known or _has_token(text):
            continue
        known.add(text.casefold())
        meant = next((code for run in rest if (code := _carried_out(run)) is not None), None)
        yield AskedBack(text=text, meant=meant if meant in team.capabilities else None)


def _requests(team: "Team", user: str) -> Iterator[tuple[RunSummary, list[RunSummary]]]:
    """Yield each run that ended with a question, with the runs of its session that reply to it."""
    if team.orchestrator is None:
        return
    by_session: dict[str, list[RunSummary]] = {}
    for run in reversed(_runs(team, user)):
        if run.agent == team.orchestrator.name and run.response is not None:
            by_session.setdefault(run.session, []).append(run)
    for runs in by_session.values():
        at = 0
        while at < len(runs):
            end = at
            while end < len(runs) - 1 and _asks(runs[end]):
                end += 1
            if _asks(runs[at]):
                yield runs[at], runs[at + 1 : end + 1]
            at = end + 1


def _runs(team: "Team", user: str) -> list[RunSummary]:
    from remit_cli.places import place_of, reading

    place = place_of(team)
    if isinstance(place, Path) and not place.exists():
        return []
    try:
        with reading(place) as view:
            return list(view.runs(user=user, limit=NEWEST_RUNS))
    except StoreError as error:
        raise RemitError(error.fault) from error


def _asks(run: RunSummary) -> bool:
    if run.response is None:
        return False
    return run.response.requires_followup or run.response.metadata.get("decision") in _ASKING


def _carried_out(run: RunSummary) -> str | None:
    """Return the one capability that a run has carried out, or None."""
    known = {} if run.response is None else run.response.metadata
    done = (
        known.get("options", [])
        if known.get("decision") == "did"
        else [each["capability"] for each in known.get("intents", [])]
    )
    return text_of(done[0]) if len(done) == 1 else None


def _has_token(text: str) -> bool:
    from remit.policy.restoring import tokens_in

    return any(True for _ in tokens_in(text))
