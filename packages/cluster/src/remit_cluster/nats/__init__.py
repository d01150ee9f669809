"""Agents that other hubs of the team host, called over NATS: the store holds the truth, NATS carries."""
