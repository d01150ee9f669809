"""Fakes and conformance suites, for this project's tests and for yours."""

from remit.testing.agents import AgentConformance, Behaviour
from remit.testing.conformance import StoreConformance
from remit.testing.distance import TransportConformance
from remit.testing.memory import MemoryStore
from remit.testing.samples import TurnedClock

__all__ = ["AgentConformance", "Behaviour", "MemoryStore", "StoreConformance", "TransportConformance", "TurnedClock"]
