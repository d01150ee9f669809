"""What is said: pure values, without clock, socket, task, log or chance."""
