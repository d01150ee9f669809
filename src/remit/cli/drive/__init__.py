"""How the command line drives runs: in the foreground, in a process of their own, from another process."""
