"""`remit store copy`; the `remit` command alone loads it."""
