"""Prints the OpenAPI documents of both servers, from which the console's types are made (`npm run types`)."""

import asyncio
import json
import sys
from unittest.mock import Mock

from remit_relay.local_api.access import local_operations
from remit_relay.local_api.endpoints import SharedEndpoints
from remit_relay.local_api.openapi import shared_document
from remit_relay.local_api.pairing import GrantEndpoints, PairingEndpoints
from remit_server.console.console import ConsoleEndpoints
from remit_server.openapi import document
from remit_server.operations import bound_operations

# The routes are described and never called: whatever they would read is not needed.
NOTHING = Mock()


async def main() -> None:
    routes = [
        *SharedEndpoints(NOTHING, NOTHING).operations(),
        *bound_operations(ConsoleEndpoints(NOTHING, NOTHING)),
        *local_operations(PairingEndpoints(NOTHING, NOTHING)),
        *local_operations(GrantEndpoints(NOTHING, NOTHING)),
    ]
    json.dump({"operator": document(), "shared": shared_document(routes)}, sys.stdout)


asyncio.run(main())
