"""A stand-in for the plugin of OpenCode, which sends events to a running guard."""

from typing import Any

from aiohttp import ClientSession


class OpenCodeTelling:
    """Sends events as the plugin does; each sub-agent is a session."""

    def __init__(self, web: ClientSession, parents: dict[str, str] | None = None) -> None:
        self.web = web
        self.parents = {} if parents is None else parents

    def root(self, session: str) -> str:
        above = self.parents.get(session)
        return self.root(above) if above else session

    async def tell(self, event: str, session: str, **more: Any) -> dict[str, Any]:
        about = {"session": session, "root": self.root(session), "parent": self.parents.get(session, "")}
        async with self.web.post("/hooks/opencode", json={"event": event, **about, **more}) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def use(self, session: str, tool: str, call: str = "", **arguments: Any) -> dict[str, Any]:
        """Ask to use a tool."""
        return await self.tell("tool", session, tool=tool, call=call, arguments=arguments)

    async def spawn(self, parent: str, call: str, resumes: str = "") -> str | None:
        """Ask for a sub-agent; return why it may not start."""
        about = {"kind": "general", "title": f"Start {call}", "task": "Do it", "resumes": resumes}
        return (await self.tell("spawn", parent, call=call, **about)).get("refused")

    async def start(self, parent: str, session: str) -> str | None:
        """Start a sub-agent as a session; return why it may not start."""
        refused = await self.spawn(parent, f"call-{session}")
        if refused is None:
            self.parents[session] = parent
            await self.tell("created", session)
        return refused

    async def says(self, session: str, message: str) -> dict[str, Any]:
        """Tell a message of the model with 30 tokens."""
        return await self.tell("message", session, message=message, tokens={"input": 20, "output": 10})
