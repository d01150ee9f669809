"""What the runtime asks of its stores, transports, agents and other parts: protocols, and the values that they pass."""

from typing import TYPE_CHECKING

from remit.ports.remote import Companion as Companion
from remit.ports.remote import Credential as Credential
from remit.ports.remote import Departure as Departure
from remit.ports.remote import Handler as Handler
from remit.ports.remote import HostingHub as HostingHub
from remit.ports.remote import NobodyServesError as NobodyServesError
from remit.ports.remote import OtherHubs as OtherHubs
from remit.ports.remote import OutgoingRequest as OutgoingRequest
from remit.ports.remote import Remote as Remote
from remit.ports.remote import RemoteHandle as RemoteHandle
from remit.ports.remote import Slot as Slot
from remit.ports.remote import Transport as Transport
from remit.ports.store import ANYONES as ANYONES
from remit.ports.store import FACTS as FACTS
from remit.ports.store import FIRST_EPOCH as FIRST_EPOCH
from remit.ports.store import MOST_EPOCHS as MOST_EPOCHS
from remit.ports.store import MOST_FACTS as MOST_FACTS
from remit.ports.store import MOST_LOOKED_AT as MOST_LOOKED_AT
from remit.ports.store import MOST_NOTES as MOST_NOTES
from remit.ports.store import MOST_READ as MOST_READ
from remit.ports.store import NO_RUN as NO_RUN
from remit.ports.store import USED as USED
from remit.ports.store import AcceptedRequest as AcceptedRequest
from remit.ports.store import Approver as Approver
from remit.ports.store import Archive as Archive
from remit.ports.store import ControlAction as ControlAction
from remit.ports.store import ControlCommand as ControlCommand
from remit.ports.store import Controls as Controls
from remit.ports.store import Conversations as Conversations
from remit.ports.store import Counters as Counters
from remit.ports.store import Decision as Decision
from remit.ports.store import DuplicateRequest as DuplicateRequest
from remit.ports.store import Inbox as Inbox
from remit.ports.store import Journal as Journal
from remit.ports.store import ListedRecords as ListedRecords
from remit.ports.store import ListedSessions as ListedSessions
from remit.ports.store import Listings as Listings
from remit.ports.store import NumberedRecord as NumberedRecord
from remit.ports.store import OrphanedRun as OrphanedRun
from remit.ports.store import Question as Question
from remit.ports.store import Recorder as Recorder
from remit.ports.store import RecordFilter as RecordFilter
from remit.ports.store import Requests as Requests
from remit.ports.store import ReusedProof as ReusedProof
from remit.ports.store import RunEpoch as RunEpoch
from remit.ports.store import RunScope as RunScope
from remit.ports.store import RunState as RunState
from remit.ports.store import RunSummary as RunSummary
from remit.ports.store import SealedValue as SealedValue
from remit.ports.store import SessionFilter as SessionFilter
from remit.ports.store import SessionOwner as SessionOwner
from remit.ports.store import SessionSummary as SessionSummary
from remit.ports.store import SingleUseProof as SingleUseProof
from remit.ports.store import Store as Store
from remit.ports.store import StoreError as StoreError
from remit.ports.store import Submitted as Submitted
from remit.ports.store import TakenRequest as TakenRequest
from remit.ports.store import Vault as Vault
from remit.ports.store import silent_outcome as silent_outcome
from remit.ports.store import unknown_outcome as unknown_outcome
from remit.protocol.lazy_names import lazy_names

# Reading a store needs no agents, and the brief of an agent imports much of `policy`.
_HOMES = {
    "remit.ports.agents": (
        "Clock", "ConversationReader", "LanguageModel", "Payer", "RegisteredAgent", "Summarizer", "TokenCounter",
        "Tool", "Workspace",
    ),
    "remit.ports.brief": ("Agent", "AgentFunction"),
    "remit.ports.keys": ("HubKeys",),
    "remit.ports.text_reader": ("TextReader",),
    "remit.ports.upkeep": ("Erased", "Pruned", "RetainingStore", "Retention", "StoreEngine", "Upkeep"),
}  # fmt: skip
if TYPE_CHECKING:
    from remit.ports.agents import Clock as Clock
    from remit.ports.agents import ConversationReader as ConversationReader
    from remit.ports.agents import LanguageModel as LanguageModel
    from remit.ports.agents import Payer as Payer
    from remit.ports.agents import RegisteredAgent as RegisteredAgent
    from remit.ports.agents import Summarizer as Summarizer
    from remit.ports.agents import TokenCounter as TokenCounter
    from remit.ports.agents import Tool as Tool
    from remit.ports.agents import Workspace as Workspace
    from remit.ports.brief import Agent as Agent
    from remit.ports.brief import AgentFunction as AgentFunction
    from remit.ports.keys import HubKeys as HubKeys
    from remit.ports.text_reader import TextReader as TextReader
    from remit.ports.upkeep import Erased as Erased
    from remit.ports.upkeep import Pruned as Pruned
    from remit.ports.upkeep import RetainingStore as RetainingStore
    from remit.ports.upkeep import Retention as Retention
    from remit.ports.upkeep import StoreEngine as StoreEngine
    from remit.ports.upkeep import Upkeep as Upkeep
else:
    __getattr__ = lazy_names(__name__, _HOMES)
