"""What a model needs for an answer when little is left."""

# Few answers are longer. If a run has less left for one, and its team says so, a person is asked for more tokens.
ENOUGH_OUTPUT = 2_000
