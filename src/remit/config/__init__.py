"""The team file: what it may say, how it is read, and what is said of a wrong one."""
