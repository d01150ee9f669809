"""A chat with a shared agent: one's own agent speaks, and a person watches, decides and steps in."""
