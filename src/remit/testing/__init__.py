"""Fakes and conformance suites, for this project's tests and for yours."""

from remit.testing.clock import TurnedClock
from remit.testing.conformance import StoreConformance
from remit.testing.memory import MemoryStore

__all__ = ["MemoryStore", "StoreConformance", "TurnedClock"]
