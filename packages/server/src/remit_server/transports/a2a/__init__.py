"""Agents that support A2A 1.0, called by the address of their card: used like local agents."""
