"""A client for the HTTP API of a hub: with types, without a hub of its own.

`HubClient` is for programs with an event loop, `SyncHubClient` for all others. Both have the same methods.
"""

from remit.client.blocking import SyncHubClient
from remit.client.client import HubClient
from remit.client.connection import DEFAULT_TIMEOUT_S
from remit.client.streams import RunEvent

__all__ = ["DEFAULT_TIMEOUT_S", "HubClient", "RunEvent", "SyncHubClient"]
