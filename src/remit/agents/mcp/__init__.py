"""MCP servers as tools of a hub's agents. The SDK is an extra, and is loaded when the first server starts."""
