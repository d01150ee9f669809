"""The endpoint of one delegation, with everything that is recorded about it."""

from urllib.parse import unquote

from remit.policy.reception import Permission
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import ANYONES
from remit.server.access import ACCESS, may_see, visible
from remit.server.bodies import Receive, Scope, Send, headers_of, send_value
from remit.server.delegation_detail import DelegationDetails
from remit.server.delegations import Delegations
from remit.server.parameters import refuse_unknown
from remit.server.team_policy import TeamPolicy


class DetailEndpoints:
    """The endpoint of single delegations."""

    def __init__(self, delegations: Delegations, policy: TeamPolicy) -> None:
        self._delegations = delegations
        self._hub = delegations.hub
        self._details = DelegationDetails(delegations.hub, policy)

    async def detail(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/runs/{run}/delegations/{path}`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope)
        run, path = (unquote(scope["path_params"][name]) for name in ("run", "path"))
        found = [each for each in await self._hub.store.runs(run=run, limit=1) if each.run == run]
        if not found or not may_see(sender, found[0], scope[ACCESS].others):
            raise RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}` that {sender.name} may see"))
        detail = await self._details.read(run, path, others=visible(sender, Permission.READ) == ANYONES)
        if detail is None:
            how = f"`GET /v1/runs/{run[:100]}` lists the delegations of the run."
            raise RemitError(fault(Code.NOT_FOUND, f"run {run} has no delegation `{path[:100]}`", suggestion=how))
        await send_value(send, detail)
