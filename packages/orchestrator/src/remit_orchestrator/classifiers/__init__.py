"""Which capability a text asks for, learnt from the capabilities' own descriptions and example utterances."""
