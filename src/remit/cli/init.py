"""`remit init`: create a working team."""

import re
import sys
from pathlib import Path
from typing import NoReturn

import click

from remit.cli.options import json_option

# Each is a folder in templates/.
TEMPLATES = {
    "function": "three agents in plain Python that analyze a text",
    "receipts": "three agents and a tool that sort receipts",
    "model": "a language model with a tool and an agent that it may call",
    "pydantic-ai": "a pydantic-ai agent in a team",
    "workflow": "fixed steps, with two branches that join",
    "shared": "an agent that other people's devices may call",
}
DEFAULT = "function"
IGNORED = ".remit/"
_KEY = "export OPENAI_API_KEY=…"
# The commands that show each template at work.
NEXT = {
    "function": ('remit run assistant "Agents call agents, and every call is guarded."',),
    "receipts": ('remit run assistant "Sort my receipts"',),
    "model": (_KEY, 'remit run assistant "When are you open on Friday, and what do you have about tea?"'),
    "pydantic-ai": (_KEY, 'remit run shop "What does sencha cost?"'),
    "workflow": ("""remit run shipping "What would it cost?" --input '[{"kilos": 4}, {"kilos": 2}]'""",),
    "shared": ('remit run expert "What does /orders need?"', "remit devices init"),
}


class InTheWayError(click.ClickException):
    """The files cannot be written to this folder."""

    exit_code = 2


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--name", help="Name of the team.  [default: asks for it, or the folder's name]")
@click.option("--template", type=click.Choice(list(TEMPLATES)), help=f"Template to start from.  [default: {DEFAULT}]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask; use the defaults.")
@json_option
def init(folder: Path, name: str | None, template: str | None, yes: bool, as_json: bool) -> None:
    """Create a working team in FOLDER: a team file, the agents' code, and a schema for your editor.

    In a terminal, asks for a name and a template. Existing files are never overwritten: if one of the files exists,
    nothing is written.

    \b
    Example:
      remit init
      remit init my-team --template receipts --yes
    """
    from remit.cli.show.screen import print_json
    from remit.documents.team import Written

    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    _refuse_existing(folder, _contents(template or DEFAULT, ""))
    if name is None:
        name = _ask_name(folder) if asks else _name_of(folder)
    elif not _is_name(name):
        raise click.BadParameter(_NAME_RULE, param_hint="--name")
    template = template or (_ask_template() if asks else DEFAULT)
    contents = _contents(template, name)
    _refuse_existing(folder, contents)
    _write(folder, contents)
    files = (*contents, *_ignore(folder))
    enter = () if folder.resolve() == Path.cwd() else (f"cd {_quoted(str(folder))}",)
    commands = (*enter, *_in_order(NEXT[template]))
    if as_json:
        print_json(Written(folder=str(folder), files=files, next=commands))
        return
    click.echo(f"Created the team {name} in {folder.resolve()}: {', '.join(files)}")
    click.echo("→ Next:")
    for command in commands:
        click.echo(f"    {command}")


def _in_order(commands: tuple[str, ...]) -> tuple[str, ...]:
    """Return the next commands: set the API key, validate, then run."""
    keys = tuple(each for each in commands if each.startswith("export "))
    return (*keys, "remit validate", *commands[len(keys) :])


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_NAME_RULE = "a name has at most 128 letters, digits, `-`, `_` and `.`, and starts with a letter or digit"


def _ask_name(folder: Path) -> str:
    return click.prompt("Name of the team", default=_name_of(folder), value_proc=_checked_name)


def _ask_template() -> str:
    width = max(map(len, TEMPLATES))
    for each, about in TEMPLATES.items():
        click.echo(f"  {each:{width}}  {about}", err=True)
    return click.prompt("Template", default=DEFAULT, type=click.Choice(list(TEMPLATES)))


def _checked_name(text: str) -> str:
    if not _is_name(text.strip()):
        raise click.UsageError(_NAME_RULE)
    return text.strip()


def _is_name(text: str) -> bool:
    from remit.runtime.registry import NAME

    return NAME.fullmatch(text) is not None


def _name_of(folder: Path) -> str:
    """Return the folder's name as a valid team name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.resolve().name).strip("-_.")[:128] or "team"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _contents(template: str, name: str) -> dict[str, str]:
    from importlib.resources import files
    from json import dumps

    from remit.config.team import team_schema

    folder = files("remit.cli") / "templates" / template
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    contents = {each: (folder / each).read_text(encoding="utf-8") for each in names}
    contents["remit.toml"] = contents["remit.toml"].replace("TEAM", name, 1)
    return contents | {"remit.schema.json": dumps(team_schema(), indent=2) + "\n"}


def _refuse_existing(folder: Path, contents: dict[str, str]) -> None:
    there = [name for name in contents if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        exist = "exists" if len(there) == 1 else "exist"
        _stop(f"{', '.join(str(folder / name) for name in there)} already {exist}: nothing was written")


def _stop(message: str) -> NoReturn:
    raise InTheWayError(f"{message}\n→ Choose another folder (remit init FOLDER), or move the existing files.")


def _write(folder: Path, contents: dict[str, str]) -> None:
    """Write the files, or none of them."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            # Never overwrite a file created in the meantime.
            with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        _stop(f"cannot write {error.filename or folder} ({error.strerror}): nothing was written")


def _ignore(folder: Path) -> tuple[str, ...]:
    """Add the record to .gitignore, unless it is there already; return the file name if it changed."""
    file = folder / ".gitignore"
    known = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    if any(each.strip().strip("/") == IGNORED.strip("/") for each in known.splitlines()):
        return ()
    with file.open("a", encoding="utf-8", newline="\n") as more:
        more.write(("" if not known or known.endswith("\n") else "\n") + IGNORED + "\n")
    return (".gitignore",)


def _quoted(path: str) -> str:
    from shlex import quote

    return quote(path)
