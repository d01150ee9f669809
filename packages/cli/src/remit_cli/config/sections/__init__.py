"""The content of a team file: every section and key, with its default and meaning."""
