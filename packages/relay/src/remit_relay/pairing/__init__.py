"""Pairing two devices by a short code that their owners read to each other."""
