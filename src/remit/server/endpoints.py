"""ASGI endpoints that send a refusal as a response."""

import logging
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from remit.protocol.errors import Code, RemitError, fault
from remit.server.access import ACCESS, Access
from remit.server.bodies import ClientGone, Receive, Scope, Send, headers_of, send_fault
from remit.server.refusals import note

log = logging.getLogger("remit")

Endpoint = Callable[[Scope, Receive, Send], Any]


def guarded(endpoint: Endpoint, access: Access | None = None) -> "Guarded":
    """Return an endpoint that sends refusals as responses, and ends quietly when the client disconnects.

    *access* says who may use it; None: the caller checks that.
    """
    return Guarded(endpoint, access)


class Guarded:
    """An endpoint as an ASGI application."""

    def __init__(self, endpoint: Endpoint, access: Access | None) -> None:
        self._endpoint = endpoint
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        scope[ACCESS] = self.access
        if named := scope.get("path_params"):
            # Decoded only now: an id may hold a slash that does not separate path segments.
            scope["path_params"] = {name: unquote(value) for name, value in named.items()}

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._endpoint(scope, receive, sending)
        except RemitError as error:
            if not started:
                with suppress(RemitError):  # a header that is sent twice
                    note(scope, headers_of(scope), error.fault)
                await send_fault(send, error.fault)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("%s %r failed: %s", scope["method"], scope["path"][:100], type(error).__name__)
            if not started:
                await send_fault(send, fault(Code.DELEGATION_FAILED, f"the server failed ({type(error).__name__})"))
