"""Delegations as the HTTP API shows them: handles, failures, and the agents that can be asked."""

from typing import Literal

from msgspec import Struct

from remit.protocol.card import Capability
from remit.protocol.errors import Fault


class Handle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delegation that has not ended, and where to ask for it again."""

    id: str
    run: str
    state: Literal["running", "waiting"]
    question: str = ""
    """The question to a person, while it waits for one."""
    link: str
    """Where to get its outcome."""
    events: str
    """Where to follow its events."""


class FailureBody(Struct, frozen=True, kw_only=True):
    """Why a request did not become a delegation."""

    fault: Fault
    summary: str
    """The same for the user who asked, without names, codes and limits."""


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a cancellation."""

    reason: str = ""


class PublicCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What others may know of an agent: what it is for, not how it is made."""

    name: str
    version: str = "1.0"
    description: str = ""
    capabilities: tuple[Capability, ...] = ()


class AgentList(Struct, frozen=True, kw_only=True):
    """The agents that the client may ask."""

    agents: tuple[PublicCard, ...]
