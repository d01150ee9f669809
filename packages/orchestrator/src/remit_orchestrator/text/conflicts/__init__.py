"""Finds where the results of several agents contradict each other, without a model.

`search` is the way in. `fields` compares what stands at one place, `assertions` reads sentences, `decided` keeps what
the user decided, and `second_reader` is for models that read after the rules.
"""

from remit_orchestrator.text.conflicts.search import find

__all__ = ["find"]
