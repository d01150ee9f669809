"""The section of coding tools: what their sub-agents may do."""

from typing import Annotated

from msgspec import Meta

from remit.config.values import Duration, Section, duration, duration_ms
from remit.guard.settings import AtLimit, GuardSettings, KindLimits, Positive

_SETTINGS = GuardSettings()


class GuardKindSection(Section, frozen=True, kw_only=True):
    """Limits of one kind of sub-agent, by the name that the tool gives it."""

    tokens: Annotated[Positive, Meta(description="Tokens of one sub-agent of this kind, with all below it.")]


class GuardSection(Section, frozen=True, kw_only=True):
    """Limits of each session of a coding tool; see `remit docs guard-coding-tools`."""

    tokens: Annotated[Positive, Meta(description="Tokens of a session and all of its sub-agents.")] = _SETTINGS.tokens
    depth: Annotated[Positive, Meta(description="Levels of sub-agents below the session.")] = _SETTINGS.depth
    at_once: Annotated[Positive, Meta(description="Sub-agents of one agent that run at once.")] = _SETTINGS.at_once
    time: Annotated[Duration, Meta(description="How long a session may start sub-agents.")] = duration(
        _SETTINGS.time_ms
    )
    reserve: Annotated[Positive, Meta(description="Tokens that are set aside for each sub-agent when it starts.")] = (
        _SETTINGS.reserve
    )
    ask_at: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(description="Share of the tokens at which a person is asked whether more sub-agents may start."),
    ] = _SETTINGS.ask_at
    at_limit: Annotated[
        AtLimit,
        Meta(
            description="At the limit of tokens: `ask` a person before each further sub-agent, `stop`, so that none "
            "starts, or `warn` and go on."
        ),
    ] = _SETTINGS.at_limit
    cached: Annotated[bool, Meta(description="Whether tokens count that the model's provider reads from a cache.")] = (
        _SETTINGS.cached
    )
    kinds: Annotated[dict[str, GuardKindSection], Meta(description="Limits of kinds of sub-agents, by name.")] = {}

    def settings(self) -> GuardSettings:
        """Return them for the guard."""
        return GuardSettings(
            tokens=self.tokens,
            depth=self.depth,
            at_once=self.at_once,
            time_ms=duration_ms(self.time),
            reserve=self.reserve,
            ask_at=self.ask_at,
            at_limit=self.at_limit,
            cached=self.cached,
            kinds={name: KindLimits(tokens=each.tokens) for name, each in self.kinds.items()},
        )
