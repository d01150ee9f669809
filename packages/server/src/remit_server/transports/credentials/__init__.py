"""How hubs and clients authenticate, and what one hub allows another to do."""
