"""Repeats a run that did not succeed, with its original request."""

import asyncio

from remit.cli.drive.order import Order
from remit.cli.places import reading, writing
from remit.cli.show.records_view import find_run, named, records_of, summary_of
from remit.cli.show.report import short
from remit.config.composition import vault_key_of
from remit.config.team import Team
from remit.policy.redaction import TOKEN
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.redactor import Redactor


def order_again(team: Team, name: str, *, deadline_ms: int | None, max_tokens: int | None) -> Order:
    """Return the order for the run that *name* means, once more, with the time and tokens that are given or it had.

    Raises a `RemitError` if there is nothing to be tried again, or it is not known any more what was asked.
    """
    with reading(team.store_path) as connection:
        run = find_run(connection, name)
        known = summary_of(connection, run)
        asked = [each.body for each in records_of(connection, run) if isinstance(each.body, Request)]
    if known is None or not asked:
        raise _nothing(f"the {named(run)} was refused before it started", "Start a new run: remit run AGENT TASK")
    if known.response is None:
        raise _nothing(f"the {named(run)} has not ended", f"Resume it: remit runs resume {short(run)}")
    if known.response.status is Status.SUCCESS:
        raise _nothing(f"the {named(run)} succeeded", "To repeat it, start a new run: remit run AGENT TASK")
    request = asyncio.run(_whole(team, run, asked[0]))
    remit = request.remit
    besides = {
        "handoff": request.handoff,
        "context": request.context,
        "hints": request.hints,
        "tools": remit.tools,
        "targets": remit.targets,
        "may_delegate": remit.may_delegate,
    }
    return Order(
        agent=request.target,
        text=request.objective,
        user=remit.user,
        input=request.input,
        capability=request.capability,
        session=request.session if request.session != run else None,
        max_tokens=remit.tokens if max_tokens is None else max_tokens,
        deadline_ms=remit.time_ms if deadline_ms is None else deadline_ms,
        retry_of=request.id,
        besides=besides,
        team_file=str(team.file.absolute()),
        overrides=team.overrides,
    )


async def _whole(team: Team, run: str, request: Request) -> Request:
    """Return a request as it was said, before anything of it was redacted."""
    async with writing(team.store_path) as store:
        redactor = Redactor(None, vault_key_of(team))
        redactor.open(store)
        whole = await redactor.said(run, request)
    if TOKEN.search(encode((whole.objective, whole.input, whole.handoff)).decode()):
        raise _nothing(
            f"the redacted values of the {named(run)} are no longer stored",
            "Start a new run: remit run AGENT TASK. Redacted values are kept for a day, and longer in a session.",
        )
    return whole


def _nothing(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))
