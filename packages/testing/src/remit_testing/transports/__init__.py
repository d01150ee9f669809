"""The parts of the conformance suite for transports."""
