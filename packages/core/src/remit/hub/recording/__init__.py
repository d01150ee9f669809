"""Records what runs get from outside of their agents' code, and replays it."""
