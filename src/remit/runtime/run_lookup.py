"""What the store knows of a run: its request, its delegations and its outcome."""

from remit.policy.reception import peer_of
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Delegation, Record, Refusal, delegations
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.response import needs_wording
from remit.runtime.ports import Store
from remit.runtime.text_reader import text_reader


async def outcome_of(parts: RuntimeContext, run: str, *, raw: bool = True) -> Response | None:
    """Return the outcome of a run as its user gets it; None if it has not ended or was never submitted.

    Unless it is *raw*, tokens stand for personal values.
    """
    (summary, *_) = await parts.store.runs(run=run, limit=1) or [None]
    if summary is None or summary.run != run or summary.response is None:
        return None
    response = await parts.redactor.for_user(run, summary.response) if raw else summary.response
    if summary.via:
        response = response.outward()
    if not needs_wording(response):
        return response
    request = await request_of(parts, run) if summary.via else None
    if request is not None and peer_of(request) is not None:
        return response  # another hub words it for its own users
    return text_reader().for_user(response, parts.registry.cards)


async def request_of(parts: RuntimeContext, run: str, *, raw: bool = True) -> Request | None:
    """Return the root request of a run in the user's words, or with tokens; None if nothing is recorded."""
    (record, *_) = await parts.store.records(run=run, limit=1) or [None]
    match record.body if record is not None else None:
        case Request() as request:
            pass
        case Refusal(request=request):
            pass
        case _:
            return None
    return await parts.redactor.said(request.run, request) if raw else request


async def delegations_of(store: Store, run: str) -> list[Delegation]:
    """Return the delegations of a run: caller, callee, objective and outcome."""
    await store.flush()
    records: list[Record] = []
    while page := await store.records(run=run, after=records[-1].seq if records else 0):
        records += page
    return delegations(records)
