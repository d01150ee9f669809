"""A specialist that is given a history reference can read that conversation; nobody else can."""

from typing import Any

from remit import Brief, Call, Code, ContextFilter, Handoff, Hub, RemitError
from remit_testing.memory import MemoryStore


async def texts(brief: Brief, reference: Any) -> Any:
    try:
        messages = await brief.history(reference, ContextFilter(roles=frozenset({"user"})))
    except RemitError as error:
        return str(error.fault.code)
    return [message.text for message in messages]


def office() -> Hub:
    hub = Hub(store=MemoryStore())

    async def desk(brief: Brief) -> Any:
        if brief.text == "Ask":
            given = brief.request.session
        elif brief.text.startswith("Ask about "):
            given = brief.text.removeprefix("Ask about ")
        else:
            return "noted"
        reply = await brief.delegate("clerk", objective="Read it", handoff=Handoff(history=given))
        return reply.unwrap()

    async def clerk(brief: Brief) -> Any:
        below = await brief.delegate("scribe", objective="Read it too", handoff=brief.handoff)
        return {"clerk": await texts(brief, brief.handoff.history), "scribe": below.result}

    async def scribe(brief: Brief) -> Any:
        return await texts(brief, brief.handoff.history)

    async def guesser(brief: Brief) -> Any:
        return await texts(brief, brief.text)

    hub.add("desk", desk, may_call=["clerk"])
    hub.add("clerk", clerk, may_call=["scribe"])
    hub.add("scribe", scribe)
    hub.add("guesser", guesser)
    return hub


async def test_a_specialist_reads_the_conversation_that_it_is_given() -> None:
    """K5, K13, K14: also one further down, to whom the reference was passed on."""
    async with office() as hub:
        await hub.ask("desk", "I like tea", user="u-1", session="s-1")
        response = await hub.ask("desk", "Ask", user="u-1", session="s-1")
    conversations = response.unwrap()
    assert "I like tea" in conversations["clerk"]
    assert "I like tea" in conversations["scribe"]


async def test_a_caller_cannot_give_what_it_could_not_show() -> None:
    """X10: another agent's conversation, another user's, and one that was not given."""
    async with office() as hub:
        await hub.ask("guesser", "secret", user="u-1", session="other")
        response = await hub.ask("desk", "Ask about other", user="u-1", session="s-1")
        guessed = await hub.ask("guesser", "s-1", user="u-1")
        theirs = await hub.ask("scribe", "?", user="u-2", handoff=Handoff(history="s-1"))
        own = await hub.ask("scribe", "?", user="u-1", handoff=Handoff(history="other"))
        nowhere = await hub.ask("scribe", "?", user="u-1", handoff=Handoff(history="nowhere"))
    assert response.unwrap() == {"clerk": Code.PERMISSION_DENIED, "scribe": Code.PERMISSION_DENIED}
    assert guessed.unwrap() == Code.PERMISSION_DENIED
    assert theirs.unwrap() == Code.USER_MISMATCH
    assert own.unwrap() == ["secret"], "a user may name a conversation of their own"
    assert nowhere.unwrap() == Code.NOT_FOUND


async def test_what_a_callee_said_can_be_given_to_the_next() -> None:
    """K5: by the session that its response names."""
    hub = office()

    async def lead(brief: Brief) -> Any:
        (first,) = await brief.fan_out([Call(target="desk", objective="What was found")])
        handoff = Handoff(history=first.session)
        return (await brief.delegate("scribe", objective="Read it", handoff=handoff)).unwrap()

    hub.add("lead", lead, may_call=["*"])
    async with hub:
        assert (await hub.ask("lead", "Go", user="u-1")).unwrap() == ["What was found"]
