"""A person's wish as a root request, checked like one that came over the wire."""

from collections.abc import Collection
from typing import TypedDict

from remit.policy.limits import Limits
from remit.protocol.codec import checked
from remit.protocol.envelope import USER, VERSION, ContextFilter, Handoff, Json, Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Priority, Remit


class AskOptions(TypedDict, total=False):
    """What may be said of a request besides the agent, the text and the user."""

    input: Json
    capability: str | None
    session: str | None
    request_id: str | None
    max_tokens: int | None
    deadline_ms: int | None
    max_depth: int | None
    tools: Collection[str] | None
    targets: Collection[str] | None
    may_delegate: bool
    priority: Priority
    handoff: Handoff | None
    context: ContextFilter | None
    hints: tuple[str, ...]
    correlation: str | None
    retry_of: str | None


def root_request(
    agent: str, text: str, user: str, options: AskOptions, *, run: str, created_ms: int, limits: Limits
) -> Request:
    """Return the request that starts a run, or raise a `RemitError` that names every wrong argument."""
    tools, targets, asked_depth = options.get("tools"), options.get("targets"), options.get("max_depth")
    tokens, time_ms = options.get("max_tokens"), options.get("deadline_ms")
    tokens = limits.root_tokens if tokens is None else tokens
    try:
        return checked(
            Request(
                version=VERSION,
                id=options.get("request_id") or run,
                origin=USER,
                target=agent,
                remit=Remit(
                    user=user,
                    depth=0,
                    max_depth=limits.max_depth if asked_depth is None else min(asked_depth, limits.max_depth),
                    time_ms=limits.root_time_ms if time_ms is None else time_ms,
                    tokens=tokens,
                    context_tokens=min(limits.context_tokens, tokens),
                    tools=None if tools is None else frozenset(tools),
                    targets=None if targets is None else frozenset(targets),
                    may_delegate=options.get("may_delegate", True),
                    priority=options.get("priority", Priority.NORMAL),
                ),
                objective=text,
                input=options.get("input"),
                capability=options.get("capability"),
                run=run,
                session=options.get("session") or run,
                handoff=options.get("handoff"),
                context=options.get("context"),
                hints=options.get("hints", ()),
                correlation=options.get("correlation"),
                retry_of=options.get("retry_of"),
                created_ms=created_ms,
            )
        )
    except TypeError as error:
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"an argument has the wrong type: {error}")) from error
