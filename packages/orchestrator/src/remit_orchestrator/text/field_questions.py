"""The question for missing fields, so that a person can answer it in one sentence."""

import re
from collections.abc import Mapping
from typing import cast

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words, said_shortly
from remit_orchestrator.text.lexicon import word_set

_KINDS = {"number": "a number", "integer": "a whole number", "boolean": "yes or no", "array": "a list"}
_FORMATS = {"date": "a date", "time": "a time", "date-time": "a date and a time", "email": "an e-mail address"}
# A description that opens like this reads well after "Could you tell me".
_ASKS = word_set("question.asks")
_ARTICLES = word_set("question.articles")
_WORD = re.compile(r"[^\W_]+")
# Nobody remembers more than this of a sentence: a longer question is a list.
_MOST_IN_SENTENCE = 4
# A longer description explains; the name alone is asked for, and the description stands beside it.
_LONGEST_PHRASE = 60


def question_for(fields: Mapping[str, Schema], offered: Mapping[str, Json] | None = None) -> str:
    """Return the question for missing fields; *offered* are values from before that may be meant again."""
    before = offered or {}
    asked = [_phrase(name, schema, before) for name, schema in fields.items()]
    if len(asked) > _MOST_IN_SENTENCE:
        return "\n".join((f"Could you tell me the following? {_OWN_WORDS}", *(f"- {each}" for each in asked)))
    if len(asked) == 1:
        return f"Could you tell me {asked[0]}?"
    return f"Could you tell me {', '.join(asked[:-1])} and {asked[-1]}? {_OWN_WORDS}"


_OWN_WORDS = "You can answer in your own words, all at once."


def _phrase(name: str, schema: Schema, offered: Mapping[str, Json]) -> str:
    """Return what is asked for, in words: "the discount rate (a number)"."""
    label = in_words(name)
    about: object = schema.get("description")
    described = about.strip().rstrip(".") if isinstance(about, str) else ""
    hints = [each for each in (_kind(schema), _before(name, offered)) if each]
    words = [word.casefold() for word in _WORD.findall(described)]
    if not words:
        phrase = _named(label)
    elif words[0] in _ASKS and len(described) <= _LONGEST_PHRASE:
        phrase = _small(described)
    elif not set(_WORD.findall(label.casefold())).isdisjoint(words) and len(described) <= _LONGEST_PHRASE:
        phrase = f"the {_small(described)}"
    else:
        phrase = _named(label)
        hints.insert(0, _small(described))
    return f"{phrase} ({'; '.join(hints)})" if hints else phrase


def _named(label: str) -> str:
    """Return a field's name as what is asked for; a question word is the beginning of a clause."""
    first, _, rest = label.partition(" ")
    if first not in _ASKS or first in _ARTICLES:
        return f"the {label}"
    return label if rest else f"{label} it is"


def _small(text: str) -> str:
    """Return a text with a small first letter, unless the word is an abbreviation."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _kind(schema: Schema) -> str:
    """Return the expected form of a value, if a few words can describe it and it is not any text."""
    options: object = schema.get("enum")
    if isinstance(options, list):
        said = [str(each) for each in cast("list[Json]", options)]
        return f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else "".join(said)
    return _FORMATS.get(str(schema.get("format"))) or _KINDS.get(str(schema.get("type")), "")


def _before(name: str, offered: Mapping[str, Json]) -> str:
    return f"{said_shortly(offered[name])} as before?" if name in offered else ""
