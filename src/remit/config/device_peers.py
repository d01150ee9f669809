"""Profiles, shared agents, offers and allowed senders, derived from the devices that a team's device knows."""

from collections.abc import Iterable, Mapping
from functools import partial

from remit.config.sections.relay import AttachmentsSection, SharedSection
from remit.config.team import Team
from remit.config.values import duration_ms
from remit.protocol.card import AgentCard
from remit.relay.bridge.ports import PromptConstraints
from remit.relay.device.peers import PeerDevice, Peers
from remit.relay.messages.catalog import CatalogSender
from remit.relay.serve_shared import Shared, offered
from remit.relay.session import review
from remit.relay.session.file_rules import FileRules
from remit.relay.session.profile import Profile, ProfileLimits


class PeerSnapshot:
    """The derived values, as of the last look."""

    def __init__(
        self,
        team: Team,
        peers: Peers,
        sections: Mapping[str, SharedSection],
        cards: Mapping[str, AgentCard],
        teller: CatalogSender | None,
    ) -> None:
        self._team = team
        self._peers = peers
        self._sections = sections
        self._cards = cards
        self._teller = teller
        self.profiles: dict[str, Profile] = {}
        self.shared: dict[str, Shared] = {}
        self.senders: tuple[str, ...] = ()
        self.revoked: dict[str, str] = {}
        """The devices with which nothing can be exchanged any more, and why."""

    def look(self) -> None:
        """Read changes of the known devices, and notify devices whose offers have changed."""
        peers = self._peers.list()
        self.profiles.update({name: profile_of(self._team, name, peers) for name in self._team.profiles})
        self.shared.update(
            {
                # Devices that a command named take the place of those of the team file, and of what was granted.
                name: shared_of(name, said, peers, self._cards, grants=said is self._team.shared.get(name))
                for name, said in self._sections.items()
            }
        )
        self.senders = tuple(sorted(each.device for each in peers if each.may_talk))
        self.revoked = {each.device: each.revocation for each in peers if each.revocation}
        if self._teller is not None:
            self._teller.tell(peers, partial(offered, self.shared))


def profile_of(team: Team, name: str, peers: Iterable[PeerDevice]) -> Profile:
    """Return a profile of the team, with those of its devices that are known.

    A device may be named by the team file, which needs `allow_shared_agent_calls = true`, or granted by this device's
    owner (`PeerDevice.may_be_asked_by`), which is enough unless the team file says `false`.
    """
    said, known = team.profiles[name], list(peers)
    devices = _ids(said.devices, known) if said.allow_shared_agent_calls else frozenset[str]()
    if said.allow_shared_agent_calls is not False:
        devices |= {each.device for each in known if each.may_be_asked_by(name)}
    return Profile(
        id=name,
        allow_shared_agent_calls=bool(said.allow_shared_agent_calls or devices),
        allowed_shared_device_ids=devices,
        max_concurrent_shared_calls=said.max_concurrent_shared_calls,
        max_hop_count=said.max_hop_count,
        rate=said.rate,
        mode=said.mode,
        limits=ProfileLimits(
            max_turns=said.limits.max_turns,
            max_duration_ms=duration_ms(said.limits.max_duration),
            max_failures=said.limits.max_failures,
            max_tokens_budget=said.limits.max_tokens,
        ),
        rules=review.ReviewRules(
            off=said.rules.disabled,
            min_confidence=said.rules.min_confidence,
            max_chars=said.rules.max_chars,
            min_shared_words=said.rules.min_shared_words,
        ),
        constraints=PromptConstraints(
            max_output_chars=said.constraints.max_output_chars,
            allow_tool_use=said.constraints.allow_tool_use,
            max_history_turns=said.constraints.max_history_turns,
            max_history_chars=said.constraints.max_history_chars,
            max_tool_rounds=said.constraints.max_tool_rounds,
            local_turn_timeout_ms=duration_ms(said.constraints.turn_timeout),
        ),
        files=_file_rules(said.attachments),
        keep_files_ms=duration_ms(said.attachments.keep),
    )


def shared_of(
    name: str,
    said: SharedSection,
    peers: Iterable[PeerDevice],
    cards: Mapping[str, AgentCard] = {},
    *,
    grants: bool = True,
) -> Shared:
    """Return the shared agent of a section, with those devices that the section names, or that were granted it."""
    agent = said.agent or name
    known = [each for each in peers if each.allowed and not each.revoked]
    granted = {each.device for each in known if grants and each.may_ask(name)}
    profile = Profile(
        id=name,
        # A shared agent is enabled; `devices` and grants say for whom, if those devices may connect at all.
        allow_shared_agent_calls=True,
        allowed_shared_device_ids=_ids(said.devices, known) | granted,
        max_concurrent_shared_calls=said.max_concurrent_shared_calls,
        max_hop_count=said.max_hop_count,
        rate=said.rate,
        files=_file_rules(said.attachments),
    )
    described = cards[agent].description if said.description is None and agent in cards else said.description
    return Shared(agent=agent, profile=profile, description=described or "")


def _file_rules(said: AttachmentsSection) -> FileRules:
    return FileRules(types=said.types, max_size=said.max_size, max_count=said.max_count)


def _ids(named: Iterable[str], peers: Iterable[PeerDevice]) -> frozenset[str]:
    """Return the ids of devices that are given by full id, by a unique name, or by a group."""
    wanted = set(named)
    return frozenset(each.device for each in peers if not each.revoked and wanted & each.names)
