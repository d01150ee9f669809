"""Units and currencies, and how each is spelled in English and German."""

from msgspec import Struct


class Unit(Struct, frozen=True, gc=False):
    """A unit: (number + shift) * factor is the value in the base unit of its kind."""

    kind: str
    factor: float = 1.0
    shift: float = 0.0
    currency: str = ""


PLAIN = Unit("number")

_CURRENCIES = {
    **{"usd": "$ us$ dollar dollars", "eur": "€ euro euros", "gbp": "£ pound pounds", "chf": "franc francs franken"},
    **{"jpy": "¥ yen", "inr": "₹ rupee rupees", "cny": "yuan", "cad": "", "aud": ""},
}
CODES = tuple(_CURRENCIES)
_MEASURES = {
    "percent": "0.01 % percent pct prozent",
    "duration": """
        0.001 ms millisecond milliseconds
        1 s sec secs second seconds sekunde sekunden
        60 min mins minute minutes minuten
        3600 h hr hrs hour hours stunde stunden
        86400 day days tag tage tagen
        604800 week weeks woche wochen
        2629800 month months monat monate monaten
        31557600 year years yr yrs jahr jahre jahren
    """,
    "length": """
        0.001 mm millimetre millimetres millimeter millimeters millimetern
        0.01 cm centimetre centimetres centimeter centimeters zentimeter zentimetern
        1 m metre metres meter meters metern
        1000 km kilometre kilometres kilometer kilometers kilometern
        1609.344 mi mile miles
        0.3048 ft foot feet
    """,
    "mass": """
        1e-6 mg milligram milligrams
        0.001 g gram grams gramm
        1 kg kilo kilos kilogram kilograms kilogramm
        1000 t ton tons tonne tonnes tonnen
        0.45359237 lb lbs
    """,
    "volume": """
        0.001 ml millilitre millilitres milliliter milliliters
        1 l litre litres liter liters litern
    """,
    "data": """
        1 byte bytes
        1e3 kb kilobyte kilobytes
        1e6 mb megabyte megabytes
        1e9 gb gigabyte gigabytes
        1e12 tb terabyte terabytes
    """,
    "power": """
        1 w watt watts
        1e3 kw kilowatt kilowatts
        1e6 mw megawatt megawatts
        1e9 gw gigawatt gigawatts
    """,
    "energy": """
        1e3 kwh
        1e6 mwh
    """,
}
UNITS = {
    spelling: Unit(kind, float(factor))
    for kind, rows in _MEASURES.items()
    for factor, *spellings in map(str.split, rows.strip().splitlines())
    for spelling in spellings
} | {
    spelling: Unit("money", currency=code)
    for code, spellings in _CURRENCIES.items()
    for spelling in (code, *spellings.split())
}
_DEGREES = {"c": Unit("temperature"), "f": Unit("temperature", 1 / 1.8, -32)}


def unit_of(spelled: str) -> Unit | None:
    """Return the unit with this spelling."""
    if spelled[0] == "°":
        return _DEGREES.get(spelled[-1].lower())
    # 5g is a mass, 5G a network.
    return None if spelled in {"G", "S", "T", "H"} else UNITS.get(spelled.lower())


# ── in the names of fields ────────────────────────────────────────────────────────────────────────────────────────────

# `duration_ms`, `priceUsd`. Suffixes that are also words are left out: `min`, `second`.
_NAMED = frozenset(
    [
        "ms",
        "secs",
        "seconds",
        "mins",
        "minutes",
        "hours",
        "days",
        "weeks",
        "months",
        "km",
        "cm",
        "mm",
        "kg",
        "kb",
        "mb",
        "gb",
        "bytes",
        "pct",
        "percent",
    ]
)
_NAMED_UNITS = {name: UNITS[name] for name in (*_NAMED, *CODES)}
MONEY = frozenset(
    """
    amount balance budget cost costs earnings expense expenses fee fees income npv payment price profit rent revenue
    salary tax total turnover
    """.split()  # noqa: SIM905
)


def named_unit(name: tuple[str, ...]) -> Unit | None:
    """Return the unit that the name of a field ends with."""
    return _NAMED_UNITS.get(name[-1]) if len(name) > 1 else None


def unit_word(name: tuple[str, ...]) -> str:
    """Return the unit that a field's number is in, as the end of its name spells it: `weight_kg`, `days`."""
    return name[-1] if name and (named_unit(name) or name[-1] in _NAMED_ALONE) else ""


# These are no names of anything else.
_NAMED_ALONE = frozenset(
    "seconds minutes hours days weeks months years kg km euros dollars percent bytes".split()  # noqa: SIM905
)
