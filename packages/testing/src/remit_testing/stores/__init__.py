"""The parts of the conformance suite for stores."""
