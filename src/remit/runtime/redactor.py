"""Keeps what leaves an agent's hands free of personal data, and gives raw values back to whoever held them."""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from remit.policy.redaction import TOKEN, Held, Raw, everything, kind_of, of_kinds, restore, strike
from remit.policy.verdict import Detector, Finding, Sealing
from remit.policy.weight import is_light, is_light_request
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.runtime.aside import aside
from remit.runtime.frames import Frame, Run
from remit.runtime.keys import HubKeys
from remit.runtime.origin import MAX_READ, MAX_WORDS, worded
from remit.runtime.ports import FACTS, SealedValue, Vault

log = logging.getLogger("remit")

P = ParamSpec("P")
T = TypeVar("T")

NOTHING: Held = {}
_read_raw = msgspec.json.Decoder(str | int).decode


# Shorter ones are words and numbers of all kinds.
_TELLING = 4
# More would cost every text that is looked at more than the detectors do.
_MOST_NAMED = 500


# Each is looked at once more, and locked or unlocked: 0.1 ms.
_FEW = 100


class RedactedValues(NamedTuple):
    """What there is to keep of what was struck."""

    named: dict[str, str]
    """The values that only their names gave away, with their kinds."""
    sealed: list[SealedValue]


class KnownValuesDetector:
    """A detector that finds, besides what another finds, the values that are known to be secret in a run.

    A password is one because its field is called so; said again elsewhere, it is found by what it is.
    """

    def __init__(self, detect: Detector, named: dict[str, str]) -> None:
        self._detect = detect
        self.named = named

    def __call__(self, text: str) -> Iterable[Finding]:
        findings = self._detect(text)
        # One by one, and not as one pattern: that would be compiled anew for each, and some are a hundred pages long.
        known = [
            Finding(*place, kind) for raw, kind in self.named.items() if raw in text for place in _words(text, raw)
        ]
        return [*known, *findings] if known else findings


def _words(text: str, raw: str) -> Iterator[tuple[int, int]]:
    """Return where *raw* stands in a text by itself, and not as part of a longer word."""
    start = text.find(raw)
    while start >= 0:
        end = start + len(raw)
        alone = not _is_letter(text[start - 1 : start]) and not _is_letter(text[end : end + 1])
        if alone:
            yield start, end
        start = text.find(raw, end if alone else start + 1)


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"


class Redactor:
    """The redaction of one hub: what is looked for, with which keys, and where the raw values are kept."""

    def __init__(self, detect: Detector | None, secret: bytes | None) -> None:
        self._detect = detect
        self._secret = secret

    def open(self, vault: Vault) -> None:
        """Take the store's secret, unless one was given."""
        self._vault = vault
        self.keys = HubKeys(self._secret or vault.secret())
        self._own = self._sealing(self.keys.hub)

    def warm(self) -> None:
        """Have the detectors loaded in a thread, if they can be: the first text that needs them would hold the loop."""
        load = getattr(self._detect, "warm", None)
        if load is not None:
            # Python waits for it at its end: a thread that RE2 works in must not be cut off, or the process aborts.
            threading.Thread(target=load, name="remit-warm").start()

    def sealing(self, scope: str) -> Sealing | None:
        """Return how the tokens of a conversation's runs are made; None if nothing is redacted."""
        return None if self._detect is None else self._sealing(self.keys.of_scope(scope))

    def _sealing(self, key: bytes) -> Sealing | None:
        return None if self._detect is None else Sealing(key, self._detect)

    # ── what is written ───────────────────────────────────────────────────────────────────────────────────────────────

    def clean(self, body: T, sealing: Sealing | None) -> T:
        """Return what may be recorded or shown of an envelope or text, whatever the detectors do."""
        if sealing is None:
            return body
        try:
            return strike(body, sealing, {})
        except Exception as error:  # noqa: BLE001 - someone else's detector, and its words may hold what it looked at
            log.error("a detector failed (%s), so nothing is shown of what it looked at", type(error).__name__)
            return strike(body, Sealing(sealing.key, everything, most=sys.maxsize), {})

    def worded(self, error: BaseException, sealing: Sealing | None = None) -> str:
        """Return an error's type and text as they may be logged, or told in a run."""
        return self.clean(worded(error), sealing or self._own)[:MAX_WORDS]

    def traced(self, error: BaseException, sealing: Sealing | None = None) -> str:
        """Return where an error came from as it may be logged."""
        return self.clean("".join(traceback.format_exception(error))[-MAX_READ:], sealing or self._own)

    # ── what is held ──────────────────────────────────────────────────────────────────────────────────────────────────

    def keep(self, run: Run, struck: Mapping[str, Raw], *, of_user: bool) -> None:
        """Remember what tokens stand for; *of_user*: it comes from the run's user, or was found for them."""
        fresh = {token: raw for token, raw in struck.items() if token not in run.known}
        self.keep_taken(run, struck, self.take(run.scope, struck, fresh, of_user=of_user), of_user=of_user)

    def take(
        self, scope: str, struck: Mapping[str, Raw], fresh: Mapping[str, Raw], *, of_user: bool
    ) -> "RedactedValues":
        """Return what there is to keep of what was struck; *fresh* is what the run did not know before.

        It changes nothing, and may be called in another thread.
        """
        lock = self.keys.lock
        sealed = [SealedValue(token, lock(encode(raw), f"{scope} {token}"), of_user) for token, raw in struck.items()]
        return RedactedValues(self._named(fresh), sealed)

    def keep_taken(self, run: Run, struck: Mapping[str, Raw], taken: "RedactedValues", *, of_user: bool) -> None:
        """Remember what tokens stand for, once it is known what there is to keep."""
        if run.sealing is not None:
            run.sealing = self._knowing(run.sealing, taken.named)
        run.known.update(struck)
        if of_user:
            run.held.update(struck)
        self._vault.seal(run.scope, taken.sealed)

    def _named(self, fresh: Mapping[str, Raw]) -> dict[str, str]:
        """Return the values that only their names gave away, with their kinds."""
        if self._detect is None:
            return {}
        return {
            str(raw): kind_of(token)
            for token, raw in fresh.items()
            if len(str(raw)) >= _TELLING and not _finds(self._detect, str(raw))
        }

    def _knowing(self, sealing: Sealing, named: dict[str, str]) -> Sealing:
        """Return how tokens are made once those values are known that only their names gave away."""
        assert self._detect is not None
        if not named:
            return sealing
        if isinstance(sealing.detect, KnownValuesDetector):
            named = {**sealing.detect.named, **named}
        return Sealing(
            sealing.key, KnownValuesDetector(self._detect, dict(list(named.items())[-_MOST_NAMED:])), self._detect
        )

    def after(self, run: Run, shown: Held) -> Sealing | None:
        """Return how what a tool says is redacted, if it was given the values that are *shown*: those are found too."""
        sealing = run.sealing
        named = {str(raw): kind_of(token) for token, raw in shown.items() if len(str(raw)) >= _TELLING}
        if sealing is None or self._detect is None or not named:
            return sealing
        if isinstance(sealing.detect, KnownValuesDetector):
            named = {**sealing.detect.named, **named}
        return Sealing(sealing.key, KnownValuesDetector(self._detect, named), self._detect)

    async def recall(self, run: Run) -> None:
        """Bring back what is kept of a run's conversation, from its earlier runs or from before a restart."""
        for token, raw, of_user in await self._unsealed(run.scope, run.id):
            run.known[token] = raw
            if of_user:
                run.held[token] = raw
        if run.sealing is not None and run.known:
            run.sealing = self._knowing(run.sealing, await _maybe_aside(len(run.known), self._named, dict(run.known)))

    async def take_over(self, run: Run, scope: str, of: str) -> None:
        """Let a run know what the tokens of the run *of* stand for, whose results it takes over."""
        if scope == run.scope:
            return  # the same conversation: it knows already
        found = await self._unsealed(scope, of)
        for of_user in (True, False):
            if values := {token: raw for token, raw, is_users in found if is_users is of_user}:
                taken = await _maybe_aside(len(values), self.take, run.scope, values, values, of_user=of_user)
                self.keep_taken(run, values, taken, of_user=of_user)

    def keep_facts(self, run: Run, user: str, facts: Iterable[str]) -> None:
        """Keep what the tokens in facts about a user stand for as long as the facts: other conversations read them."""
        there = _tokens_in(facts)
        values = {token: raw for token, raw in run.held.items() if token in there}
        if values:
            self._vault.seal(scope := self._facts_of(user), self.take(scope, values, {}, of_user=True).sealed)

    async def recall_facts(self, run: Run, user: str, facts: Iterable[str]) -> None:
        """Let a run know what the tokens in facts about its user stand for: the user gets them back."""
        there = _tokens_in(facts)
        scope = self._facts_of(user)
        found = await self._unsealed(scope, scope) if there else []
        values = {token: raw for token, raw, _ in found if token not in run.known and token in there}
        if values:
            taken = await _maybe_aside(len(values), self.take, run.scope, values, values, of_user=True)
            self.keep_taken(run, values, taken, of_user=True)

    def _facts_of(self, user: str) -> str:
        # Nobody can name a session like it: what its digest is made with is secret.
        return f"{FACTS}{self.keys.digest(user.encode(errors='surrogatepass')).hex()}"

    async def for_user(self, run: str, response: Response) -> Response:
        """Return the response of a run, as it was read from the store, as the user who asked for it gets it."""
        unsealed = await self._unsealed(response.session or run, run)
        held = {token: raw for token, raw, of_user in unsealed if of_user}
        return await made_whole(response, held)

    async def said(self, run: str, request: Request) -> Request:
        """Return the request that started a run, as it was read from the store, as its user said it."""
        unsealed = await self._unsealed(request.session or run, run)
        held = {token: raw for token, raw, of_user in unsealed if of_user}
        return restore(request, held) if is_light_request(request) else await aside.run(restore, request, held)

    async def _unsealed(self, scope: str, run: str) -> list[tuple[str, Raw, bool]]:
        """Return what tokens of a run stand for, and whether its user may have it, as far as it can be opened."""
        kept = [
            (where, sealed)
            for where in dict.fromkeys((scope, run))  # under the run alone, where an earlier version kept it
            for sealed in await self._vault.unseal(where)
        ]
        return await _maybe_aside(len(kept), self._opened, kept)

    def _opened(self, kept: list[tuple[str, SealedValue]]) -> list[tuple[str, Raw, bool]]:
        opened = [(sealed, self.keys.unlock(sealed.value, f"{where} {sealed.token}")) for where, sealed in kept]
        return [(sealed.token, _read_raw(raw), sealed.of_user) for sealed, raw in opened if raw is not None]

    def for_caller(self, response: Response, caller: Frame, known: Held | None = None) -> Response:
        """Return a response as the agent that asked gets it: raw is only what it sent itself, or may see.

        *known* are the values of all tokens of the run, where its own are not to be read: in another thread.
        """
        held = caller.held or NOTHING
        if caller.card.sees:
            held = {**held, **of_kinds(caller.run.known if known is None else known, caller.card.sees)}
        return whole(response, held)


async def _maybe_aside(count: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do something for so many values: in the event loop if they are few."""
    return work(*args, **kwargs) if count <= _FEW else await aside.run(work, *args, **kwargs)


def _finds(detect: Detector, raw: str) -> bool:
    """Say whether a value is found by what it is, wherever it stands."""
    try:
        return any(found.end - found.start >= len(raw) for found in detect(raw))
    except Exception:  # noqa: BLE001 - someone else's detector: what it cannot tell of is remembered by itself
        return False


async def made_whole(response: Response, held: Held) -> Response:
    """Return the response with what is held, made outside the event loop if there is much to look through."""
    return whole(response, held) if not held or is_light(response) else await aside.run(whole, response, held)


def whole(response: Response, held: Held) -> Response:
    """Return the response with what is held; a fault stays as it is, because faults end up in logs."""
    restored = restore(response, held)
    return restored if restored is response else msgspec.structs.replace(restored, fault=response.fault)


def _tokens_in(texts: Iterable[str]) -> set[str]:
    return {found.group() for text in texts for found in TOKEN.finditer(text)}
