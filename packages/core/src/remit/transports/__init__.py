"""How a request reaches the agent that serves it."""
