"""The translation between A2A 1.0 and our envelopes, both ways: pure, and independent of the transport."""
