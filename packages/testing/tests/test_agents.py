"""The suite for agents, on the plainest agents that there are: functions."""

import asyncio

from remit import Answer, Brief, Usage
from remit.protocol.codec import text_of
from remit_testing.agents import (
    ARGUMENTS,
    COMPLETION,
    CRASH,
    ERRAND,
    HELPER,
    PIECES,
    PROMPT,
    TOOL,
    AgentConformance,
    Behaviour,
)


class TestAsyncFunctions(AgentConformance):
    no_own_tools = "what a function does by itself, the hub does not know"

    def agent(self, behaviour: Behaviour) -> object:
        async def act(brief: Brief) -> object:
            match behaviour:
                case Behaviour.ANSWERS:
                    before = [message.text for message in await brief.history()]
                    return "\n".join((*before, brief.objective, brief.text))
                case Behaviour.STREAMS:
                    for piece in PIECES:
                        brief.say(piece)
                    return "".join(PIECES)
                case Behaviour.DELEGATES:
                    return (await brief.delegate(HELPER, objective=ERRAND)).unwrap()
                case Behaviour.USES_TOOL:
                    return await brief.use(TOOL, **ARGUMENTS)
                case Behaviour.USES_OWN_TOOL:
                    return self.own_tool()
                case Behaviour.HANGS:
                    self.hangs()
                    await asyncio.Event().wait()
                case Behaviour.CRASHES:
                    raise RuntimeError(CRASH)
                case Behaviour.SPENDS:
                    return Answer("thought", usage=Usage(prompt=PROMPT, completion=COMPLETION))
                case Behaviour.SPENDS_AND_HANGS:
                    brief.spend(prompt=PROMPT, completion=COMPLETION)
                    self.hangs()
                    await asyncio.Event().wait()
                case Behaviour.LOOPS:
                    while True:
                        brief.spend(prompt=PROMPT, completion=COMPLETION)
                        await brief.use(TOOL, **ARGUMENTS)
            return None

        return act


class TestFunctions(AgentConformance):
    no_own_tools = "what a function does by itself, the hub does not know"

    def agent(self, behaviour: Behaviour) -> object:
        def act(brief: Brief) -> object:
            match behaviour:
                case Behaviour.ANSWERS:
                    before = [message.text for message in brief.wait(brief.history())]
                    return "\n".join((*before, brief.objective, brief.text))
                case Behaviour.STREAMS:
                    for piece in PIECES:
                        brief.say(piece)
                    return "".join(PIECES)
                case Behaviour.DELEGATES:
                    return brief.wait(brief.delegate(HELPER, objective=ERRAND)).unwrap()
                case Behaviour.USES_TOOL:
                    return text_of(brief.wait(brief.use(TOOL, **ARGUMENTS)))
                case Behaviour.USES_OWN_TOOL:
                    return self.own_tool()
                case Behaviour.HANGS:
                    self.hangs()
                    self.released.wait()
                case Behaviour.CRASHES:
                    raise RuntimeError(CRASH)
                case Behaviour.SPENDS:
                    brief.spend(prompt=PROMPT, completion=COMPLETION)
                    return "thought"
                case Behaviour.SPENDS_AND_HANGS:
                    brief.spend(prompt=PROMPT, completion=COMPLETION)
                    self.hangs()
                    self.released.wait()
                case Behaviour.LOOPS:
                    while True:
                        brief.spend(prompt=PROMPT, completion=COMPLETION)
                        brief.wait(brief.use(TOOL, **ARGUMENTS))
            return None

        return act
