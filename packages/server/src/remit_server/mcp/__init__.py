"""The hub as tools of an MCP host: `remit mcp` over stdin and stdout, `/mcp` over HTTP."""
