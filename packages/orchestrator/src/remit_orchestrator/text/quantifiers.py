"""Quantifiers: of how many of a kind something is said."""

from collections.abc import Sequence

from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.word_relations import concept_of

_KINDS = {kind: word_set(f"quantifier.{kind}") for kind in ("all", "most", "many", "half", "some", "few")}
_KIND_OF = {word: kind for kind, several in _KINDS.items() for word in several}
_PASSED = word_set("quantifier.passed")
# "At most 5", "a few minutes" and "each 5 kg" limit, or share out, a figure.
_NO_QUANTIFIER_AFTER = word_set("quantifier.no_quantifier_after")


def quantified(items: Sequence[str]) -> dict[str, str]:
    """Return the nouns of a part of a sentence that have a quantifier, by concept, with its kind."""
    words = [item.lower() for item in items]
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        kind = _KIND_OF.get(word)
        if kind is None or (place and kind != "all" and words[place - 1] in _NO_QUANTIFIER_AFTER - {"the"}):
            continue
        after = [each for each in words[place + 1 : place + 5] if each not in _PASSED]
        if after and after[0].isalpha():
            found[concept_of(after[0])] = kind
    return found
