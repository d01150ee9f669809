"""The hub's agents for callers outside: over HTTP, A2A and MCP."""
