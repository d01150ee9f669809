"""One delegation, from the draft of its request to its recorded response."""
