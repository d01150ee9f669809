"""The endpoint of the workflows that a run follows."""

import time

from remit.documents.workflows import RunWorkflows, workflows_of
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Kind, Record
from remit.runtime.aside import aside
from remit.server.access import ACCESS, may_see
from remit.server.bodies import Receive, Scope, Send, headers_of, send_value
from remit.server.delegations import Delegations
from remit.server.parameters import refuse_unknown

# Steps are few; whoever looks at a run with more records than this looks at something else.
MOST_RECORDS = 50_000
_PAGE = 1_000
_IGNORED = frozenset({Kind.TOOL, Kind.SHARED, Kind.BREAK, Kind.REMOVED})


class WorkflowEndpoints:
    """The endpoint of workflows."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store

    async def workflow(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/runs/{run}/workflow`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope)
        run: str = scope["path_params"]["run"]
        found = [each for each in await self._store.runs(run=run, limit=1) if each.run == run]
        if not found or not may_see(sender, found[0], scope[ACCESS].others):
            raise RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}` that {sender.name} may see"))
        records = await self._records(run)
        await send_value(send, await aside.run(_workflows, run, records))

    async def _records(self, run: str) -> list[Record]:
        found: list[Record] = []
        after = 0
        while len(found) < MOST_RECORDS:
            page = await self._store.records(run=run, after=after, limit=_PAGE)
            found += [record for record in page if record.kind not in _IGNORED]
            if len(page) < _PAGE:
                break
            after = page[-1].seq
        return found


def _workflows(run: str, records: list[Record]) -> RunWorkflows:
    return workflows_of(run, records, time.time_ns() // 1_000_000)
