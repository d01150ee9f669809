"""What commands do with a store in PostgreSQL; the `remit` command alone loads it."""
