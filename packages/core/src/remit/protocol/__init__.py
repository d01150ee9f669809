"""The messages of the protocol: pure values, without clock, sockets, tasks, logs or randomness."""
