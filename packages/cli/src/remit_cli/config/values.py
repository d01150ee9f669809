"""Types of values in a team file: names, durations, references to secrets."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct

from remit.runtime.registry import NAME


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a team file in which an unknown key is an error."""


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "y": 365 * 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d|y)")
# A hundred years: longer means for ever, and dates computed from it must not overflow.
_LONGEST_MS = 100 * 365 * _UNITS_MS["d"]

Duration = Annotated[
    str,
    Meta(
        title="duration",
        pattern=rf"^{_DURATION.pattern}\Z",
        extra={"rule": 'expected a duration in text, such as "500ms", "30s", "5m", "2h" or "3d"'},
    ),
]
Secret = Annotated[
    str,
    Meta(
        title="secret",
        pattern=r"^\$[A-Za-z_][A-Za-z0-9_]*\Z",
        extra={
            "rule": 'a team file must not contain secrets: write "$NAME", '
            "and put its value into the environment variable NAME",
            "secret": True,
        },
    ),
]
# A value in the environment of a program: a text, or a reference to a secret.
Variable = Annotated[
    str,
    Meta(
        title="text or secret",
        pattern=r"^([^$].*|\$[A-Za-z_][A-Za-z0-9_]*|)\Z",
        extra={"rule": 'expected a text, or "$NAME" for the value of the environment variable NAME', "secret": True},
    ),
]
VariableName = Annotated[
    str,
    Meta(
        title="name of a variable",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z",
        extra={"rule": "expected the name of an environment variable, without $ and without a value"},
    ),
]
AgentName = Annotated[
    str,
    Meta(
        title="name",
        pattern=rf"^{NAME.pattern}\Z",
        extra={"rule": "expected a name of letters, digits, `-`, `_` and `.`, at most 128 of them"},
    ),
]
Code = Annotated[
    str,
    Meta(
        title="code",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z",
        extra={"rule": "expected a code of letters, digits, `-`, `_`, `.` and `:`, at most 128 of them"},
    ),
]
# As in placeholders: `[IBAN:…]`.
Kind = Annotated[
    str,
    Meta(
        title="kind",
        pattern=r"^[A-Z][A-Z_]{0,31}[0-9]{0,3}\Z",
        extra={"rule": "expected a kind of data in capitals, such as IBAN: letters and `_`, and digits at the end"},
    ),
]
Region = Annotated[
    str,
    Meta(
        title="region",
        pattern=r"^[A-Z]{2}\Z",
        extra={"rule": "expected a country of two capital letters, such as DE"},
    ),
]
Run = Annotated[
    str,
    Meta(
        title="module:function",
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z",
        extra={"rule": 'expected "module:function", as Python would import it'},
    ),
]
Between = Annotated[
    str,
    Meta(
        title="caller -> callee",
        pattern=r"^[^\s>]+( *-> *[^\s>]+)?\Z",
        extra={"rule": 'expected "callee" or "caller -> callee", in which `*` stands for anything'},
    ),
]
# The callee of an agent: a name, or `*` for all.
Callee = Annotated[
    str,
    Meta(
        title="name or *",
        pattern=rf"^(\*|{NAME.pattern})\Z",
        extra={"rule": "expected the name of an agent, or `*` for all of them"},
    ),
]
# As in references and conditions: `{npv.value}`.
StepName = Annotated[
    str,
    Meta(
        title="name",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z",
        extra={"rule": "expected a name of letters, digits and `_` that begins with no digit, at most 64 of them"},
    ),
]
# With a trailing question mark: after that step, however it ended.
StepAfter = Annotated[
    str,
    Meta(
        title="name or name?",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\??\Z",
        extra={"rule": "expected the name of a step, with `?` behind it if that step may fail: `audit` or `audit?`"},
    ),
]
Positive = Annotated[int, Meta(ge=1)]
# No model costs so much; a price beyond it is one for a single token.
Amount = Annotated[
    float,
    Meta(ge=0, le=1_000_000, extra={"rule": "expected the price of a million tokens, a number of 0 or more"}),
]
Currency = Annotated[
    str,
    Meta(
        title="currency",
        pattern=r"^[A-Z]{3}\Z",
        extra={"rule": "expected a currency of three capital letters, such as EUR"},
    ),
]
Url = Annotated[
    str,
    Meta(
        title="address",
        pattern=r"^https?://[^\s]+\Z",
        extra={"rule": 'expected the address of a server, such as "https://example.com:8443"'},
    ),
]
ModelName = Annotated[
    str,
    Meta(
        title="model",
        pattern=r"^\S{1,200}\Z",
        extra={"rule": 'expected the name of a model, such as "openai:gpt-5-mini"'},
    ),
]
PublicKey = Annotated[
    str,
    Meta(
        title="public key",
        pattern=r"^ed25519/[0-9a-fA-F]{64}\Z",
        extra={"rule": "expected a public key as `remit keys show` prints it: `ed25519/` and 64 hexadecimal digits"},
    ),
]
HostName = Annotated[
    str,
    Meta(
        title="host",
        pattern=r"^[A-Za-z0-9._:-]{1,253}\Z",
        extra={"rule": 'expected the name or address of a host, such as "hooks.internal", without a port'},
    ),
]
HostAndPort = Annotated[
    str,
    Meta(
        title="host and port",
        pattern=r"^([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}\Z",
        extra={"rule": 'expected a host and its port, such as "agents.example.com:443"'},
    ),
]
HeaderName = Annotated[
    str,
    Meta(
        title="header",
        pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z",
        extra={"rule": "expected the name of an HTTP header, such as authorization"},
    ),
]
DatabaseUrl = Annotated[
    str,
    Meta(
        title="address",
        pattern=r"^postgres(ql)?://([^\s:@/]*@)?[^\s@]+\Z",
        max_length=1_024,
        extra={
            "rule": 'expected the address of a database without a password, such as "postgresql://remit@host/remit"; '
            'a team file must not contain secrets: write password = "$NAME"'
        },
    ),
]
"""The address of a PostgreSQL database."""

GatewayUrl = Annotated[
    str,
    Meta(
        title="address",
        pattern=r"^wss?://[^\s/?#@]+/?\Z",
        max_length=512,
        extra={"rule": 'expected the address of a gateway, such as "wss://relay.example.com", without a path'},
    ),
]
# As its owner named it, or its id.
DeviceName = Annotated[
    str,
    Meta(
        title="device",
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,64}\Z",
        extra={"rule": "expected the name or the id of a device, as `remit devices list` shows them"},
    ),
]
# One media type, or all of a kind.
MediaTypes = Annotated[
    str,
    Meta(
        title="media type",
        pattern=r"^(\*/\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/(\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,126}))\Z",
        extra={"rule": 'expected a media type in lower case, such as "image/png", "text/*" or "*/*"'},
    ),
]
# The user of a request: a name, or anyone.
UserName = Annotated[
    str,
    Meta(
        title="user or *",
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}\Z",
        extra={"rule": "expected the name of a user, or `*` for anyone"},
    ),
]

KEY_PATH = ".remit/hub.key"
TRUSTED_PATH = ".remit/trusted.keys"
REVOKED_PATH = ".remit/revoked"


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration that fits `Duration`."""
    found = _DURATION.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration")
    return min(round(float(found[1]) * _UNITS_MS[found[2]]), _LONGEST_MS)


def duration(ms: float) -> str:
    """Return milliseconds as a duration in a team file, in the largest unit that gives a whole number."""
    unit = next((unit for unit in ("d", "h", "m", "s") if ms and ms % _UNITS_MS[unit] == 0), "ms")
    return f"{ms / _UNITS_MS[unit]:g}{unit}" if unit != "ms" else f"{round(ms)}ms"


def in_code(section: Section, names: Iterable[str]) -> dict[str, Any]:
    """Return values of a section by their names in the code, where a duration is a number: `time` is `time_ms`."""
    return {
        name: optional_ms(getattr(section, name[:-3])) if name.endswith("_ms") else getattr(section, name)
        for name in names
    }


def optional_ms(text: str | None) -> int | None:
    """Return a duration in milliseconds, if there is one."""
    return None if text is None else duration_ms(text)
