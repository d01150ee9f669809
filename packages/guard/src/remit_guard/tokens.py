"""Tokens of one call of a tool's model, as its transcript tells them."""

from datetime import UTC, date, datetime

from msgspec import Struct

from remit.protocol.envelope import Usage


class TokenUse(Struct, frozen=True, kw_only=True):
    """The tokens of one message of a model."""

    input: int = 0
    """Tokens that were read anew, those included that were written to a cache."""
    written: int = 0
    """Tokens of `input` that were written to a cache."""
    output: int = 0
    cached: int = 0
    """Tokens that were read from a cache."""
    day: date | None = None
    """The day of the message in local time, if the tool tells it."""
    model: str = ""
    """The model that wrote it, with its provider, as in `anthropic:claude-sonnet-4-5`; empty: not told."""

    def usage(self, *, cached: bool) -> Usage:
        """Return what counts against a budget."""
        return Usage(prompt=self.input + (self.cached if cached else 0), completion=self.output)

    def __add__(self, other: "TokenUse") -> "TokenUse":
        return TokenUse(
            input=self.input + other.input,
            written=self.written + other.written,
            output=self.output + other.output,
            cached=self.cached + other.cached,
        )

    def __sub__(self, other: "TokenUse") -> "TokenUse":
        """Return what was added since *other*; a figure that shrank was corrected, and counts as it was."""
        return TokenUse(
            input=max(0, self.input - other.input),
            written=max(0, self.written - other.written),
            output=max(0, self.output - other.output),
            cached=max(0, self.cached - other.cached),
        )


def day_of(timestamp: object) -> date | None:
    """Return the day in local time of a time as tools write it: ISO 8601, or milliseconds; None: it is neither."""
    try:
        at = (
            datetime.fromtimestamp(timestamp / 1_000, UTC)
            if isinstance(timestamp, int | float)
            else datetime.fromisoformat(str(timestamp))
        )
        return at.astimezone().date()
    except (ValueError, OverflowError, OSError):
        return None


def model_name(provider: str, model: object) -> str:
    """Return a model with its provider; empty if the tool does not name it."""
    return f"{provider}:{model}" if isinstance(model, str) and model else ""
