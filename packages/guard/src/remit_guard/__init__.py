"""The sub-agents of coding tools under the limits of a hub: one budget for the whole tree of a session."""
