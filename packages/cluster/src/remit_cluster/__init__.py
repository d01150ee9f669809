"""Many hubs as one team: PostgreSQL holds what happened, NATS carries requests."""
