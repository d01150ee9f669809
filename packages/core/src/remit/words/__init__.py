"""How values, names and failures read as words, and how a text is searched and shown: for every floor above."""
