"""The operations of a browser's session, which are there if a server serves the console."""

from msgspec import Struct

from remit_server.documents.api import ApiOperation, Parameter


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


CONSOLE = ApiOperation(
    method="GET",
    path="/v1/console",
    name="console",
    summary="What is served here, and who is signed in.",
    answer=ConsoleInfo,
)
SIGN_IN = ApiOperation(
    method="POST",
    path="/v1/console/session",
    name="sign_in",
    summary="Sign in a browser by the token of a client: sets a cookie.",
    takes=SignIn,
    answer=ConsoleInfo,
    status=201,
    anyone=True,
)
SIGN_OUT = ApiOperation(
    method="DELETE",
    path="/v1/console/session",
    name="sign_out",
    summary="End the session of the browser.",
    answer=SignedOut,
)
ENTER = ApiOperation(
    method="GET",
    path="/v1/console/enter",
    name="enter",
    summary="Sign in a browser by a one-time link: sets a cookie and redirects.",
    media="",
    status=303,
    parameters=(Parameter(name="code", meaning="The code in the link.", required=True),),
    anyone=True,
)
LINKS = ApiOperation(
    method="POST",
    path="/v1/console/links",
    name="make_link",
    summary="Make a link that signs in one browser, once; only with a token.",
    answer=OneTimeLink,
    status=201,
)

BROWSER_OPERATIONS = (CONSOLE, SIGN_IN, SIGN_OUT, ENTER, LINKS)
