"""The commands of the guard; the `remit` command alone loads them."""
