"""Types of values in a team file: names, durations, references to secrets."""

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from remit.runtime.registry import NAME


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a team file in which an unknown key is an error. The text below a field says what its key means."""


@cache
def meanings(section: type[Struct]) -> dict[str, str]:
    """Return the texts below the fields of a section in its source, by key."""
    import ast
    import inspect  # not needed to read a valid file, and large

    body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(section))).body[0]
    assert isinstance(body, ast.ClassDef)
    keys = {each.name: each.encode_name for each in structs.fields(section)}
    return {
        keys[field.target.id]: " ".join(below.value.value.split())
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
        if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _text(title: str, pattern: str, rule: str, *, secret: bool = False, longest: int | None = None) -> Meta:
    """Return what is said of a text in a team file: its form, and the error message for another one."""
    extra = {"rule": rule, **({"secret": True} if secret else {})}
    return Meta(title=title, pattern=rf"^{pattern}\Z", max_length=longest, extra=extra)


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "y": 365 * 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d|y)")
# A hundred years: longer means for ever, and dates computed from it must not overflow.
_LONGEST_MS = 100 * 365 * _UNITS_MS["d"]

Duration = Annotated[
    str, _text("duration", _DURATION.pattern, 'expected a duration in text, such as "500ms", "30s", "5m", "2h" or "3d"')
]
Secret = Annotated[
    str,
    _text(
        "secret",
        r"\$[A-Za-z_][A-Za-z0-9_]*",
        'a team file must not contain secrets: write "$NAME", and put its value into the environment variable NAME',
        secret=True,
    ),
]
# A value in the environment of a program: a text, or a reference to a secret.
Variable = Annotated[
    str,
    _text(
        "text or secret",
        r"([^$].*|\$[A-Za-z_][A-Za-z0-9_]*|)",
        'expected a text, or "$NAME" for the value of the environment variable NAME',
        secret=True,
    ),
]
VariableName = Annotated[
    str,
    _text(
        "name of a variable",
        "[A-Za-z_][A-Za-z0-9_]*",
        "expected the name of an environment variable, without $ and without a value",
    ),
]
AgentName = Annotated[
    str, _text("name", NAME.pattern, "expected a name of letters, digits, `-`, `_` and `.`, at most 128 of them")
]
Code = Annotated[
    str,
    _text(
        "code",
        "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}",
        "expected a code of letters, digits, `-`, `_`, `.` and `:`, at most 128 of them",
    ),
]
# As in placeholders: `[IBAN:…]`.
Kind = Annotated[
    str,
    _text(
        "kind",
        "[A-Z][A-Z_]{0,31}[0-9]{0,3}",
        "expected a kind of data in capitals, such as IBAN: letters and `_`, and digits at the end",
    ),
]
Region = Annotated[str, _text("region", "[A-Z]{2}", "expected a country of two capital letters, such as DE")]
Run = Annotated[
    str,
    _text(
        "module:function", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", 'expected "module:function", as Python would import it'
    ),
]
Between = Annotated[
    str,
    _text(
        "caller -> callee",
        r"[^\s>]+( *-> *[^\s>]+)?",
        'expected "callee" or "caller -> callee", in which `*` stands for anything',
    ),
]
# The callee of an agent: a name, or `*` for all.
Callee = Annotated[
    str, _text("name or *", rf"(\*|{NAME.pattern})", "expected the name of an agent, or `*` for all of them")
]
# As in references and conditions: `{npv.value}`.
StepName = Annotated[
    str,
    _text(
        "name",
        "[A-Za-z_][A-Za-z0-9_]{0,63}",
        "expected a name of letters, digits and `_` that begins with no digit, at most 64 of them",
    ),
]
# With a trailing question mark: after that step, however it ended.
StepAfter = Annotated[
    str,
    _text(
        "name or name?",
        r"[A-Za-z_][A-Za-z0-9_]{0,63}\??",
        "expected the name of a step, with `?` behind it if that step may fail: `audit` or `audit?`",
    ),
]
Positive = Annotated[int, Meta(ge=1)]
# No model costs so much; a price beyond it is one for a single token.
Amount = Annotated[
    float,
    Meta(ge=0, le=1_000_000, extra={"rule": "expected the price of a million tokens, a number of 0 or more"}),
]
Currency = Annotated[str, _text("currency", "[A-Z]{3}", "expected a currency of three capital letters, such as EUR")]
Money = Annotated[
    str,
    _text(
        "amount of money",
        r"[0-9]{1,9}(\.[0-9]{1,6})? [A-Z]{3}",
        'expected an amount with its currency, such as "0.50 USD"',
    ),
]
Url = Annotated[
    str, _text("address", r"https?://[^\s]+", 'expected the address of a server, such as "https://example.com:8443"')
]
SchemeAddress = Annotated[
    str, _text("address", r"[a-z][a-z0-9+.-]*:\S+", 'expected an address with a scheme, such as "weather://bern"')
]
ModelName = Annotated[str, _text("model", r"\S{1,200}", 'expected the name of a model, such as "openai:gpt-5-mini"')]
PublicKey = Annotated[
    str,
    _text(
        "public key",
        "ed25519/[0-9a-fA-F]{64}",
        "expected a public key as `remit keys show` prints it: `ed25519/` and 64 hexadecimal digits",
    ),
]
HostName = Annotated[
    str,
    _text(
        "host",
        "[A-Za-z0-9._:-]{1,253}",
        'expected the name or address of a host, such as "hooks.internal", without a port',
    ),
]
HostAndPort = Annotated[
    str,
    _text(
        "host and port",
        r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}",
        'expected a host and its port, such as "agents.example.com:443"',
    ),
]
HeaderName = Annotated[
    str,
    _text("header", "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", "expected the name of an HTTP header, such as authorization"),
]
DatabaseUrl = Annotated[
    str,
    _text(
        "address",
        r"postgres(ql)?://([^\s:@/]*@)?[^\s@]+",
        'expected the address of a database without a password, such as "postgresql://remit@host/remit"; a '
        'team file must not contain secrets: write password = "$NAME"',
        longest=1_024,
    ),
]
"""The address of a PostgreSQL database."""

GatewayUrl = Annotated[
    str,
    _text(
        "address",
        r"wss?://[^\s/?#@]+/?",
        'expected the address of a gateway, such as "wss://relay.example.com", without a path',
        longest=512,
    ),
]
# As its owner named it, or its id.
DeviceName = Annotated[
    str,
    _text(
        "device",
        r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,64}",
        "expected the name or the id of a device, as `remit devices list` shows them",
    ),
]
# One media type, or all of a kind.
MediaTypes = Annotated[
    str,
    _text(
        "media type",
        r"(\*/\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/(\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,126}))",
        'expected a media type in lower case, such as "image/png", "text/*" or "*/*"',
    ),
]
# The user of a request: a name, or anyone.
UserName = Annotated[
    str,
    _text("user or *", r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "expected the name of a user, or `*` for anyone"),
]

KEY_PATH = ".remit/hub.key"
TRUSTED_PATH = ".remit/trusted.keys"
REVOKED_PATH = ".remit/revoked"


def millionths(text: str) -> int:
    """Return an amount of money that fits `Money`, in millionths of its currency."""
    return round(Decimal(text.split(maxsplit=1)[0]) * 1_000_000)


def optional_millionths(text: str | None) -> int | None:
    """Return an amount of money in millionths, if there is one."""
    return None if text is None else millionths(text)


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration that fits `Duration`."""
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration")
    return min(round(float(match[1]) * _UNITS_MS[match[2]]), _LONGEST_MS)


def duration(ms: float) -> str:
    """Return milliseconds as a duration in a team file, in the largest unit that gives a whole number."""
    unit = next((unit for unit in ("d", "h", "m", "s") if ms and ms % _UNITS_MS[unit] == 0), "ms")
    return f"{ms / _UNITS_MS[unit]:g}{unit}" if unit != "ms" else f"{round(ms)}ms"


def in_code(section: Section, names: Iterable[str]) -> dict[str, Any]:
    """Return values of a section by their names in the code, where durations (`time` is `time_ms`) and money are
    numbers.
    """

    def value(name: str) -> Any:
        if name == "cost":
            return optional_millionths(getattr(section, name))
        return optional_ms(getattr(section, name[:-3])) if name.endswith("_ms") else getattr(section, name)

    return {name: value(name) for name in names}


def optional_ms(text: str | None) -> int | None:
    """Return a duration in milliseconds, if there is one."""
    return None if text is None else duration_ms(text)
