"""What is decided about a request: pure functions of values."""
