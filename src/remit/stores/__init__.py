"""Where a hub remembers."""

# Beside the program, like other tools' folders of that kind; it ignores itself in git.
STORE_PATH = ".remit/hub.db"
