"""What is shown of runs: trees, tables, sentences, and nothing that a terminal could take for a command."""
