"""Settings of OAuth for a remote MCP server: credentials of the hub, or the login of a person."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct


class OauthClient(Struct, frozen=True, kw_only=True):
    """The credentials by which this hub gets tokens from an authorization server, without a person."""

    issuer: str
    """The only authorization server that is sent the secret, whatever the MCP server says."""
    client_id: str
    client_secret: str | None = None
    client_key: str | None = None
    """A private key (PEM) that signs a proof in the place of the secret."""
    assertion: Callable[[str, str], Awaitable[str]] | None = None
    """Gets the grant of a company's identity provider (ID-JAG) for the issuer and the MCP server; None: no such one."""
    scope: str | None = None

    def __repr__(self) -> str:  # tracebacks must not show secrets
        return f"OauthClient({self.issuer!r}, {self.client_id!r})"


class OauthLogin(Struct, frozen=True, kw_only=True):
    """Tokens for which a person logs in, in a browser."""

    issuer: str | None = None
    """The only authorization server at which to log in; None: the one that the MCP server names."""
    client_id: str | None = None
    """The id of this hub at the issuer; None: it is registered with the first login."""
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """Where the issuer can read what this hub is, in the place of a registration."""
    scope: str | None = None
    redirect_port: int | None = None
    """The port of this machine to which a browser is sent back; None: any."""
    folder: Path | None = None
    """Where the tokens are kept; None: in memory."""
    browser: Callable[[str], Awaitable[object]] | None = None
    """Opens the address of a login during a run; None: a run without a login fails."""

    def __repr__(self) -> str:
        return f"OauthLogin({self.issuer!r}, {self.client_id!r})"


class OauthKeys(Struct, frozen=True, kw_only=True):
    """What a team says of OAuth, before it is clear which way it means."""

    auth: Literal["oauth"] | None = None
    issuer: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_key: str | None = None
    client_metadata_url: str | None = None
    scope: str | None = None
    redirect_port: int | None = None

    def __repr__(self) -> str:
        return f"OauthKeys({self.issuer!r}, {self.client_id!r})"

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Return keys that do not go together, each with the reason."""
        given = [key for key in self.__struct_fields__ if getattr(self, key) is not None]
        if not given:
            return
        if self.auth is not None:
            yield from self._misfits_of_login()
            return
        for key in ("client_metadata_url", "redirect_port"):
            if key in given:
                yield key, f'`{key}` needs `auth = "oauth"`'
        for key in ("issuer", "client_id"):
            if key not in given:
                yield given[0], f"`{given[0]}` needs `{key}`, too"
        if self.client_secret is not None and self.client_key is not None:
            yield "client_key", "a hub has a `client_secret` or a `client_key`, not both"
        if self.client_secret is None and self.client_key is None:
            yield given[0], f'`{given[0]}` needs `client_secret`, too; or `auth = "oauth"` for a login'

    def _misfits_of_login(self) -> Iterator[tuple[str, str]]:
        if self.auth != "oauth":
            yield "auth", '`auth` can only be "oauth"'
        if self.client_key is not None:
            yield "client_key", "`client_key` is for a hub that gets tokens without a login"
        if self.client_secret is not None and self.client_id is None:
            yield "client_secret", "`client_secret` needs `client_id`, too"
        if self.client_id is not None and self.issuer is None:
            yield "client_id", "`client_id` needs `issuer`, too"
        if self.client_metadata_url is not None:
            if self.client_id is not None:
                yield "client_metadata_url", "a hub has a `client_id` or a `client_metadata_url`, not both"
            parts = urlsplit(self.client_metadata_url)
            if parts.scheme != "https" or parts.path in ("", "/"):
                yield "client_metadata_url", "`client_metadata_url` must be an https URL with a path"

    def chosen(self) -> OauthClient | OauthLogin | None:
        """Return the way that keys without misfits mean."""
        if self.auth is not None:
            return OauthLogin(
                issuer=self.issuer,
                client_id=self.client_id,
                client_secret=self.client_secret,
                client_metadata_url=self.client_metadata_url,
                scope=self.scope,
                redirect_port=self.redirect_port,
            )
        if self.issuer is None or self.client_id is None:
            return None
        return OauthClient(
            issuer=self.issuer,
            client_id=self.client_id,
            client_secret=self.client_secret,
            client_key=self.client_key,
            scope=self.scope,
        )


def is_private(url: str) -> bool:
    """Return whether nobody on the way can read what is sent to an address: it is encrypted, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
