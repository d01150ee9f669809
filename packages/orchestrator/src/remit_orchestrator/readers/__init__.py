"""Readers of users' texts: by character n-grams, by embeddings, or by a model."""
