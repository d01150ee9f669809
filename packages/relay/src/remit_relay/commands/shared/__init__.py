"""A chat with a shared agent: the local agent writes, and a person reviews and intervenes."""
