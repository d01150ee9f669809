"""Agents that other devices share, in the hub of a team."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from remit.protocol.card import AgentCard
from remit.protocol.errors import RemitError
from remit_cli.config.composition import remote_options
from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.team import Composition
from remit_relay.call_shared import DeviceAccess, DeviceAgent, RemoteCaller, device_access_of
from remit_relay.team.section import SHARED

log = logging.getLogger("remit")


def connect_device(made: Composition, name: str, agent: AgentSection, device: str) -> None:
    """Add an agent of another device to a team's hub."""
    limits: dict[str, Any] = {} if agent.rate is None else {"rate": agent.rate}
    if agent.concurrency is not None:
        limits["max_concurrent_shared_calls"] = agent.concurrency
    caller = RemoteCaller(
        agent=name, device=device, remote=agent.remote or "", max_hop_count=agent.max_hop_count, **limits
    )
    about = remote_options(made.team, agent)
    about["capabilities"] = tuple(about["capabilities"])
    about["concurrency"] = caller.max_concurrent_shared_calls
    access = next(iter(device_access_of(made.hub)), None) or _device_access(made)
    # If it is called again after a restart, the other side returns what it has already done.
    made.hub.register(AgentCard(name=name, resumable=True, **about), DeviceAgent(caller, access), access.close)


def _device_access(made: Composition) -> DeviceAccess:
    """Return the connection of the hub to the team's device: one that runs in this process, or one that it starts."""

    def at_work() -> AbstractAsyncContextManager[object]:
        from remit_relay.team.device_service import relaying

        return relaying(made.team, hub=made.hub, host=False, share=False, environ=made.environ)

    return DeviceAccess(at_work)


@asynccontextmanager
async def device_beside(made: Composition) -> AsyncGenerator[None]:
    """Run the device of a team with agents on other devices; it also shares agents, since no other process can.

    If it fails, the rest is still served: calls to such agents fail with the reason.
    """
    from remit_relay.team.device_service import relaying

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(
                relaying(made.team, hub=made.hub, host=False, share=bool(SHARED.of(made.team)), environ=made.environ)
            )
        except RemitError as error:
            log.warning("agents on other devices cannot be called: %s", error.fault.message)
        yield
