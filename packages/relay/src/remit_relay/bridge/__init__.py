"""The local agent of a profile: a process or an agent of the local hub that drafts the next message."""
