"""What a team file may say: every section and key, with its default and what it means."""
