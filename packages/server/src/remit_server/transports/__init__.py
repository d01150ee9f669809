"""How a request reaches an agent elsewhere: over HTTP and A2A, with what proves who asks."""
