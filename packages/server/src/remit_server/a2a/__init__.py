"""Each exposed agent as an A2A 1.0 agent: its card, JSON-RPC and HTTP+JSON."""
