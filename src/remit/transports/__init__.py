"""How a request reaches whoever serves it."""
