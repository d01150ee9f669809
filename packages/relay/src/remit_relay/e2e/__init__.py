"""End-to-end encryption between two devices: ratchet sessions, frames and ordered streams."""
