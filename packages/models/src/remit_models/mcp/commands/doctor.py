"""The check of `remit doctor` for logins at MCP servers."""

import shlex
import time
from collections.abc import Iterator

from remit_cli.config.team import Team
from remit_cli.doctor_checks import ok, warning
from remit_models.mcp.logins import LoginFile, usable
from remit_models.mcp.oauth_settings import OauthLogin
from remit_models.mcp.section import MCP, logins_folder, oauth_keys
from remit_server.documents.team import Check


def check_logins(team: Team) -> Iterator[Check]:
    """Check that somebody is logged in at each MCP server that wants it."""
    for name, section in MCP.of(team).items():
        oauth = oauth_keys(section).chosen()
        if not isinstance(oauth, OauthLogin) or section.url is None:
            continue
        todo = f"remit mcp login {shlex.quote(name)}"
        login = usable(LoginFile(logins_folder(team), name).read(), section.url, oauth)
        if login is None:
            yield warning(f"mcp.{name}", "nobody is logged in, so its tools cannot be used", todo)
        elif login.refresh_token is None and login.renew_at is not None and login.renew_at <= time.time():
            yield warning(f"mcp.{name}", "the login has expired, so its tools cannot be used", todo)
        else:
            yield ok(f"mcp.{name}", f"logged in at {login.issuer}")
