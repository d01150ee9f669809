"""What the console's page is told about this server, and how a browser signs in."""

from msgspec import Struct

CONSOLE = "/v1/console"
SESSION = "/v1/console/session"
ENTER = "/v1/console/enter"
LINKS = "/v1/console/links"


class ConsoleUser(Struct, frozen=True, kw_only=True):
    """The client of the server that a browser is signed in as."""

    name: str
    permissions: tuple[str, ...]
    may_approve: bool
    """Whether it may answer questions to a person."""


class ConsoleInfo(Struct, frozen=True, kw_only=True):
    """What this server offers to a browser."""

    version: str
    views: tuple[str, ...]
    """The parts that are served here: `operator`, `chat`."""
    who: ConsoleUser
    page_key: str
    """The value of the header `x-remit-page-key` that every request of the page needs; empty but at its sign-in."""
    team: str
    currency: str = "USD"
    """The currency of all costs, which are estimates."""


class SignIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token of a client, typed into the sign-in page."""

    token: str


class SignedOut(Struct, frozen=True, kw_only=True):
    """Whether a session has ended."""

    signed_out: bool


class OneTimeLink(Struct, frozen=True, kw_only=True):
    """A link that signs in one browser, once."""

    url: str
    expires_in_ms: int
