"""The connection of a device to its gateway: queues, delivery and calls."""
