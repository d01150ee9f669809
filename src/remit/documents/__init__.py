"""What `--json` and `--jsonl` print: each document with its schema's name and version, and what its fields mean.

A field may be added to a version; one that is renamed, removed or given another meaning makes a new version.
"""
