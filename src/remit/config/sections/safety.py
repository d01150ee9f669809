"""Sections for rules, approvals and redaction."""

from typing import Annotated, Literal

from msgspec import Meta, field

from remit.config.sections.base import Section
from remit.config.values import Between, Duration, Kind, Region, Run, Secret, duration
from remit.policy.limits import Limits
from remit.policy.rules import Editable, Pattern, Rule

_RULE = Rule(then="ask")


class RuleSection(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to calls that match. The first rule that matches decides; `*` in a name matches anything."""

    then: Annotated[
        Literal["allow", "ask", "refuse"], Meta(description="Allow the call, ask a person first, or refuse it.")
    ]
    from_: Annotated[Pattern, Meta(description="The caller; `user` is the user.")] = field(
        default=_RULE.from_, name="from"
    )
    to: Annotated[Pattern, Meta(description="The callee.")] = _RULE.to
    capability: Annotated[Pattern | None, Meta(description="The capability that is asked for.")] = _RULE.capability
    user: Annotated[Pattern, Meta(description="The user on whose behalf the call is made.")] = _RULE.user
    mentions: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Words of which at least one occurs in the objective or the input, in any case and "
            "however disguised."
        ),
    ] = _RULE.mentions
    say: Annotated[str, Meta(description="The question to the person, or the reason for the refusal.")] = _RULE.say
    edit: Annotated[frozenset[Editable], Meta(description="What the person may change before approving.")] = _RULE.edit


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """Who answers when a call needs approval."""

    allow: Annotated[
        tuple[Between, ...],
        Meta(description='Calls that need no approval: `"callee"` or `"caller -> callee"`; `*` matches anything.'),
    ] = ()
    otherwise: Annotated[
        Literal["deny", "terminal", "inbox"],
        Meta(
            description="All other calls: refused (`deny`), asked about on the terminal, or put into the "
            "inbox for `remit pending`. Without a terminal, `terminal` means the inbox."
        ),
    ] = "inbox"
    timeout: Annotated[Duration, Meta(description="How long a question waits for an answer.")] = duration(
        Limits().approval_timeout_ms
    )


class RedactionSection(Section, frozen=True, kw_only=True):
    """Personal data and secrets that are replaced by placeholders before agents see them."""

    enabled: Annotated[bool, Meta(description="Whether anything is redacted.")] = True
    kinds: Annotated[tuple[Kind, ...] | None, Meta(description="Built-in kinds to look for (default: all).")] = None
    regions: Annotated[
        tuple[Region, ...] | None, Meta(description="Countries whose phone numbers are recognised without a prefix.")
    ] = None
    detectors: Annotated[
        tuple[Run, ...],
        Meta(description="Your own detectors: each takes a text and returns a list of `remit.Finding`."),
    ] = ()
    patterns: Annotated[
        dict[Kind, Annotated[str, Meta(min_length=1)]],
        Meta(description="Your own kinds, each by a regular expression (RE2: no look-around, no back-references)."),
    ] = {}
    key: Annotated[
        Secret | None,
        Meta(
            description="32 bytes in hexadecimal or Base64 that encrypt redacted values (default: a key that "
            "is created beside the store)."
        ),
    ] = None
