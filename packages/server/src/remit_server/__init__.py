"""The hub's agents for callers outside, over HTTP, A2A and MCP; and agents outside for the hub."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {
    "remit.policy.reception": ("Permission",),
    "remit_server.a2a.guests": ("PublicAccess",),
    "remit_server.a2a.routes": ("Exposure",),
    "remit_server.bodies": ("send_value",),
    "remit_server.operations": ("Operation",),
    "remit_server.refusals": ("SENDER",),
    "remit_server.remote_agents": ("connect", "connect_a2a"),
    "remit_server.serving": ("serve",),
}

if TYPE_CHECKING:
    from remit.policy.reception import Permission as Permission
    from remit_server.a2a.guests import PublicAccess as PublicAccess
    from remit_server.a2a.routes import Exposure as Exposure
    from remit_server.bodies import send_value as send_value
    from remit_server.operations import Operation as Operation
    from remit_server.refusals import SENDER as SENDER
    from remit_server.remote_agents import connect as connect
    from remit_server.remote_agents import connect_a2a as connect_a2a
    from remit_server.serving import serve as serve
else:
    __getattr__ = lazy_names(__name__, _HOMES)
