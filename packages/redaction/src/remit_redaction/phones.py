"""Which numbers are telephone numbers: by prefix, by format, by a region's numbering plan, or by the words around.

The plans come from `phonenumbers`; its own matcher is not used, because it takes milliseconds per number.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

from remit_redaction.linear import Linear

MOST_DIGITS = 15  # E.164
FEWEST_DIGITS = 6  # Greenland: 84 23 30
MOST_GROUPS = 7

_KINDS_OF_LINE = (
    "fixed_line",
    "mobile",
    "toll_free",
    "premium_rate",
    "shared_cost",
    "personal_number",
    "voip",
    "uan",
)

# Groups of numbers without a leading zero: India, Brazil, Spain, North America, Italy, China.
_WRITTEN = frozenset(
    {(5, 5), (2, 5, 4), (2, 4, 4), (3, 2, 2, 2), (3, 3, 4), (4, 3, 3), (3, 4, 4), (3, 3, 2, 2), (1, 3, 3, 4)}
)
_NORTH_AMERICAN = frozenset({(3, 3, 4), (1, 3, 3, 4)})
_COUNTING = frozenset({b"0123456789", b"01234567890", b"1234567890"})
_CLOSED = re.compile(rb"\)[ .-]{0,2}")
_BETWEEN = re.compile(rb"[ ./-]| ?\(|\)[ .-]{0,2}|- | - ")
_THOUSANDS = re.compile(rb"[ .]")

SURE = 0.95
LIKELY = 0.85
POSSIBLE = 0.7


class Plan:
    """The numbering plans of the given regions."""

    def __init__(self, regions: Iterable[str]) -> None:
        self._regions = tuple(regions)

    @cached_property
    def automaton(self) -> Linear:
        """One automaton for all regions: a number is read once, however many there are.

        It is made when the first number is read: with its data it takes 5 MB, and a search for secrets needs none of
        it. Raises a `ValueError` if a region is unknown.
        """
        return Linear("|".join(map(_plan, self._regions)).encode())

    def has(self, digits: bytes) -> bool:
        """Return whether *digits* are a national number in one of the regions."""
        return self.automaton.matches(digits)


def international(digits: bytes) -> bool:
    """Return whether *digits*, without + or 00, are a country code and the right number of digits for that country."""
    for size in (1, 2, 3):
        lengths = _lengths().get(digits[:size])
        if lengths is not None:
            rest = digits[size:].removeprefix(b"0") if digits[:size] != b"39" else digits[size:]
            return len(rest) in lengths
    return False


def score(groups: Sequence[bytes], between: Sequence[bytes], *, opened: bool, plan: Plan, meant: bool) -> float:
    """Return how certainly a number without + or 00 is a telephone number; 0 if it is not.

    *between* are the characters between the groups, *opened* says whether the first group is in parentheses, *meant*
    whether the words around are about telephones.
    """
    sizes = tuple(map(len, groups))
    total = sum(sizes)
    if not FEWEST_DIGITS <= total <= MOST_DIGITS or len(sizes) > MOST_GROUPS:
        return 0
    if len(sizes) == 4 and max(sizes) <= 3 and {*between} == {b"."}:
        return 0
    if meant:
        if sizes[0] == 1 and len(sizes) == 2 and between[0] == b".":
            return 0
        if _is_sum_or_version(groups, between):
            return 0
        return SURE if total >= 7 or len(sizes) > 1 else 0
    digits = b"".join(groups)
    if len(sizes) == 1:
        if digits in _COUNTING:
            return 0
        return POSSIBLE if 10 <= total <= 11 and digits[0] == 48 and digits[1] != 48 and plan.has(digits) else 0
    if opened and _CLOSED.fullmatch(between[0]):
        return LIKELY if 8 <= total <= 12 and 2 <= sizes[0] <= 5 else 0
    if not all(map(_BETWEEN.fullmatch, between)) or (between.count(b".") == 1 and b" " in between):
        return 0
    spaced = all(map(_THOUSANDS.fullmatch, between))
    if b"/" in between and digits[0] != 48:
        return 0
    if (
        sizes in _NORTH_AMERICAN
        and not any(b"(" in each or b" -" in each for each in between[-2:])
        and (len(sizes) == 3 or digits[0] == 49)
    ):
        if not spaced or b" " not in b"".join(between):
            return SURE
        return LIKELY if plan.has(digits) else 0
    if sizes == (3, 7) and between == [b"-"]:
        return POSSIBLE
    if digits[0] == 48 and digits[1] != 48:
        return _with_trunk_zero(sizes, between, digits, plan)
    if len(sizes) == 4 and b"(" in between[0] and b")" in between[1] and plan.has(digits):
        return LIKELY
    return POSSIBLE if sizes in _WRITTEN and b"." not in between and plan.has(digits) else 0


def _is_sum_or_version(groups: Sequence[bytes], between: Sequence[bytes]) -> bool:
    """Return whether groups are an amount, `1 234,50`, a version, `10.0.19045.3930`, or a paper, `17/2024`."""
    if any(b"," in each for each in between) or ({*between} == {b"."} and min(map(len, groups)) == 1):
        return True
    years = (groups[0], groups[-1]) if b"/" in between else ()
    return any(len(each) == 4 and each[:2] in {b"19", b"20"} for each in years)


def _with_trunk_zero(sizes: tuple[int, ...], between: Sequence[bytes], digits: bytes, plan: Plan) -> float:
    if sizes[0] == 1 or min(sizes) == 1:
        return 0
    # A decimal number, or a US postcode.
    if (len(sizes) == 2 and between == [b"."]) or (sizes == (5, 4) and between == [b"-"]):
        return 0
    if 9 <= len(digits) <= 12 and plan.has(digits):
        return LIKELY
    return POSSIBLE if 9 <= len(digits) <= 11 and 2 <= sizes[0] <= 5 else 0


@cache
def _plan(region: str) -> str:
    metadata = _metadata(region)
    if metadata is None:
        raise ValueError(f"no telephone numbers are known for the region {region!r}; a region is written US, GB, DE")
    kinds = (getattr(metadata, kind) for kind in _KINDS_OF_LINE)
    patterns = [kind.national_number_pattern for kind in kinds if kind is not None and kind.national_number_pattern]
    prefix = f"(?:{metadata.national_prefix})?" if metadata.national_prefix else ""
    return f"{prefix}(?:{'|'.join(patterns)})"


@cache
def _lengths() -> dict[bytes, frozenset[int]]:
    """Return how many digits numbers have after each country code."""
    import phonenumbers

    codes: dict[int, tuple[str, ...]] = phonenumbers.COUNTRY_CODE_TO_REGION_CODE
    lengths: dict[bytes, frozenset[int]] = {}
    for code, regions in codes.items():
        metadata = _metadata(regions[0]) if regions[0] != "001" else None
        if metadata is not None:
            lengths[str(code).encode()] = frozenset(metadata.general_desc.possible_length)
    return lengths


def _metadata(region: str) -> Any:
    from phonenumbers import PhoneMetadata

    return PhoneMetadata.metadata_for_region(region, None)
