"""The console: its pages, and the sessions of the browsers that show them."""
