"""The questions to the user: what they offer, as it is stored until the reply comes, and how fields are asked for."""

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words, short_value
from remit_orchestrator.dialogue.phrases import Texts, tokens


class Option(Struct, frozen=True, kw_only=True):
    """Something that was offered or said back, with exactly what is sent after a yes."""

    code: str
    words: str
    """What the user sees of it, without its values."""
    values: str = ""
    """Its values as they were shown."""
    text: str = ""
    input: Json = None
    stated: Json = None
    """The values of it that the user gave, to be remembered."""
    missing: tuple[str, ...] = ()
    lead: str = ""
    """The sentence that says which values were taken from before."""

    @property
    def shown(self) -> str:
        """What the user reads."""
        return f"{self.words} ({self.values})" if self.values else self.words


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """A question to the user, as it is stored with the conversation."""

    kind: Literal["options", "fields"]
    question: str
    text: str
    options: tuple[Option, ...]
    preferred: bool = False
    """Whether the first option was said back, so that a yes is enough."""
    more: tuple[str, ...] = ()
    """Capabilities that are offered if it is none of these."""
    offered: dict[str, Json] = {}
    """Values from before for missing fields."""
    agreed: bool = False
    """Whether the user has chosen what the fields are for."""

    @property
    def decision(self) -> Literal["asked", "said_back", "offered"]:
        """What an answer says of itself that puts this question."""
        return "asked" if self.kind == "fields" else "said_back" if self.preferred else "offered"


# Nobody remembers more than this of a sentence: a longer question is a list.
_MOST_IN_SENTENCE = 4
# A longer description explains; the name alone is asked for, and the description stands beside it.
_LONGEST_PHRASE = 60


def question_for(fields: Mapping[str, Schema], texts: Texts, offered: Mapping[str, Json] | None = None) -> str:
    """Return the question for missing fields; *offered* are values from before that may be meant again."""
    phrases = [_phrase(name, schema, texts, offered or {}) for name, schema in fields.items()]
    if len(phrases) > _MOST_IN_SENTENCE:
        return "\n".join((texts.ask_fields.format(fields=""), *(f"- {each}" for each in phrases)))
    return (texts.ask_field if len(phrases) == 1 else texts.ask_fields).format(fields="; ".join(phrases))


def _phrase(name: str, schema: Schema, texts: Texts, offered: Mapping[str, Json]) -> str:
    """Return what is asked for, in words: "discount rate (a number)"."""
    label = in_words(name)
    about: object = schema.get("description")
    described = about.strip().rstrip(".") if isinstance(about, str) else ""
    before = texts.as_before.format(value=short_value(offered[name])) if name in offered else ""
    hints = [each for each in (_expected_form(schema, texts), before) if each]
    if len(described) <= _LONGEST_PHRASE and not {*tokens(label)}.isdisjoint(tokens(described)):
        label = described
    elif described:
        hints.insert(0, described)
    return f"{label} ({'; '.join(hints)})" if hints else label


def _expected_form(schema: Schema, texts: Texts) -> str:
    """Return the expected form of a value, if a few words can describe it and it is not any text."""
    options: object = schema.get("enum")
    if isinstance(options, list):
        choices = [str(each) for each in cast("list[Json]", options)]
        return f"{', '.join(choices[:-1])} {texts.or_} {choices[-1]}" if len(choices) > 1 else "".join(choices)
    return next((form for each in ("format", "type") if (form := _form(texts, schema.get(each)))), "")


def as_before(values: Mapping[str, Json], texts: Texts) -> str:
    """Return the sentence that says which values were taken from before; empty without any."""
    listed = ", ".join(_value_phrase(name, value) for name, value in values.items())
    return texts.taken_from_before.format(values=listed) if listed else ""


def _value_phrase(name: str, value: Json) -> str:
    words = short_value(value) or "…"
    return words if isinstance(value, str) and not words.isdecimal() else f"{in_words(name)} {words}"


def _form(texts: Texts, name: object) -> str:
    return getattr(texts.forms, name.replace("-", "_"), "") if isinstance(name, str) else ""


def quotable(words: str) -> str:
    """Return words that a question mark may follow."""
    return words.rstrip(" ?.!")
