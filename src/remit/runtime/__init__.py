"""How it happens: async, against ports only."""
