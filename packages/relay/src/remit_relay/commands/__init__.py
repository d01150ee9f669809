"""The commands for devices and the agents that they share; the `remit` command alone loads them."""
