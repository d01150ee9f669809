"""How long texts are kept, what stays of a record after that, and what an erasure removed."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import SAID, Kind

DAY_MS = 24 * 3_600_000

# They say what happened to the record itself.
NEVER_REMOVED = frozenset({Kind.BREAK, Kind.REMOVED})

# The texts in the other kinds of records; notices and steps with other devices have none that people wrote.
_TEXTS: dict[Kind, tuple[str, ...]] = {
    Kind.PROGRESS: ("text", "finished", "unfinished"),
    Kind.TOOL: ("input",),
    Kind.APPROVAL: ("question", "reason"),
}
# Of those, the ones that a record cannot be without.
_NEEDED = ("text", "question")
_ENVELOPES = frozenset({Kind.STARTED, Kind.DELEGATION, Kind.RESULT})
HAVING_TEXTS = (*sorted(_ENVELOPES), Kind.REFUSED, *_TEXTS)


class Retention(NamedTuple):
    """For how many milliseconds each kind of data is kept; None: for ever."""

    records: int | None = None
    """Everything about a run."""
    messages: int | None = None
    """The texts in it: what was asked, answered, reported and given to tools; and notes."""
    vault: int | None = None
    """The values behind placeholders."""
    facts: int | None = None
    """Facts about users."""

    @property
    def is_forever(self) -> bool:
        return all(each is None for each in self)

    def rule(self) -> str:
        """Return the rule as it stands in statements about removals."""
        given = {name: getattr(self, name) for name in self._fields}
        return ", ".join(f"{name} {_days(ms)}" for name, ms in given.items() if ms is not None) or "for ever"


FOREVER = Retention()


@runtime_checkable
class RetainingStore(Protocol):
    """A store that removes what is no longer kept, and erases users."""

    retention: Retention
    vault_key: bytes | None


class Erased(NamedTuple):
    """What was erased."""

    subject: str
    """The keyed digest of the user's name in the record."""
    rows: int
    facts: int
    values: int
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""


def _days(ms: int) -> str:
    return f"{ms / DAY_MS:g}d"


def outline_of(kind: Kind, raw: bytes) -> bytes:
    """Return the body of a record without its texts: who, when, how it ended and what it cost."""
    body: dict[str, Any] = msgspec.json.decode(raw)
    if kind in _ENVELOPES:
        return encode(_without_texts(body))
    if kind is Kind.REFUSED:
        return encode({part: _without_texts(envelope) for part, envelope in body.items()})
    texts = _TEXTS.get(kind, ())
    kept = {name: value for name, value in body.items() if name not in texts}
    return encode(_with_bare_fault(kept) | {name: "" for name in texts if name in _NEEDED})


def _without_texts(envelope: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in envelope.items() if name not in SAID}
    return _with_bare_fault(kept)


def _with_bare_fault(body: dict[str, Any]) -> dict[str, Any]:
    # The sentences of a fault may quote what was said; its code says how it ended.
    why: dict[str, Any] | None = body.get("fault")
    return body if why is None else body | {"fault": {"code": why["code"], "message": ""}}
