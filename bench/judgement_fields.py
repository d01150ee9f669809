"""Counts the fields that are found in labelled texts, and those that are filled wrongly."""

import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from remit_orchestrator.conversation import fits
from remit_orchestrator.text.field_values import find_values
from remit_orchestrator.text.replies import read_reply

FIELDS = Path(__file__).parent.parent / "packages/orchestrator/tests/judgement" / "fields.toml"


class FieldCase(NamedTuple):
    """A labelled text, the values that stand in it, and those that were found."""

    part: str
    domain: str
    text: str
    stands: dict[str, Any]
    filled: dict[str, Any]

    @property
    def right(self) -> int:
        return sum(_same(self.filled.get(name), value) for name, value in self.stands.items())

    @property
    def wrong(self) -> dict[str, Any]:
        """The fields that were filled with what does not stand there."""
        return {name: each for name, each in self.filled.items() if not _same(each, self.stands.get(name))}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.lstrip("0").casefold() == other.lstrip("0").casefold()
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def cases(part: str | None = None, path: Path = FIELDS) -> Iterator[FieldCase]:
    """Yield the labelled texts, of one part or of all, each with what is found in it now."""
    labelled = tomllib.loads(path.read_text(encoding="utf-8"))
    today = date.fromisoformat(labelled["today"])
    for form in labelled["form"]:
        if part is not None and form["part"] != part:
            continue
        schemas, required = form["fields"], frozenset(form["required"])
        for each in form["texts"]:
            filled = find_values(each["text"], schemas, required, fits, today)
            values = {name: value.value for name, value in filled.items()}
            yield FieldCase(form["part"], form["domain"], each["text"], each["found"], values)
        for each in form.get("replies", ()):
            expected = {name: schemas[name] for name in form["required"]}
            values = read_reply(each["text"], expected, fits, today)
            yield FieldCase(form["part"], form["domain"], each["text"], each["found"], values)
