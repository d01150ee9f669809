"""Proofs of messages on the bus: that a hub of the team sent exactly this, on this subject, and once."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Count
from remit_server.transports.credentials.keys import HubKey, is_signed, raw, written
from remit_server.transports.credentials.proof import REMEMBERED, WINDOW_MS, Digest

ANY_AGENT = "*"

_DOMAIN = b"remit bus proof 1\n"
_SIGNATURE = 64
_NONCE = 16
# A flood of forged messages adds this many rows a minute to the record for each code, and one that counts the rest.
INTERVAL_S = 60.0
ROWS = 10


class TrustedHub(Struct, frozen=True, kw_only=True):
    """A hub of the team: the keys that it signs with, and the agents that it may host."""

    keys: frozenset[str]
    hosts: frozenset[str] = frozenset()

    def may_host(self, agent: str) -> bool:
        """Return whether it may announce an agent, and answer for it."""
        return agent in self.hosts or ANY_AGENT in self.hosts


class ProofSettings(Struct, frozen=True, kw_only=True):
    """Whose messages a hub accepts, and what it signs with."""

    hubs: Mapping[str, TrustedHub]
    key: Callable[[], HubKey] | None = None
    """Returns this hub's current key; None: it only reads."""

    def owner(self, public: str) -> str | None:
        """Return the name of the hub that has a key."""
        return next((name for name, hub in self.hubs.items() if public in hub.keys), None)


class _Statement(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    by: Digest
    at_ms: Count
    nonce: Annotated[bytes, Meta(min_length=_NONCE, max_length=_NONCE)]
    subject: str
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Statement).decode


class ReadMessage(NamedTuple):
    """The content of a message, and the name of the hub that signed it; "" in a team that signs nothing."""

    body: bytes
    hub: str = ""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BusProofs:
    """Signs what a hub publishes, and checks what it hears. Without settings, messages are as they are."""

    def __init__(
        self,
        settings: ProofSettings | None,
        refused: Callable[[str, Fault], None],
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        """*refused* is called with what a refused message claims to be, and with the reason."""
        self._settings = settings
        self._refused = refused
        self._wall_ms = wall_ms
        self._seen: dict[int, set[bytes]] = {}

    @property
    def required(self) -> bool:
        """Whether messages are signed."""
        return self._settings is not None

    def not_allowed(self, agents: Collection[str]) -> Fault | None:
        """Return why others would refuse this hub's messages: its key, or an agent that it may not host."""
        settings = self._settings
        if settings is None:
            return None
        if settings.key is None:
            why = "this hub has no key, and messages on the bus are signed (`[bus.hubs]`)"
            return fault(Code.TEAM_INVALID, why, suggestion="Make one with `remit keys init`.")
        public = settings.key().signing(self._wall_ms()).public
        name = settings.owner(public)
        if name is None:
            return fault(
                Code.TEAM_INVALID,
                f"the key of this hub, {public}, belongs to no hub in `[bus.hubs]`",
                suggestion="Add it to `keys` of a `[bus.hubs.NAME]` in the team file of every hub.",
            )
        if wrong := [agent for agent in agents if not settings.hubs[name].may_host(agent)]:
            return fault(
                Code.TEAM_INVALID,
                f"`[bus.hubs.{name}]` does not let this hub host {', '.join(sorted(wrong))}",
                suggestion=f"Add the agents to its `hosts`, or host fewer: `hosts` of `[bus]`, or remit worker "
                f"{' '.join(sorted(set(agents) - set(wrong))) or 'AGENT'}",
            )
        return None

    def sign(self, subject: str, body: bytes) -> bytes:
        """Return a message as it is published on *subject*."""
        settings = self._settings
        if settings is None:
            return body
        assert settings.key is not None, "a hub that only reads publishes nothing"
        now_ms = self._wall_ms()
        pair = settings.key().signing(now_ms)
        statement = _encode(_Statement(raw(pair.public), now_ms, secrets.token_bytes(_NONCE), subject, body))
        return pair.sign(_DOMAIN + statement) + statement

    def read(
        self,
        subject: str,
        message: bytes,
        what: str,
        *,
        host_of: str | None = None,
        keep_ms: int = 0,
        stored: bool = False,
    ) -> ReadMessage | None:
        """Return the content of a message that was heard on *subject*; None, after saying why, if it is not proven.

        With *host_of*, its sender must be allowed to host that agent. *keep_ms* is for how long NATS keeps it. One that
        is *stored* there for all may be read again and again.
        """
        if self._settings is None:
            return ReadMessage(message)
        checked = self._check(self._settings, subject, message, host_of, keep_ms, stored=stored)
        if not isinstance(checked, Fault):
            return checked
        self._refused(what, checked)
        return None

    def refuse(self, what: str, why: Fault) -> None:
        """Record a message whose content contradicts its proof."""
        self._refused(what, why)

    def _check(
        self,
        settings: ProofSettings,
        subject: str,
        message: bytes,
        host_of: str | None,
        keep_ms: int,
        *,
        stored: bool,
    ) -> ReadMessage | Fault:
        signature, signed = message[:_SIGNATURE], message[_SIGNATURE:]
        try:
            statement = _decode(signed)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _unproven("it is not signed")
        public = written(statement.by)
        name = settings.owner(public)
        if name is None:
            return _unproven(f"the key {public} belongs to no hub of the team")
        if not is_signed(public, signature, _DOMAIN + signed):
            return _unproven("it was changed, or is not signed with the key that it names")
        if statement.subject != subject:
            return _unproven("it was signed for another subject")
        now_ms = self._wall_ms()
        if not now_ms - WINDOW_MS - keep_ms <= statement.at_ms <= now_ms + WINDOW_MS:
            return _unproven(
                f"it was signed {abs(now_ms - statement.at_ms) // 1_000} seconds "
                f"{'ago' if statement.at_ms < now_ms else 'ahead of this clock'}; "
                f"clocks may differ by {WINDOW_MS // 1_000} seconds"
            )
        if host_of is not None and not settings.hubs[name].may_host(host_of):
            return may_not_host(name, host_of)
        if not self._is_new(statement, now_ms, keep_ms) and not stored:
            return _unproven("it was sent before")
        return ReadMessage(statement.body, name)

    def _is_new(self, statement: _Statement, now_ms: int, keep_ms: int) -> bool:
        """Return whether this hub has not accepted a message before, and remember it for as long as it could be."""
        for age in [age for age in self._seen if age < now_ms // WINDOW_MS]:
            del self._seen[age]
        seen = self._seen.setdefault((statement.at_ms + WINDOW_MS + keep_ms) // WINDOW_MS, set())
        mark = statement.by + statement.nonce
        if mark in seen:
            return False
        if len(seen) >= REMEMBERED:
            seen.clear()  # what is then sent again is found by the store: a request begins once
        seen.add(mark)
        return True

    def may_host(self, hub: str, agent: str) -> bool:
        """Return whether a hub may announce an agent."""
        return self._settings is None or self._settings.hubs[hub].may_host(agent)


class RefusedMessages:
    """Logs and records refused messages, a few a minute: whoever floods the bus must not fill the store."""

    def __init__(self, record: Callable[[Code, str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._record = record
        self._now = now
        self._since = now()
        self._counted: Counter[Code] = Counter()

    def note(self, what: str, why: Fault) -> None:
        """Count a refused message, and record it unless there were too many a moment ago."""
        if self._now() - self._since >= INTERVAL_S:
            self.close()
        self._counted[why.code] += 1
        if self._counted[why.code] <= ROWS:
            self._record(why.code, f"refused {what} on the bus: {why.message}")

    def close(self) -> None:
        """Record how many more were refused."""
        for code, count in self._counted.items():
            if count > ROWS:
                self._record(code, f"refused {count - ROWS} more messages on the bus")
        self._counted.clear()
        self._since = self._now()


def may_not_host(hub: str, agent: str) -> Fault:
    """Return why a message of a hub about an agent is refused."""
    return fault(Code.PERMISSION_DENIED, f"the hub {hub} may not host {agent}")


def _unproven(why: str) -> Fault:
    return fault(Code.UNAUTHENTICATED, f"a message is not proven: {why}")
