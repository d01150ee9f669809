"""What is decided: pure functions of values, in modules that do not know each other."""
