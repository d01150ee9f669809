"""Shows runs as trees, tables and sentences, without control codes from untrusted text."""
