"""`remit init`: create a working team."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from remit_cli.found_agents import LocalChoice, agent_lines, local_choices, profile_lines
from remit_cli.options import json_option

# Each is a folder in templates/.
TEMPLATES = {
    "function": "three agents in plain Python that analyze a text",
    "receipts": "three agents and a tool that sort receipts",
    "model": "a language model with a tool and an agent that it may call",
    "pydantic-ai": "a pydantic-ai agent in a team",
    "workflow": "fixed steps, with two branches that join",
    "shared": "your local agent and other people's shared agents, and one that you share",
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
    "shared": ("remit pair", "remit chat"),
}
# Where `remit relay` listens, if it is not told otherwise.
GATEWAY = "ws://127.0.0.1:8765"


class InTheWayError(click.ClickException):
    """The files cannot be written to this folder."""

    exit_code = 2


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--name", help="Name of the team.  [default: asks for it, or the folder's name]")
@click.option("--template", type=click.Choice(list(TEMPLATES)), help=f"Template to start from.  [default: {DEFAULT}]")
@click.option(
    "--gateway",
    metavar="URL",
    help=f"With the template `shared`: the gateway that both devices reach.  [default: {GATEWAY}]",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask; use the defaults.")
@json_option
def init(folder: Path, name: str | None, template: str | None, gateway: str | None, yes: bool, as_json: bool) -> None:
    """Create a working team in FOLDER: a team file, the agents' code, and a schema for your editor.

    In a terminal, asks for a name and a template. Existing files are never overwritten: if one of the files exists,
    nothing is written.

    With `--template shared`, looks for agents on this machine (Claude Code, Codex, Gemini CLI, OpenCode, Qwen Code and
    Goose by the Agent Client Protocol, or a model whose key is set) and writes them into the team file as choices.

    \b
    Example:
      remit init
      remit init my-team --template receipts --yes
      remit init --template shared --gateway wss://relay.example.org
    """
    from remit_cli.show.screen import print_json
    from remit_server.documents.team import Written

    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    if gateway is not None:
        _refuse_gateway(gateway, template)
    _refuse_existing(folder, _contents(template or DEFAULT, ""))
    if name is None:
        name = _ask_name(folder) if asks else _name_of(folder)
    elif not _is_name(name):
        raise click.BadParameter(_NAME_RULE, param_hint="--name")
    template = template or (_ask_template() if asks else DEFAULT)
    if template == "shared" and gateway is None and asks:
        gateway = click.prompt("Gateway that both devices reach", default=GATEWAY, value_proc=_checked_gateway)
    contents = _contents(template, name)
    choices = _completed(contents, gateway or GATEWAY) if template == "shared" else []
    _refuse_existing(folder, contents)
    _write(folder, contents)
    files = (*contents, *_ignore(folder))
    enter = () if folder.resolve() == Path.cwd() else (f"cd {_quoted(str(folder))}",)
    commands = (*enter, *(NEXT[template] if template == "shared" else _in_order(NEXT[template])))
    if as_json:
        print_json(Written(folder=str(folder), files=files, next=commands))
        return
    click.echo(f"Created the team {name} in {folder.resolve()}: {', '.join(files)}")
    for line in _about(choices):
        click.echo(line)
    click.echo("→ Next:")
    for command in commands:
        click.echo(f"    {command}")
    if template == "shared":
        click.echo(
            "  The other person does the same; `remit pair CODE` there takes the code that `remit pair` shows here."
        )
        if gateway in (None, GATEWAY):
            click.echo(
                f"  {GATEWAY} is this machine: if no gateway runs here yet, run `remit relay` in another terminal."
            )


def _in_order(commands: tuple[str, ...]) -> tuple[str, ...]:
    """Return the next commands: set the API key, validate, then run."""
    keys = tuple(each for each in commands if each.startswith("export "))
    return (*keys, "remit validate", *commands[len(keys) :])


def _about(choices: list[LocalChoice]) -> Iterator[str]:
    """Yield which local agent was chosen, and which others could be."""
    if not choices:
        return
    first, *others = choices
    more = [each.name for each in others if not each.needs]
    yield f"Local agent: {first.name}" + (f"; also found: {', '.join(more)} (see remit.toml)" if more else "")
    for each in others:
        if each.needs:
            yield f"To use {each.name}: {each.needs}"


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


def _checked_gateway(text: str) -> str:
    _refuse_gateway(text.strip(), "shared")
    return text.strip()


def _refuse_gateway(url: str, template: str | None) -> None:
    from msgspec import ValidationError, convert

    from remit_cli.config.values import GatewayUrl

    if template != "shared":
        raise click.UsageError("--gateway is for --template shared")
    try:
        convert(url, GatewayUrl)
    except ValidationError as error:
        rule = 'expected the address of a gateway, such as "wss://relay.example.com", without a path'
        raise click.BadParameter(rule, param_hint="--gateway") from error


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

    from remit_cli.config.team_schema import team_schema

    folder = files("remit_cli") / "templates" / template
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    contents = {each: (folder / each).read_text(encoding="utf-8") for each in names}
    contents["remit.toml"] = contents["remit.toml"].replace("TEAM", name, 1)
    return contents | {"remit.schema.json": dumps(team_schema(), indent=2) + "\n"}


def _completed(contents: dict[str, str], gateway: str) -> list[LocalChoice]:
    """Write the gateway and the agents of this machine into the team file of the template `shared`; return them."""
    from json import dumps

    choices = local_choices()
    text = contents["remit.toml"].replace('"GATEWAY"', dumps(gateway), 1)
    text = text.replace("LOCAL_AGENT", "\n".join(profile_lines(choices)), 1)
    model = "".join(f"{line}\n" for line in agent_lines(choices))
    contents["remit.toml"] = text.replace("MODEL_AGENT\n\n", f"{model}\n" if model else "", 1)
    return choices


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
