"""A local agent that speaks the Agent Client Protocol. Its SDK, an extra, is loaded with the first process."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from remit.agents.mcp.settings import Program
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.bridge.frames import PromptRequest
from remit.relay.bridge.limits import WITH_TOOLS_MS
from remit.relay.bridge.permissions import AskUser, deny
from remit.relay.bridge.ports import Draft, DraftFailure
from remit.relay.bridge.process import MissingError
from remit.relay.bridge.supervised_agent import AgentLink, SupervisedAgent
from remit.runtime.ports import Clock

# Real ones take up to twelve seconds on a slow machine; `npx` may fetch some hundred megabytes first.
START_S = 120.0


class AcpAgent(SupervisedAgent):
    """The agent of a profile as a process that speaks ACP, version 1, on its stdin and stdout.

    - Each session of the overlay is a session of the agent's, in the folder of its program. A new process takes it up
      again where it can, unless the one before was lost in a turn of it. Every prompt holds all that the request says,
      in words (`in_words`).
    - What it says after its last tool call is the draft; what it said before that was about its work. The last line
      `[DONE]` means that all is done. Thoughts and plans are not looked at.
    - Each tool call counts as a round. One too many, or a text that is too long, and the turn is cancelled.
    - What it asks leave for is put to *ask_user*, and its time stands still meanwhile. Of the host's it is offered
      neither terminals nor files, or with *reads_files* to read those of its folder (`FolderReader`); what its own
      process can do is its own affair.
    - A turn that is given up is cancelled; one that has not ended 3 s later is ended with its process.
    """

    def __init__(
        self,
        profile: str,
        program: Program,
        *,
        ask_user: AskUser = deny,
        reads_files: bool = False,
        start_s: float = START_S,
        ceiling_ms: int = WITH_TOOLS_MS,
        clock: Clock | None = None,
    ) -> None:
        """Serve *profile* by *program*; raise a `RemitError` if the extra `acp` is not installed."""
        if find_spec("acp") is None:
            raise RemitError(
                fault(
                    Code.TEAM_INVALID,
                    f"the local agent of {profile} needs the extra `acp`, which is not installed",
                    suggestion="Install it: pip install 'remit[acp]'",
                )
            )
        sessions: dict[str, str] = {}

        def link() -> AgentLink:
            from remit.relay.bridge.acp_link import AcpLink

            return AcpLink(
                profile, program, ask_user=ask_user, reads_files=reads_files, start_s=start_s, sessions=sessions
            )

        super().__init__(lambda: _LazyLink(link), ceiling_ms=ceiling_ms, clock=clock)


class _LazyLink(AgentLink):
    """A link that loads the SDK when it is opened."""

    def __init__(self, make: Callable[[], AgentLink]) -> None:
        self._make = make
        self._link: AgentLink | None = None
        self._ended = False

    async def open(self) -> None:
        # It takes half a second, and others go on meanwhile.
        await asyncio.to_thread(import_module, "remit.relay.bridge.acp_link")
        if self._ended:
            raise MissingError("the local agent was closed before it was started")
        self._link = self._make()
        await self._link.open()

    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:
        assert self._link is not None, "opened before it is asked"
        return await self._link.ask(request, timer)

    async def cancel_turn(self) -> bool:
        return self._link is not None and await self._link.cancel_turn()

    async def end(self) -> None:
        self._ended = True
        if self._link is not None:
            await self._link.end()

    async def exit_failure(self) -> str | None:
        return None if self._link is None else await self._link.exit_failure()

    @property
    def is_up(self) -> bool:
        return self._link is not None and self._link.is_up
