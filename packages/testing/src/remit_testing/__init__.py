"""Fakes and conformance suites, for this project's tests and for yours."""

from remit_testing.agents import AgentConformance, Behaviour
from remit_testing.conformance import StoreConformance
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from remit_testing.transports.conformance import TransportConformance

__all__ = ["AgentConformance", "Behaviour", "ManualClock", "MemoryStore", "StoreConformance", "TransportConformance"]
