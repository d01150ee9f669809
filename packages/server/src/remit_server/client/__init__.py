"""A client for the HTTP API of a hub: with types, without a hub of its own.

`HubClient` is for programs with an event loop, `SyncHubClient` for all others. Both have the same methods.
"""

from remit_server.client.client import HubClient, SyncHubClient
from remit_server.client.connection import DEFAULT_TIMEOUT_S, RunEvent

__all__ = ["DEFAULT_TIMEOUT_S", "HubClient", "RunEvent", "SyncHubClient"]
