"""The team file: its sections, its loader and its checks, and the hub that is made from it."""
