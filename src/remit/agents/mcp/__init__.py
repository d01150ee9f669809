"""MCP servers as tools of a hub's agents. The SDK, an extra, is loaded with the first server that is started."""
