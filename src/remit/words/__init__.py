"""How values and names read as words, and how a text is searched and shown: what every floor above may use."""
