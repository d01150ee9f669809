"""What a client is told over HTTP of what it asked for and cannot have."""

from typing import Any

from remit import Brief, Hub
from serving import client_of, posted, serving

ARGS = {"agent_name": "coder", "task": "Write hello world"}
NO_CONVERSATION = "The filter chose nothing, because the request names no conversation."


def coding(hub: Hub) -> Hub:
    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        return "Done."

    assert coder
    return hub


async def test_a_filter_without_a_conversation_is_told_in_the_result(hub: Hub) -> None:
    """O2: over HTTP nobody knows the caller's conversation unless its session is named."""
    async with serving(coding(hub)) as server, client_of(server) as session:

        async def errors(args: dict[str, Any], **claims: Any) -> list[str]:
            body = {"tool": "sub_agent", "args": ARGS | args, "remit": {"version": "1.0", "user": "u-1", **claims}}
            async with session.post("/dialects/subagent", json=body) as reply:
                said = await reply.json()
                assert said["success"], said
                return said["errors"]

        assert await errors({}) == []
        [warning] = await errors({"context": {"last_messages": 3}})
        assert warning.startswith(NO_CONVERSATION)
        assert await errors({"context": {"last_messages": 3, "include_summary": None}}, session="s-1") == []
        [warning] = await errors({"max_context_tokens": 6_000})
        assert warning.startswith("At most 4,000 tokens of context are passed on here, not 6,000")


async def test_the_warning_is_on_record_with_the_response(hub: Hub) -> None:
    async with serving(coding(hub)) as server, client_of(server) as session:
        ask = {"target": "coder", "user": "u-1", "objective": "Write", "context": {"roles": ["user"]}}
        status, body = await posted(session, ask)
        assert (status, body["status"]) == (200, "success")
        [warning] = body["warnings"]
        assert warning.startswith(NO_CONVERSATION)
        kept = await hub.outcome(body["run"])
        assert kept is not None
        assert kept.warnings == (warning,)
