"""The answer to a request for an unknown path, or with a method that is not allowed there."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from remit.protocol.errors import Code, fault
from remit_server.bodies import failure_body


async def no_such_thing(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or a method that is not allowed."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        takes = ", ".join(_allowed(request))
        headers = {"Allow": takes}
        what = f"method {request.method} not allowed at {request.url.path[:100]}; allowed: {takes}"
    else:
        what = f"nothing found at {request.url.path[:100]}"
    body = failure_body(fault(Code.NOT_FOUND, what, suggestion="`/openapi.json` lists what this server offers."))
    return Response(body, status, headers, media_type="application/json")


def _allowed(request: Request) -> list[str]:
    """Return the methods of an address; the router itself names those of its first route alone."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    found = [each.methods or set[str]() for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return sorted(set[str]().union(*found))
