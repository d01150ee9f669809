"""`remit mcp`; the plugin of MCP names it."""
