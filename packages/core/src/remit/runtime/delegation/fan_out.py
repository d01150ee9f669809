"""Several delegations of one caller: at once, or one after another."""

import asyncio
from collections.abc import Sequence
from typing import get_args

import msgspec
from msgspec.structs import replace

from remit.policy.budget import split_tokens
from remit.protocol.envelope import Call, Forwarded, Handoff, Json, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.runtime.context import Delegator
from remit.runtime.frames import Frame


async def fan_out(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Response]:
    """Ask all at once, each within its own limits; too many calls are refused together before any starts."""
    if (refusals := await refused_whole(dispatch, parent, calls)) is not None:
        return refusals
    begin = _begin_beside if dispatch.approval.may_ask else _begin_in_turn
    begun = await begin(dispatch, parent, shared_out(parent, calls))
    frames = [each for each in begun if isinstance(each, Frame)]
    responses = iter(await _join(dispatch, parent, frames))
    return [each if isinstance(each, Response) else next(responses) for each in begun]


async def refused_whole(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Response] | None:
    """Refuse all calls if they would exceed the limit of delegations in flight; None if they may be asked."""
    at_once = parent.in_flight() + len(calls)
    if at_once <= dispatch.parts.limits.max_fan_out:
        return None
    refusals = [await dispatch.begin(parent, call, at_once=at_once) for call in calls]
    return [each for each in refusals if isinstance(each, Response)]


def shared_out(parent: Frame, calls: Sequence[Call]) -> list[Call]:
    """Return the calls with an equal share of the remaining tokens for each call that sets none."""
    shared = [call for call in calls if call.max_tokens is None]
    left = parent.left + parent.journaled_tokens - sum(call.max_tokens or 0 for call in calls)
    share = split_tokens(left, len(shared)) if shared else 0
    return [replace(call, max_tokens=share) if call.max_tokens is None else call for call in calls]


async def _join(dispatch: Delegator, parent: Frame, frames: Sequence[Frame]) -> list[Response]:
    """Wait for all; a call that fails over to another agent does so at once."""
    if all(frame.route is None for frame in frames):
        return await dispatch.tasks.join(parent, frames)
    loop = asyncio.get_running_loop()
    routed = {frame: loop.create_task(dispatch.routed(parent, frame)) for frame in frames if frame.route}
    try:
        return await dispatch.tasks.join(parent, frames, [routed.get(frame, frame.outcome) for frame in frames])
    except BaseException:
        for task in routed.values():
            task.cancel()
        await asyncio.wait(routed.values())
        raise


async def _begin_in_turn(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Frame | Response]:
    """Begin one after another: where no person can be asked, no call keeps the others waiting."""
    begun: list[Frame | Response] = []
    try:
        for call in calls:
            begun.append(await dispatch.begin(parent, call, hedge=True))
    except asyncio.CancelledError:
        await dispatch.tasks.end([each for each in begun if isinstance(each, Frame)], "its caller was cancelled")
        raise
    return begun


async def _begin_beside(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Frame | Response]:
    """Begin all, in order; none waits for a person who is asked about another."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(dispatch.begin(parent, call, hedge=True)) for call in calls]
    try:
        if tasks:
            await asyncio.wait(tasks)
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        begun = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        await dispatch.tasks.end([each for each in begun if isinstance(each, Frame)], "its caller was cancelled")
        raise


async def chain(dispatch: Delegator, parent: Frame, calls: Sequence[Call], forward: Forwarded) -> list[Response]:
    """Ask one after another, each with the result of the one before; stop after the first without a result."""
    if forward not in get_args(Forwarded):
        problem = Problem("forward", f"expected one of: {', '.join(get_args(Forwarded))}")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "the chain is not valid: forward", problems=(problem,)))
    responses: list[Response] = []
    for call in calls:
        if responses:
            call = _following(call, responses, forward)
        responses.append(await dispatch.delegate(parent, call))
        if not responses[-1].ok:
            break
    return responses


def _following(call: Call, before: Sequence[Response], forward: Forwarded) -> Call:
    handoff = call.handoff or Handoff()
    found = before[-1].result
    outputs: dict[str, Json] = {response.target: response.result for response in before}
    if forward == "artifacts":
        found = _artifacts(before[-1]) or found
        for response in before:
            if response.artifacts:
                outputs[response.target] = {"result": response.result, "artifacts": _artifacts(response)}
    return replace(
        call,
        input=found if call.input is None else call.input,
        handoff=replace(
            handoff,
            prior_agents=(*handoff.prior_agents, *(response.target for response in before)),
            prior_outputs={**handoff.prior_outputs, **outputs},
        ),
    )


def _artifacts(response: Response) -> list[Json]:
    return [msgspec.to_builtins(each) for each in response.artifacts]
