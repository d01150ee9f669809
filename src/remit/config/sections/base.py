"""What every part of a team file has in common."""

from msgspec import Struct


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a team file in which a key that is not known is an error."""
