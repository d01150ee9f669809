"""Agents that speak A2A 1.0, asked by the address of their card: used like those that live here."""
