"""A conversation with an agent, line by line: at a terminal, or through pipes."""
