"""Fakes and conformance suites, for this project's tests and for yours."""

from remit.testing.agents import AgentConformance, Behaviour
from remit.testing.conformance import StoreConformance
from remit.testing.memory import MemoryStore
from remit.testing.samples import ManualClock
from remit.testing.transports.conformance import TransportConformance

__all__ = ["AgentConformance", "Behaviour", "ManualClock", "MemoryStore", "StoreConformance", "TransportConformance"]
