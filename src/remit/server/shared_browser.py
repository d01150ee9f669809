"""The routes of a browser's session, as part of the local API."""

from remit.server.console.endpoints import ConsoleEndpoints
from remit.server.public_console import CONSOLE, ENTER, LINKS, SESSION, ConsoleInfo, OneTimeLink, SignedOut, SignIn
from remit.server.shared_routes import QueryParameter, SharedRoute

OPEN = (("GET", ENTER), ("HEAD", ENTER), ("POST", SESSION))
"""The operations that need neither a token nor a session: they open one."""


def browser_routes(browser: ConsoleEndpoints) -> list[SharedRoute]:
    """Return the routes."""
    return [
        SharedRoute(
            method="GET",
            path=CONSOLE,
            endpoint=browser.show,
            name="console",
            summary="What is served here, and who is signed in.",
            answer=ConsoleInfo,
        ),
        SharedRoute(
            method="POST",
            path=SESSION,
            endpoint=browser.sign_in,
            name="sign_in",
            summary="Sign in a browser by the token.",
            takes=SignIn,
            answer=ConsoleInfo,
            status=201,
        ),
        SharedRoute(
            method="DELETE",
            path=SESSION,
            endpoint=browser.sign_out,
            name="sign_out",
            summary="End the session of the browser.",
            answer=SignedOut,
        ),
        SharedRoute(
            method="GET",
            path=ENTER,
            endpoint=browser.enter,
            name="enter",
            summary="Sign in a browser by a one-time link: sets the cookie of a session and redirects.",
            parameters=(QueryParameter(name="code", meaning="The code in the link.", required=True),),
            status=303,
        ),
        SharedRoute(
            method="POST",
            path=LINKS,
            endpoint=browser.link,
            name="make_link",
            summary="Make a one-time link for a browser; only with the token.",
            answer=OneTimeLink,
            status=201,
        ),
    ]
