"""Finds where the results of several agents contradict each other, without a model.

`search` is the way in. Fields at the same place are compared by `fields`, sentences by `statements`: `reading` gives
the words of a clause, `clause_reading` and `named_values` what they say, `opposites` which words exclude each other,
and `claims` what can be compared. `second_reader` and `statement_pairs` are for models that read after the rules.
"""

from remit_orchestrator.text.conflicts.search import find

__all__ = ["find"]
