"""What is kept from agents, and which calls need a person."""

from typing import Annotated, Literal

from msgspec import Meta, field

from remit.config.sections.base import Section
from remit.config.values import Between, Duration, Kind, Region, Run, Secret, duration
from remit.policy.limits import Limits
from remit.policy.rules import Editable, Pattern, Rule

_RULE = Rule(then="ask")


class RuleSection(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to calls that fit; the first rule that fits decides, and `*` stands for anything in a name."""

    then: Annotated[
        Literal["allow", "ask", "refuse"], Meta(description="Let the call pass, ask a person first, or refuse it.")
    ]
    from_: Annotated[Pattern, Meta(description="Who calls; `user` is the user.")] = field(
        default=_RULE.from_, name="from"
    )
    to: Annotated[Pattern, Meta(description="Who is called.")] = _RULE.to
    capability: Annotated[Pattern | None, Meta(description="For which capability.")] = _RULE.capability
    user: Annotated[Pattern, Meta(description="In whose name.")] = _RULE.user
    mentions: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Words of which at least one stands in the objective or the input, whatever their case and "
            "however disguised."
        ),
    ] = _RULE.mentions
    say: Annotated[str, Meta(description="The question that a person is asked, or the reason for the refusal.")] = (
        _RULE.say
    )
    edit: Annotated[frozenset[Editable], Meta(description="What the person may change before agreeing.")] = _RULE.edit


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """Who answers when a person must agree to a call."""

    allow: Annotated[
        tuple[Between, ...],
        Meta(description='Calls that need no person: `"callee"` or `"caller -> callee"`; `*` stands for anything.'),
    ] = ()
    otherwise: Annotated[
        Literal["deny", "terminal", "inbox"],
        Meta(
            description="All other calls: refused, asked about on the terminal, or put into the inbox, "
            "where `remit pending` finds them. Where there is no terminal, it is the inbox."
        ),
    ] = "inbox"
    timeout: Annotated[Duration, Meta(description="How long a question waits for an answer.")] = duration(
        Limits().approval_timeout_ms
    )


class RedactionSection(Section, frozen=True, kw_only=True):
    """Personal data and secrets, for which agents are given tokens instead."""

    enabled: Annotated[bool, Meta(description="Whether anything is redacted at all.")] = True
    kinds: Annotated[
        tuple[Kind, ...] | None, Meta(description="Built-in kinds that are looked for; all of them if it is not given.")
    ] = None
    regions: Annotated[
        tuple[Region, ...] | None, Meta(description="Countries whose telephone numbers are known without a prefix.")
    ] = None
    detectors: Annotated[
        tuple[Run, ...],
        Meta(description="Own detectors: each takes a text and returns what it found, a list of `remit.Finding`."),
    ] = ()
    patterns: Annotated[
        dict[Kind, Annotated[str, Meta(min_length=1)]],
        Meta(description="Own kinds, each by a regular expression (RE2: no look-around, no back-references)."),
    ] = {}
    key: Annotated[
        Secret | None,
        Meta(
            description="32 bytes in hexadecimal or Base64 that encrypt what was redacted; "
            "else a key beside the store is made and used."
        ),
    ] = None
