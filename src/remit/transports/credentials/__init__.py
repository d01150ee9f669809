"""How hubs and clients prove who they are, and what one hub lets another do."""
