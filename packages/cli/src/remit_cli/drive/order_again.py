"""The order that repeats a run."""

import asyncio

from remit.policy.redaction import TOKEN
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import AskOptions
from remit.runtime.redactor import Redactor, has_tokens_in
from remit_cli.config.composition import vault_key_of
from remit_cli.config.team import Team
from remit_cli.drive.order import Order
from remit_cli.places import reading, writing
from remit_cli.show.records_view import find_run, records_of, summary_of
from remit_cli.show.run_list import named, short
from remit_cli.store_view import place_of


def order_again(team: Team, name: str, *, deadline_ms: int | None, max_tokens: int | None) -> Order:
    """Return an order that repeats the run *name*, with the given time and tokens or those that it had.

    Raises a `RemitError` if the run cannot be retried, or its request is no longer stored.
    """
    with reading(place_of(team)) as view:
        run = find_run(view, name)
        known = summary_of(view, run)
        asked = [each.body for each in records_of(view, run) if isinstance(each.body, Request)]
    if known is None or not asked:
        raise _nothing(f"the {named(run)} was refused before it started", "Start a new run: remit run AGENT TASK")
    if known.response is None:
        raise _nothing(f"the {named(run)} has not ended", f"Resume it: remit runs resume {short(run)}")
    if known.response.status is Status.SUCCESS:
        raise _nothing(f"the {named(run)} succeeded", "To repeat it, start a new run: remit run AGENT TASK")
    request = asyncio.run(_whole(team, run, asked[0]))
    remit = request.remit
    return Order(
        agent=request.target,
        text=request.objective,
        user=remit.user,
        options=AskOptions(
            input=request.input,
            capability=request.capability,
            session=request.session if request.session != run else None,
            files=request.files,
            max_tokens=remit.tokens if max_tokens is None else max_tokens,
            deadline_ms=remit.time_ms if deadline_ms is None else deadline_ms,
            retry_of=request.id,
            handoff=request.handoff,
            context=request.context,
            hints=request.hints,
            tools=remit.tools,
            targets=remit.targets,
            may_delegate=remit.may_delegate,
        ),
        team_file=str(team.file.absolute()),
        overrides=team.overrides,
    )


async def _whole(team: Team, run: str, request: Request) -> Request:
    """Return a request with its original values restored."""
    async with writing(place_of(team)) as store:
        redactor = Redactor(None, vault_key_of(team))
        redactor.open(store)
        whole = await redactor.said(run, request)
    said = encode((whole.objective, whole.input, whole.handoff, whole.files)).decode()
    if TOKEN.search(said) or has_tokens_in(whole.files):
        raise _nothing(
            f"the redacted values of the {named(run)} are no longer stored",
            "Start a new run: remit run AGENT TASK. Redacted values are kept for a day, and longer in a session.",
        )
    return whole


def _nothing(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))
