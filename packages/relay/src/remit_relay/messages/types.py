"""The messages between two devices, inside the encryption, and the catalog of agents that they announce."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Struct

from remit.protocol.envelope import Answer
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.remit import Count, Name
from remit.protocol.submission import Submission
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.session.profile import MAX_ID, AttachedFile, ControlEnvelope, FileRules, Id

# More than anybody shares with one device; it limits how much of a peer's list is stored and shown.
MAX_OFFERED = 100
MAX_DESCRIPTION = 500


class QuestionMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="asks"):
    """A question to the agent that the other device shares."""

    id: Id
    """Chosen by the sender, repeated in the answer."""
    session: Id
    """The conversation that it belongs to."""
    text: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    control: ControlEnvelope
    agent: Annotated[str, Meta(max_length=MAX_ID)] = ""
    """The name of the agent, if the other device shares several with this one."""
    request: Submission | None = None
    """The complete request, if an agent of a hub asks; `text` is then a summary for people."""
    files: tuple[AttachedFile, ...] = ()
    """The files of a person's run. What the receiver does not allow makes it decline the question."""


class AnswerMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="answers"):
    """The answer of the shared agent."""

    to: Id
    session: Id
    text: str
    tokens: Count | None = None
    answer: Answer | None = None
    """The complete answer, if an agent of a hub asked; `text` is then empty."""
    files: tuple[AttachedFile, ...] = ()
    """The files of the answer to a person's run."""


class DeclineMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="declines"):
    """The final refusal or failure of a question."""

    to: Id
    session: Id
    code: str
    """An error code; an unknown one counts as a failure."""
    reason: Annotated[str, Meta(max_length=2_000)] = ""
    status: Annotated[str, Meta(max_length=50)] = ""
    """The final status, if it was started; empty: it was refused."""
    tokens: Count | None = None
    """The tokens that were spent on it."""

    @property
    def recorded(self) -> str:
        """The reason for the record: the code, and no text that the other device can choose."""
        return self.code if self.code in Code.__members__ else "the other device declined it with an unknown code"


class WithdrawMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="withdraws"):
    """The sender no longer waits for an answer; work on the question can stop."""

    to: Id
    session: Id


class ReadReceipt(Struct, frozen=True, kw_only=True, tag_field="type", tag="read"):
    """The shared agent was given a question of a person's run; its answer takes longer than a moment."""

    to: Id
    session: Id


class AgentOffer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shared agent, as announced by its device."""

    name: Name
    """Its shared name: the `agent` of a question."""
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] = ""
    files: FileRules | None = None
    """The files that it takes; None: none."""


class OffersMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="offers"):
    """All agents that the sender shares with the receiver, replacing the previous list."""

    agents: Annotated[tuple[AgentOffer, ...], Meta(max_length=MAX_OFFERED)]
    """Empty: nothing is shared."""

    def __post_init__(self) -> None:
        if len({each.name for each in self.agents}) < len(self.agents):
            raise ValueError("duplicate agent name")


class RevocationMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="revokes"):
    """The sender has revoked the receiver, and takes no more messages of it; this is the last one."""


PeerMessage = (
    QuestionMessage | AnswerMessage | DeclineMessage | WithdrawMessage | ReadReceipt | OffersMessage | RevocationMessage
)

_decoder = msgspec.json.Decoder(PeerMessage)
_kinds = frozenset(str(kind.__struct_config__.tag) for kind in get_args(PeerMessage))
write = msgspec.json.Encoder().encode


class _Kind(Struct):
    type: str = ""


def is_of_later_version(body: bytes) -> bool:
    """Return whether a message that cannot be decoded is of a kind that this version does not know."""
    try:
        kind = msgspec.json.decode(body, type=_Kind).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bool(kind) and kind not in _kinds


def decode_message(body: bytes) -> PeerMessage:
    """Decode a message of another device, or raise a `RemitError` that names the field."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = Problem("$", str(error)[:200])
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid message from peer", problems=(problem,))) from None


# ── the catalog of shared agents ──────────────────────────────────────────────────────────────────────────────────────

# An announcement is a claim of the other device: it says what can be asked there, and grants nothing here.

# The most names in one error message.
MOST_NAMED = 20

_log = logging.getLogger("remit.relay")

# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class CatalogSender:
    """Sends each device the list of agents shared with it, whenever the list has changed.

    A device that got no list yet also gets an empty one: that establishes the session, so that its own list comes at
    once.
    """

    def __init__(self, sealer: MessageCipher) -> None:
        self._sealer = sealer
        self._state = sealer.device.state
        self._sent_offers: dict[str, tuple[AgentOffer, ...] | None] = {}
        """A cache of the stored lists: only one process runs the device."""

    def tell(self, peers: Iterable[PeerDevice], offered: Callable[[str], tuple[AgentOffer, ...]]) -> None:
        """Send each device the list from *offered* if it changed; devices that are not allowed get it later."""
        for peer in peers:
            if peer.may_talk and self._last_sent(peer.device) != (now := offered(peer.device)):
                try:
                    self._seal(peer.device, now)
                except RemitError as error:  # it was revoked, or its queue is full: the next call tries again
                    _log.info("the list of shared agents is not sent to %s: %s", peer.device, error.fault.message)

    def _last_sent(self, device: str) -> tuple[AgentOffer, ...] | None:
        if device not in self._sent_offers:
            row, _ = self._sealer.peers.row(device)
            self._sent_offers[device] = self._state.fact(f"told/{row}", tuple[AgentOffer, ...])
        return self._sent_offers[device]

    def _seal(self, device: str, offer: tuple[AgentOffer, ...]) -> None:
        with self._state.writing():
            row, _ = self._sealer.peers.row(device)
            self._sealer.seal(device, write(OffersMessage(agents=offer)))
            self._state.keep(f"told/{row}", offer)
        self._sent_offers[device] = offer


# ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def store_offers(sealer: MessageCipher, opened: Opened, message: OffersMessage) -> None:
    """Store the list of a device, replacing the previous one, and delete the message."""
    state = sealer.device.state
    with state.writing():
        row, peer = sealer.peers.row(opened.sender)
        if peer.may_talk:
            state.keep(f"heard/{row}", message.agents)
        sealer.taken(opened.id)


def latest_offers(state: DeviceFile, device: str) -> tuple[AgentOffer, ...] | None:
    """Return the last list of a device; None if it sent none, or is not allowed now."""
    row, peer = Peers(state).row(device)
    return state.fact(f"heard/{row}", tuple[AgentOffer, ...]) if peer.may_talk else None


def known_devices(state: DeviceFile) -> list[tuple[PeerDevice, tuple[AgentOffer, ...] | None]]:
    """Return the known devices, by name, each with its last list."""
    return [(peer, latest_offers(state, peer.device)) for peer in Peers(state).list()]


def shares(peer: PeerDevice, offer: tuple[AgentOffer, ...] | None) -> bool:
    """Return whether a device shares an agent with this one: by its last list, else by its stored flag."""
    return peer.may_talk and (peer.shared if offer is None else bool(offer))


def choose(offer: tuple[AgentOffer, ...] | None, agent: str, device: str) -> str:
    """Return the agent of a device that is meant, or raise a `RemitError` that lists its agents.

    If the device sent no list yet, any name is accepted, and the device decides.
    """
    if offer is None:
        return agent
    names = [each.name for each in offer]
    if agent in names or (not agent and len(names) == 1):
        return agent or names[0]
    if not names:
        why, suggestion = f"{device} shares nothing with this device", "Ask its owner to share an agent with it."
    elif agent:
        why = f"{device} shares no agent `{agent[:100]}` with this device; it shares: {join_names(names)}"
        suggestion = "Name one of those (--agent NAME)."
    else:
        why = f"{device} shares several agents with this device: {join_names(names)}"
        todo = "Choose one (--agent NAME; in a chat /resume NAME)."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=todo))
    raise RemitError(fault(Code.AGENT_NOT_FOUND, why, suggestion=suggestion))


def join_names(names: Sequence[str]) -> str:
    """Return names as a list for a sentence, shortened if there are many."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
