"""The labelled teams in `judgement/`, checked against their digests, and how many words they share."""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from msgspec import Struct, convert

from remit import Capability
from remit.protocol.envelope import Json

FOLDER = Path(__file__).parent / "judgement"
DIGESTS = FOLDER / "SHA256SUMS"

# Words that say nothing about what is wanted, in the three languages.
_STOP_WORDS = frozenset((FOLDER / "stop_words.txt").read_text(encoding="utf-8").split())

FieldValues = dict[str, str | int]


class ListedCapability(Struct, forbid_unknown_fields=True):
    """A capability as its team file has it; a field is `type: description`, where a type may be `one|another`."""

    description: str
    examples: list[str]
    read_only: bool = False
    fields: dict[str, str] = {}

    def choices(self, field: str) -> list[str]:
        """Return the values that a field may have; none if it may have any."""
        kind = self.fields[field].partition(":")[0]
        return [] if kind in {"string", "integer"} else kind.split("|")

    def declared(self, code: str) -> Capability:
        return Capability(
            code=code,
            description=self.description,
            examples=tuple(self.examples),
            read_only=self.read_only,
            input_schema=self._schema() if self.fields else None,
        )

    def _schema(self) -> dict[str, Json]:
        properties: dict[str, Json] = {}
        for name, each in self.fields.items():
            kind, _, description = each.partition(": ")
            choices = self.choices(name)
            typed: dict[str, Json] = {"type": "string", "enum": [*choices]} if choices else {"type": kind}
            properties[name] = typed | {"description": description}
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.fields),
            "additionalProperties": False,
        }


class Requests(Struct, forbid_unknown_fields=True):
    """Texts that ask for one capability, for none that can be told, and for what the team does not do."""

    clear: list[tuple[str, str]]
    vague: list[str]
    foreign: list[str]


class Call(Struct, frozen=True):
    """A capability that has to be executed, with the values that its input must have."""

    code: str
    values: FieldValues = {}


class Turn(Struct, forbid_unknown_fields=True):
    """What a person says in a dialogue, and what has been executed once their questions are answered."""

    says: str
    does: list[str]
    hold: bool = False
    """Whether the next turn is the reply to the question that this one brings."""

    def calls(self) -> list[Call]:
        return [_call(each) for each in self.does]


class Dialogue(Struct, forbid_unknown_fields=True):
    """The turns of one conversation."""

    turns: list[Turn]


Piece = str | tuple[str, str]


class Several(Struct, forbid_unknown_fields=True):
    """Requests with several parts, each a list of its pieces: texts between parts, and `[capability, text]`.

    A part without a capability is foreign. `?CODE` stands under a condition.
    """

    parts: list[list[Piece]]


class Compound(Struct):
    """A request with several parts."""

    text: str
    codes: list[str]
    """What is asked for without a condition, in order."""
    conditional: list[str]
    foreign: list[str]
    """The pieces that nobody here can do."""
    order: list[str]
    """All capabilities in order, the conditional ones too."""
    pieces: list[tuple[str, str]]
    """Each part's capability, empty if it is foreign, and its words."""


class LabelledTeam(Struct, forbid_unknown_fields=True):
    """A team with its labelled texts."""

    name: str
    language: str
    capabilities: dict[str, ListedCapability]
    values: dict[str, str | int]
    """What a person answers if a question for a field comes that the text does not answer."""
    requests: Requests
    several: Several
    dialogue: list[Dialogue]

    def changing(self) -> list[str]:
        return [code for code, each in self.capabilities.items() if not each.read_only]

    def compounds(self) -> list[Compound]:
        return [_compound(each) for each in self.several.parts]


class Replies(Struct, forbid_unknown_fields=True):
    """Forms of replies in a language; `{n}`, `{ordinal}` and `{name}` stand for an option."""

    ordinals: list[str]
    none: str
    numbers: list[str]
    names: list[str]
    agree: list[str]
    deny: list[str]
    unrelated: list[str]

    def choosing(self, kind: Literal["numbers", "names"], at: int, shown: str) -> Iterator[str]:
        """Yield the replies that choose the option at a place, counted from 0."""
        for form in self.numbers if kind == "numbers" else self.names:
            yield form.format(n=at + 1, ordinal=self.ordinals[at], name=shown, lower=shown.lower())


def check_digests() -> None:
    """Raise a `ValueError` if a set is not the one whose digest was written down before its first run."""
    noted = dict(line.split()[::-1] for line in DIGESTS.read_text(encoding="ascii").splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.glob("*.toml")}
    if noted != found:
        changed = sorted(dict(noted.items() ^ found.items()))
        raise ValueError(f"these sets differ from {DIGESTS.name}: {', '.join(changed)}")


@cache
def teams() -> list[LabelledTeam]:
    """Return all labelled teams by language, English first."""
    check_digests()
    paths = sorted(path for path in FOLDER.glob("*.toml") if path.stem != "replies")
    found = [convert(tomllib.loads(path.read_text(encoding="utf-8")), LabelledTeam) for path in paths]
    return sorted(found, key=lambda team: ("en", "de", "es").index(team.language))


@cache
def replies(language: str) -> Replies | None:
    """Return the forms of replies in a language; None where there are no phrases in it."""
    found = _replies().get(language)
    return None if found is None else convert(found, Replies)


def lists(team: LabelledTeam) -> Iterator[tuple[str, list[str]]]:
    """Yield lists of verbatim examples of a team, each with the capabilities that it names."""
    forms: Sequence[str] = _replies()["lists"].get(team.language, _replies()["lists"]["en"])
    codes = list(team.capabilities)
    for at, form in enumerate(forms):
        wanted = [codes[(at + 3 * place) % len(codes)] for place in range(form.count("{"))]
        examples = [team.capabilities[code].examples for code in wanted]
        texts = [each[(at + place) % len(each)] for place, each in enumerate(examples)]
        yield form.format(*texts), wanted


def overlap(team: LabelledTeam, *, own: bool) -> float:
    """Return the share of a clear request's words that occur in the examples: its *own* capability's, or all."""
    everything = content_words(" ".join(text for each in team.capabilities.values() for text in each.examples))
    shares: list[float] = []
    for code, text in team.requests.clear:
        words = content_words(text)
        known = content_words(" ".join(team.capabilities[code].examples)) if own else everything
        shares.append(len(words & known) / len(words))
    return mean(shares)


def content_words(text: str) -> set[str]:
    """Return the words of a text that say what is wanted."""
    return {word for word in re.findall(r"\w+", text.casefold()) if word not in _STOP_WORDS}


@cache
def _replies() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "replies.toml").read_text(encoding="utf-8"))


def _call(written: str) -> Call:
    code, _, values = written.partition(" ")
    pairs = (each.split("=", 1) for each in values.split("; ") if each)
    return Call(code, {name: int(value) if value.isdecimal() else value for name, value in pairs})


def _compound(pieces: Sequence[Piece]) -> Compound:
    parts = [piece for piece in pieces if not isinstance(piece, str)]
    return Compound(
        text="".join(piece if isinstance(piece, str) else piece[1] for piece in pieces),
        codes=[code for code, _ in parts if code and not code.startswith("?")],
        conditional=[code[1:] for code, _ in parts if code.startswith("?")],
        foreign=[text for code, text in parts if not code],
        order=[code.lstrip("?") for code, _ in parts if code],
        pieces=[(code.lstrip("?"), text) for code, text in parts],
    )
