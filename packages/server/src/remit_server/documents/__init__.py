"""The documents that `--json` and `--jsonl` print, with their schema names, versions and field descriptions.

Adding a field keeps the version. Renaming or removing a field, or changing its meaning, makes a new version.
"""
