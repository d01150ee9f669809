"""Stores: where a hub keeps its records."""

# In the working directory, like the folders of similar tools; it has a `.gitignore`.
STORE_PATH = ".remit/hub.db"

# The addresses of PostgreSQL databases start with these.
POSTGRES = ("postgresql://", "postgres://")
