"""What people and programs meet."""
