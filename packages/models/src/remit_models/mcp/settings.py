"""Settings of an MCP server: how to reach it, which of its tools are allowed, and their names."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from remit.agents.program import Program
from remit.protocol.card import Rate, Sees
from remit.protocol.remit import Names
from remit.runtime.registry import NAME, team_invalid
from remit_models.mcp.oauth_settings import OauthClient, OauthLogin, is_private

# A lookup takes a second; a tool that takes longer than this should be an agent.
TIME_S = 60.0
# About 25,000 tokens: a model that gets more loses track, and most context windows are full.
MAX_OUTPUT = 100_000


class Address(Struct, frozen=True, kw_only=True):
    """A remote server, over HTTP."""

    url: str
    token: str | None = None
    oauth: OauthClient | OauthLogin | None = None

    def __repr__(self) -> str:
        return f"Address({self.url!r})"


class Unset(Struct, frozen=True, kw_only=True):
    """A server whose secret is not set; using it raises an error that says so."""

    why: str


class Offered(Struct, frozen=True, kw_only=True):
    """What a server may ask for while one of its tools is used."""

    elicitation: bool = False
    """Whether a person can be asked."""
    sampling: bool = False
    """Whether an agent that may use the server's tools has a model."""


class Settings(Struct, frozen=True, kw_only=True):
    """A server as a team uses it."""

    name: str
    reach: Program | Address | Unset
    allow: tuple[str, ...]
    """The tools of the server that agents may use; all others are hidden."""
    safe_to_repeat: frozenset[str] = frozenset()
    """Which of them are safe to repeat; what the server claims is not trusted."""
    sees: Names | dict[str, Sees] = frozenset()
    """Kinds of personal data that its tools get unredacted: all tools, or by tool; only the team decides this."""
    clear: frozenset[str] = frozenset()
    """The tools whose results models get unredacted."""
    rates: dict[str, Rate] = {}
    """How often its tools may be used, by tool."""
    prefix: str | None = None
    """Prefix of its tools' names, joined with a dot. None: the server's name. Empty: no prefix."""
    time_s: float = TIME_S
    max_output: int = MAX_OUTPUT
    pins: Path | None = None
    """The file that remembers how its tools were described; None: they are remembered while the hub is open."""
    files: bool = False
    """Whether results are objects with `content` and `files`, for agents that read pictures and the like."""
    sampling: bool = True
    """Whether it may have the model of a calling agent write texts."""

    def names(self) -> dict[str, str]:
        """Return the allowed tools by their names in the hub, or raise a `RemitError`."""
        tools: dict[str, str] = {}
        for tool in dict.fromkeys(self.allow):
            name = hub_name(self.name if self.prefix is None else self.prefix, tool)
            if not NAME.fullmatch(name):
                raise team_invalid(f"MCP server `{self.name}`: `{name}` cannot be a tool's name")
            if name in tools:
                raise team_invalid(f"MCP server `{self.name}`: `{tools[name]}` and `{tool}` would both be `{name}`")
            tools[name] = tool
        for key in ("safe_to_repeat", "clear", "rates"):
            for tool in sorted(set(getattr(self, key)) - set(self.allow)):
                raise team_invalid(f"MCP server `{self.name}`: {key} names `{tool}`, which is not in allow")
        for tool in sorted(set(self.sees) - set(self.allow)) if isinstance(self.sees, dict) else ():
            raise team_invalid(f"MCP server `{self.name}`: sees names `{tool}`, which is not in allow")
        if not tools:
            raise team_invalid(f"MCP server `{self.name}`: allow names no tool, so that agents could use none")
        return tools

    def seen_by(self, tool: str) -> Sees:
        """Return the kinds of personal data that one of its tools gets unredacted."""
        return self.sees.get(tool, frozenset()) if isinstance(self.sees, dict) else self.sees

    def key_of(self, tool: str) -> str:
        """Return the key in the team file that sets what a tool sees."""
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", tool)
        return f"mcp.{self.name}.sees.{tool if bare else json.dumps(tool)}"


def hub_name(prefix: str, tool: str) -> str:
    """Return the name of a server's tool in the hub, without characters that would need quoting."""
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", tool)
    return f"{prefix}.{clean}" if prefix else clean


def server_reach(
    name: str,
    command: str | None,
    args: Sequence[str],
    env: Mapping[str, str],
    folder: Path | str | None,
    url: str | None,
    token: str | None,
    oauth: OauthClient | OauthLogin | None = None,
) -> Program | Address:
    """Return how to reach a server, or raise a `RemitError` unless exactly one way is given."""
    if (command is None) == (url is None):
        raise team_invalid(f"MCP server `{name}` needs `command`, which starts it, or `url`, where it is; not both")
    if command is None:
        assert url is not None
        if args or env or folder:
            raise team_invalid(f"MCP server `{name}`: args, env and folder are for one that has a `command`")
        if token is not None and oauth is not None:
            raise team_invalid(f"MCP server `{name}` has a token or credentials for OAuth, not both")
        if isinstance(oauth, OauthLogin) and not is_private(url):
            raise team_invalid(f"MCP server `{name}`: auth needs an https URL")
        return Address(url=url, token=token, oauth=oauth)
    if token is not None or oauth is not None:
        raise team_invalid(
            f"MCP server `{name}`: a token is for one that has a `url`; give a program its secret in env"
        )
    if sys.platform == "win32":
        raise team_invalid(f"MCP server `{name}`: a `command` needs a system with process groups, which Windows is not")
    if isinstance(args, str):
        raise team_invalid(f"MCP server `{name}`: args takes several texts, not one: [{args!r}]")
    return Program(command=command, args=tuple(args), env=dict(env), folder=None if folder is None else str(folder))
