"""Quantifiers: of how many of a kind something is said."""

from collections.abc import Sequence

from remit.words.components import words_of
from remit_orchestrator.text.word_relations import concept_of

_KINDS = {
    "all": words_of("all every each both whole entire alle allen aller jede jeder jedes jeden jedem sämtliche beide"),
    "most": words_of("most majority meisten mehrheit"),
    "many": words_of("many numerous viele vielen zahlreiche"),
    "half": words_of("half halb halbe hälfte"),
    "some": words_of("some several certain part portion teil einige einigen manche manchen mehrere"),
    "few": words_of("few wenige wenigen"),
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words}
_PASSED = words_of("of the our your their its these those der die das den dem unserer ihrer von")
# "At most 5", "a few minutes" and "each 5 kg" limit, or share out, a figure.
_NO_QUANTIFIER_AFTER = words_of("at a am the")


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
