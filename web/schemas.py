"""Prints the OpenAPI documents of both servers, from which the console's types are made (`npm run types`)."""

import asyncio
import json
import sys
from unittest.mock import Mock

from remit.server.openapi import document
from remit.server.shared_browser import browser_routes
from remit.server.shared_endpoints import SharedEndpoints
from remit.server.shared_files import file_routes
from remit.server.shared_openapi import shared_document
from remit.server.shared_pairing import pairing_routes
from remit.server.shared_policies import policy_routes

# The routes are described and never called: whatever they would read is not needed.
NOTHING = Mock()


async def main() -> None:
    routes = [
        *SharedEndpoints(NOTHING, NOTHING).routes(),
        *browser_routes(NOTHING),
        *file_routes(NOTHING),
        *pairing_routes(NOTHING, NOTHING),
        *policy_routes(NOTHING, NOTHING),
    ]
    json.dump({"operator": document(), "shared": shared_document(routes)}, sys.stdout)


asyncio.run(main())
