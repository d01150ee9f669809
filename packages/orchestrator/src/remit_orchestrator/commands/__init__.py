"""What the orchestrator adds to commands; its plugin names it."""
