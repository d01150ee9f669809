"""A local agent that speaks the Agent Client Protocol. Its SDK, an extra, is loaded with the first process."""

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from remit.agents.program import Program
from remit.installed import install_command
from remit.ports import Clock
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.bridge.ports import WITH_TOOLS_MS, AskUser, Draft, DraftFailure, PromptRequest, deny
from remit_relay.bridge.supervised_agent import AgentLink, SupervisedAgent

# Real agents take up to twelve seconds on a slow machine; `npx` may first download some hundred megabytes.
START_S = 120.0
_LINK = "remit_relay.bridge.acp_link"


class AcpAgent(SupervisedAgent):
    """The agent of a profile as a process that speaks ACP, version 1, on its stdin and stdout.

    - Each run has a session of the agent, in the folder of its program. A new process resumes it if the agent can,
      unless the previous process was lost during a turn of it. Every prompt contains the whole request as text
      (`in_words`).
    - The text after its last tool call is the draft; earlier text is about its work. The last line `[DONE]` means that
      the objective is met. Thoughts and plans are ignored.
    - Each tool call counts as a round. After one round too many, or a text that is too long, the turn is cancelled.
    - Permission requests go to *ask_user*, and the time limit is paused meanwhile. The client offers no terminals and
      no files; with *reads_files* it offers reading files of the folder (`FolderReader`). What the agent's own process
      can do is not restricted here.
    - An abandoned turn is cancelled; if it has not ended 3 s later, its process is ended.
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
        """Use *program* for *profile*; raise a `RemitError` if the extra `acp` is not installed."""
        if find_spec("acp") is None:
            why = f"the local agent of {profile} needs the extra `acp`, which is not installed"
            todo = f"Install it: {install_command('acp')}"
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
        sessions: dict[str, str] = {}

        def link() -> AgentLink:
            from remit_relay.bridge.acp_link import AcpLink

            return AcpLink(
                profile,
                program,
                ask_user=ask_user,
                reads_files=reads_files,
                start_s=start_s,
                sessions=sessions,
                written=self._has_written,
            )

        super().__init__(link, ceiling_ms=ceiling_ms, clock=clock)

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message; see `SupervisedAgent`."""
        if _LINK not in sys.modules:  # the SDK takes half a second to load: in a thread
            await asyncio.to_thread(import_module, _LINK)
        return await super().prompt(request)

    def _has_written(self, request: PromptRequest, text: Callable[[], str]) -> None:
        self.written(request, text)
