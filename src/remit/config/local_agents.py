"""The local agent of a profile: an agent of the team's hub, or a program."""

from collections.abc import Mapping

from remit.config.device import program_of
from remit.config.team import Team
from remit.protocol.errors import RemitError, in_sentences
from remit.relay.bridge.frames import PromptRequest
from remit.relay.bridge.permissions import AskUser
from remit.relay.bridge.ports import DraftFailure, LocalAgent
from remit.runtime.engine import Engine


def local_agent(
    team: Team, hub: Engine | None, profile: str, *, user: str, ask_user: AskUser, environ: Mapping[str, str]
) -> LocalAgent:
    """Return the local agent of a profile; for one that cannot be there, what says why to each of its runs."""
    said = team.profiles[profile]
    try:
        if said.agent is not None:
            return _of_hub(hub, said.agent, user)
        program = program_of(team, profile, environ)
        if said.run is not None:
            from remit.relay.bridge.ndjson import NdjsonAgent

            return NdjsonAgent(profile, program)
        from remit.relay.bridge.acp import AcpAgent

        return AcpAgent(profile, program, ask_user=ask_user, reads_files=said.files == "read")
    except RemitError as error:
        return _Unavailable(in_sentences(error.fault.message, error.fault.suggestion))


def _of_hub(hub: Engine | None, agent: str, user: str) -> LocalAgent:
    if hub is None:
        return _Unavailable(f"the agent {agent} of this team is not running here")
    from remit.relay.bridge.hub import HubAgent

    return HubAgent(hub, agent, user=user)


class _Unavailable:
    """Stands for an agent that cannot be there, so that its runs say why."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def prompt(self, request: PromptRequest) -> DraftFailure:  # noqa: ARG002 - of the port
        return DraftFailure(reason=self._why, hard=True)

    async def close(self) -> None: ...
