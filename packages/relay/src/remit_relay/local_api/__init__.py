"""The local API of a device: its runs with shared agents, for programs and browsers of the same user."""
