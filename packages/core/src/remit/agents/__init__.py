"""Makes an agent from whatever a user has."""
