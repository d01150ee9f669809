"""Where the results of several agents contradict each other: found without a model, so that 9:40 never passes
for 10:40.
"""

from remit.text.conflicts.search import find

__all__ = ["find"]
