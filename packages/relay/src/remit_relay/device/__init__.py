"""This device: its identity, its keys, its state file and the devices that it knows."""
