"""The page of environment variables."""

from page_tracing import VARIABLES as OPENTELEMETRY
from remit.agents.program import FOR_EVERY_PROCESS, FOR_USER_PROGRAMS
from remit_cli.config.origins import NAME
from remit_cli.config.team_search import TRUST_VARIABLE as TRUST
from remit_cli.config.team_search import VARIABLE as TEAM

HEAD = """\
# Environment variables

Precedence: flag, environment, team file, default. This page is made from the code; `make docs` makes it anew.

## The team

| variable | meaning |
|---|---|
"""

OF_TEAM = {
    TEAM: "The team file, for every command that takes `--team`.",
    TRUST: "Team files, as absolute paths, that are read though others can write to them "
    "([The team file](team.md#whose-file-it-may-be)).",
    NAME: "The name of the hub.",
    "REMIT_SECTION__KEY": "Overrides a key of the team file: `REMIT_LIMITS__MAX_DEPTH=3`. "
    "[The team file](team.md#overrides) has the variable of every key.",
    "NAME": "Any variable that the team file refers to as `$NAME`: [Secrets](team.md#secrets).",
}

OF_TERMINAL = {
    "NO_COLOR": "No colours, if it is set; it counts more than `FORCE_COLOR`.",
    "FORCE_COLOR": "Colours also in a pipe or a file, if it is set.",
    "COLUMNS": "The width that tables and pages are fitted to; default: that of the terminal.",
    "TERM": "No colours and no redrawing, if it is `dumb`.",
    "VISUAL": "The editor for requests and messages that are edited before they go.",
    "EDITOR": "The same, if `VISUAL` is not set.",
    "REMIT_GUARD": "The folder of the guard for coding tools; default: `~/.remit/guard`.",
    "CODEX_HOME": "The folder of Codex's settings, for `remit guard codex`; default: `~/.codex`.",
    "CLAUDE_CONFIG_DIR": "The folder of Claude Code's settings, for `remit guard claude-code`; default: `~/.claude`.",
    "GEMINI_CLI_HOME": "The folder that has `.gemini`, for `remit guard gemini-cli`; default: your home.",
    "XDG_CONFIG_HOME": "Where `remit up --install` puts the service of systemd; default: `~/.config`.",
}

OF_MODELS = """
## Models

The keys of providers (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, …) are read by pydantic-ai, where the team file names no
other: [Agents of a language model](../how-to/llm-agents.md). `remit init` looks for them to suggest agents.
"""

PROCESSES = """
## Processes that Remit starts

No process gets a variable that it was not given: no key, no token, no proxy. Every one has, as far as they are set,
{every}, and those that begin with `PYTHON` if it runs Python. An MCP server and a local agent also have
{user}. The key `env` in the team file names others.
"""


def environment_page() -> str:
    """Return the page of environment variables."""
    only_user = [name for name in FOR_USER_PROGRAMS if name not in FOR_EVERY_PROCESS]
    return "".join(
        (
            HEAD,
            _rows(OF_TEAM),
            "\n## The terminal\n\n| variable | meaning |\n|---|---|\n",
            _rows(OF_TERMINAL),
            OF_MODELS,
            "\n## OpenTelemetry\n\nThey count only where a team has `[telemetry]` ([Tracing](tracing.md)).\n\n",
            "| variable | meaning |\n|---|---|\n",
            _rows(OPENTELEMETRY),
            PROCESSES.format(every=_names(FOR_EVERY_PROCESS), user=_names(only_user)),
        )
    )


def _rows(meanings: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {meaning} |\n" for name, meaning in meanings.items())


def _names(variables: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{each}`" for each in variables)
