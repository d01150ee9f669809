"""The turns of the local agents: one prompt at a time for each profile, and the permissions they ask for."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from remit_relay.bridge.ports import (
    AskUser,
    Draft,
    DraftFailure,
    LocalAgent,
    PermissionRequest,
    PromptConstraints,
    PromptRequest,
)
from remit_relay.bridge.supervised_agent import SupervisedAgent
from remit_relay.device.state import until_stored
from remit_relay.session import moves
from remit_relay.session.moves import Event
from remit_relay.session.run import MoveRefused, Overlay, request

_log = logging.getLogger("remit.relay")

Report = Callable[[str, Event], Awaitable[MoveRefused | None]]
"""Reports an event to a run, and returns why it was refused, if it was."""
Drafted = Callable[[str, str, Draft | DraftFailure, str], Awaitable[None]]
"""Takes the outcome of a prompt: the run, the prompt, the draft, and the remote message that it answers."""

Written = Callable[[str, str, Callable[[], str]], None]
"""Takes the run and the prompt of a draft that is being written, and a function that returns its text so far."""


class LocalTurns:
    """Asks local agents for drafts. What they ask their user is part of the run, and is answered there."""

    def __init__(self, agent_of: Callable[[str, AskUser], LocalAgent], report: Report, drafted: Drafted) -> None:
        self._agent_of = agent_of
        self._report = report
        self._drafted = drafted
        self.written: Written = lambda _run, _prompt, _text: None
        """Called while an agent writes a draft, if it tells its words one by one."""
        self._agents: dict[str, LocalAgent] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        """One prompt at a time for each profile."""
        self._prompts: dict[str, asyncio.Task[None]] = {}
        self._drafting: dict[str, str] = {}
        """The run of each session whose agent is drafting."""
        self._questions: dict[str, asyncio.Future[str | None]] = {}
        self._ending: set[asyncio.Task[MoveRefused | None]] = set()

    async def close(self) -> None:
        """Cancel all prompts and end all agents."""
        await _cancelled(self._prompts.values())
        for agent in self._agents.values():
            await agent.close()
        await _cancelled(self._ending)  # a start ends what was asked before it

    def begin(self, run: Overlay, prompt: moves.Prompt, constraints: PromptConstraints) -> None:
        """Ask the agent of the run's profile, once it is free."""
        prompt_request = request(prompt, profile=run.profile, session=run.session, constraints=constraints)
        task = asyncio.create_task(self._ask(run.id, prompt_request))
        self._prompts[prompt.id] = task
        task.add_done_callback(lambda _: self._prompts.pop(prompt.id, None))

    def cancel(self, prompt: str) -> None:
        """Cancel a prompt, if it is not answered yet."""
        if prompt in self._prompts:
            self._prompts[prompt].cancel()

    def answer(self, question: str, choice: str | None) -> None:
        """Tell the agent what the person chose."""
        waiting = self._questions.get(question)
        if waiting is not None and not waiting.done():
            waiting.set_result(choice)

    async def _ask(self, run: str, request: PromptRequest) -> None:
        profile = request.profile_id
        async with self._turns.setdefault(profile, asyncio.Lock()):
            if await self._report_event(run, moves.Prompted(request.request_id)) is not None:
                return
            if profile not in self._agents:
                self._agents[profile] = agent = self._agent_of(profile, self._ask_user)
                if isinstance(agent, SupervisedAgent):
                    agent.written = self._has_written
            self._drafting[request.session_id] = run
            try:
                outcome = await _draft_from(self._agents[profile], request)
            finally:
                del self._drafting[request.session_id]
        await until_stored(lambda: self._drafted(run, request.request_id, outcome, request.remote_message))

    async def _report_event(self, run: str, event: Event) -> MoveRefused | None:
        return await until_stored(lambda: self._report(run, event))

    def _has_written(self, request: PromptRequest, text: Callable[[], str]) -> None:
        run = self._drafting.get(request.session_id)
        if run is not None:
            self.written(run, request.request_id, text)

    async def _ask_user(self, question: PermissionRequest) -> str | None:
        """Make a permission request a part of its run, and wait for the answer of a person."""
        run = self._drafting.get(question.session_id)
        numbered = replace(question, id=secrets.token_hex(8))
        if run is None:
            return None
        self._questions[numbered.id] = waiting = asyncio.get_running_loop().create_future()
        try:
            return await waiting if await self._report_event(run, moves.Asked(numbered)) is None else None
        except asyncio.CancelledError:
            # Reported by a task of its own, because this one is being cancelled.
            task = asyncio.create_task(self._report_event(run, moves.Unasked(numbered.id)))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            raise
        finally:
            del self._questions[numbered.id]


async def _cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    if ended:
        await asyncio.wait(ended)


async def _draft_from(agent: LocalAgent, request: PromptRequest) -> Draft | DraftFailure:
    """Return the draft of an agent; an exception of its driver is reported as a failure of the agent."""
    try:
        return await agent.prompt(request)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run must not wait forever
        _log.exception("the driver of the agent of %s failed", request.profile_id)
        return DraftFailure(reason=f"the driver of the agent failed ({type(error).__name__}); see the log", hard=True)
