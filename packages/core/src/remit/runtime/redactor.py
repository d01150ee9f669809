"""Redacts what leaves an agent, and restores raw values for those who held them."""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from remit.policy.redaction import TOKEN, Held, KnownValuesDetector, Raw, everything, kind_of, strike
from remit.policy.restoring import of_kinds, restore
from remit.policy.verdict import Detector, Sealing
from remit.policy.weight import is_light, is_light_request
from remit.ports.keys import HubKeys
from remit.ports.store import FACTS, SealedValue, Vault
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import File, texts_of
from remit.runtime.aside import aside
from remit.runtime.frames import Frame, Run
from remit.runtime.origin import MAX_READ, MAX_WORDS, worded

log = logging.getLogger("remit")

P = ParamSpec("P")
T = TypeVar("T")

NOTHING: Held = {}
_read_raw = msgspec.json.Decoder(str | int).decode


# Shorter values are common words and numbers.
_TELLING = 4
# More would cost every examined text more than the detectors do.
_MOST_NAMED = 500


# Each value is examined once more and encrypted or decrypted: 0.1 ms.
_FEW = 100


class RedactedValues(NamedTuple):
    """The redacted values to store."""

    named: dict[str, str]
    """The values that only their field names revealed, with their kinds."""
    sealed: list[SealedValue]


class Redactor:
    """The redaction of one hub: its detector, its keys, and the store of raw values."""

    def __init__(self, detect: Detector | None, secret: bytes | None) -> None:
        self._detect = detect
        self._secret = secret

    @property
    def detector(self) -> Detector | None:
        """What finds personal data and secrets; None if nothing is redacted."""
        return self._detect

    def open(self, vault: Vault) -> None:
        """Take the store's secret, unless one was given."""
        self._vault = vault
        self.keys = HubKeys(self._secret or vault.secret())
        self._own = None if self._detect is None else Sealing(self.keys.hub, self._detect)

    def warm(self) -> None:
        """Load the detectors in a thread, if possible: else the first text that needs them would block the loop."""
        load = getattr(self._detect, "warm", None)
        if load is not None:
            # Python waits for this thread at exit: if a thread inside RE2 is cut off, the process aborts.
            threading.Thread(target=load, name="remit-warm").start()

    def sealing(self, scope: str) -> Sealing | None:
        """Return the sealing of a conversation's runs; None if nothing is redacted."""
        return None if self._detect is None else Sealing(self.keys.of_scope(scope), self._detect)

    # ── what is written ───────────────────────────────────────────────────────────────────────────────────────────────

    def clean(self, body: T, sealing: Sealing | None) -> T:
        """Return an envelope or text in a form that may be recorded or shown, whatever the detectors do."""
        if sealing is None:
            return body
        try:
            return strike(body, sealing, {})
        except Exception as error:  # noqa: BLE001 - a foreign detector, and its message may hold the text it examined
            log.error("a detector failed (%s), so the text is withheld", type(error).__name__)
            return strike(body, Sealing(sealing.key, everything, most=sys.maxsize), {})

    def worded(self, error: BaseException, sealing: Sealing | None = None) -> str:
        """Return an error's type and text in a form that may be logged, or shown in a run."""
        return self.clean(worded(error), sealing or self._own)[:MAX_WORDS]

    def traced(self, error: BaseException, sealing: Sealing | None = None) -> str:
        """Return an error's traceback in a form that may be logged."""
        return self.clean("".join(traceback.format_exception(error))[-MAX_READ:], sealing or self._own)

    # ── what is held ──────────────────────────────────────────────────────────────────────────────────────────────────

    def keep(self, run: Run, struck: Mapping[str, Raw], *, of_user: bool) -> None:
        """Remember the raw values of tokens; *of_user*: they come from the run's user, or were found for the user."""
        fresh = {token: raw for token, raw in struck.items() if token not in run.known}
        self.keep_taken(run, struck, self.take(run.scope, struck, fresh, of_user=of_user), of_user=of_user)

    def take(
        self, scope: str, struck: Mapping[str, Raw], fresh: Mapping[str, Raw], *, of_user: bool
    ) -> "RedactedValues":
        """Return the redacted values to store; *fresh* are those that the run did not know before.

        It changes no state and may be called in another thread.
        """
        lock = self.keys.lock
        sealed = [SealedValue(token, lock(encode(raw), f"{scope} {token}"), of_user) for token, raw in struck.items()]
        return RedactedValues(self._by_field_name(fresh), sealed)

    def keep_taken(self, run: Run, struck: Mapping[str, Raw], taken: "RedactedValues", *, of_user: bool) -> None:
        """Remember the raw values of tokens, prepared by `take`."""
        if run.sealing is not None:
            run.sealing = self._knowing(run.sealing, taken.named)
        run.known.update(struck)
        if of_user:
            run.held.update(struck)
        self._vault.seal(run.scope, taken.sealed)

    async def keep_shown(self, run: Run, struck: Mapping[str, Raw]) -> None:
        """Store the raw values of a question's tokens, for whoever may reveal them; the run itself learns nothing."""
        taken = await _maybe_aside(len(struck), self.take, run.scope, struck, NOTHING, of_user=False)
        self._vault.seal(run.scope, taken.sealed)

    async def strike_given(self, run: Run, given: T, own: Json, what: str) -> tuple[T, Held]:
        """Return what a person or a guard gave with tokens for personal data, and the raw values that stand in *own*.

        Its receiver gave *own* itself, and so may have these back.
        """
        struck: dict[str, Raw] = {}
        mine: dict[str, Raw] = {}
        if run.sealing is None:
            return given, mine
        try:
            given = await aside.run(strike, given, run.sealing, struck)
            await aside.run(strike, own, run.sealing, mine)
        except Exception as error:
            log.error("a detector failed on %s: %s", what, self.worded(error))
            why = f"{what} could not be redacted ({type(error).__name__}), so it is withheld"
            raise RemitError(fault(Code.DELEGATION_FAILED, why)) from error
        if struck:
            self.keep(run, struck, of_user=True)
        return given, mine

    def _by_field_name(self, fresh: Mapping[str, Raw]) -> dict[str, str]:
        """Return the values that only their field names revealed, with their kinds."""
        if self._detect is None:
            return {}
        return {
            str(raw): kind_of(token)
            for token, raw in fresh.items()
            if len(str(raw)) >= _TELLING and not _finds(self._detect, str(raw))
        }

    def _knowing(self, sealing: Sealing, named: dict[str, str]) -> Sealing:
        """Return the sealing that also finds values that only their field names revealed."""
        assert self._detect is not None
        if not named:
            return sealing
        if isinstance(sealing.detect, KnownValuesDetector):
            named = {**sealing.detect.named, **named}
        return Sealing(
            sealing.key, KnownValuesDetector(self._detect, dict(list(named.items())[-_MOST_NAMED:])), self._detect
        )

    def after(self, run: Run, shown: Held) -> Sealing | None:
        """Return the sealing for a tool's words, if it was given the values in *shown*: those are found too."""
        sealing = run.sealing
        named = {str(raw): kind_of(token) for token, raw in shown.items() if len(str(raw)) >= _TELLING}
        if sealing is None or self._detect is None or not named:
            return sealing
        if isinstance(sealing.detect, KnownValuesDetector):
            named = {**sealing.detect.named, **named}
        return Sealing(sealing.key, KnownValuesDetector(self._detect, named), self._detect)

    async def recall(self, run: Run) -> None:
        """Load the stored values of a run's conversation, from earlier runs or from before a restart."""
        for token, raw, of_user in await self._unsealed(run.scope, run.id):
            run.known[token] = raw
            if of_user:
                run.held[token] = raw
        if run.sealing is not None and run.known:
            run.sealing = self._knowing(
                run.sealing, await _maybe_aside(len(run.known), self._by_field_name, dict(run.known))
            )

    async def take_over(self, run: Run, scope: str, of: str) -> None:
        """Give a run the token values of the run *of*, whose results it takes over."""
        if scope == run.scope:
            return  # the same conversation: it has them already
        unsealed = await self._unsealed(scope, of)
        for of_user in (True, False):
            if values := {token: raw for token, raw, is_users in unsealed if is_users is of_user}:
                taken = await _maybe_aside(len(values), self.take, run.scope, values, values, of_user=of_user)
                self.keep_taken(run, values, taken, of_user=of_user)

    def keep_facts(self, run: Run, user: str, facts: Iterable[str]) -> None:
        """Store the token values in facts about a user as long as the facts: other conversations read them."""
        there = _tokens_in(facts)
        values = {token: raw for token, raw in run.held.items() if token in there}
        if values:
            self._vault.seal(scope := self._facts_of(user), self.take(scope, values, {}, of_user=True).sealed)

    async def recall_facts(self, run: Run, user: str, facts: Iterable[str]) -> None:
        """Give a run the token values in facts about its user; the user gets them back."""
        there = _tokens_in(facts)
        scope = self._facts_of(user)
        unsealed = await self._unsealed(scope, scope) if there else []
        values = {token: raw for token, raw, _ in unsealed if token not in run.known and token in there}
        if values:
            taken = await _maybe_aside(len(values), self.take, run.scope, values, values, of_user=True)
            self.keep_taken(run, values, taken, of_user=True)

    def _facts_of(self, user: str) -> str:
        # Nobody can guess such a session name: its digest is made with a secret.
        return f"{FACTS}{self.keys.digest(user.encode(errors='surrogatepass')).hex()}"

    async def for_user(self, run: str, response: Response) -> Response:
        """Return the stored response of a run as the user who asked for it gets it."""
        if not has_tokens(response):
            return response
        unsealed = await self._unsealed(response.session or run, run)
        held = {token: raw for token, raw, of_user in unsealed if of_user}
        return await made_whole(response, held) if held else response

    async def in_words_of_user(self, run: str, request: Request) -> Request:
        """Return the stored root request of a run in its user's words."""
        unsealed = await self._unsealed(request.session or run, run)
        held = {token: raw for token, raw, of_user in unsealed if of_user}
        return restore(request, held) if is_light_request(request) else await aside.run(restore, request, held)

    async def values_of(self, scope: str, run: str, tokens: Collection[str]) -> dict[str, Raw]:
        """Return the raw values of these tokens of a run, as far as they are still kept."""
        unsealed = await self._unsealed(scope, run) if tokens else []
        return {token: raw for token, raw, _ in unsealed if token in tokens}

    async def _unsealed(self, scope: str, run: str) -> list[tuple[str, Raw, bool]]:
        """Return the token values of a run that can be decrypted, and whether its user may have them."""
        kept = [
            (where, sealed)
            for where in dict.fromkeys((scope, run))  # under the run alone, where an earlier version stored it
            for sealed in await self._vault.unseal(where)
        ]
        return await _maybe_aside(len(kept), self._opened, kept)

    def _opened(self, kept: list[tuple[str, SealedValue]]) -> list[tuple[str, Raw, bool]]:
        opened = [(sealed, self.keys.unlock(sealed.value, f"{where} {sealed.token}")) for where, sealed in kept]
        return [(sealed.token, _read_raw(raw), sealed.of_user) for sealed, raw in opened if raw is not None]

    def for_caller(self, response: Response, caller: Frame, known: Held | None = None) -> Response:
        """Return a response as the calling agent gets it, with the raw values that it sent itself or may see.

        *known* are the values of all tokens of the run, for callers in another thread, which must not read the run's
        own.
        """
        held = caller.held or NOTHING
        if caller.card.sees:
            held = {**held, **of_kinds(caller.run.known if known is None else known, caller.card.sees)}
        return whole(response, held)


async def _maybe_aside(count: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work on this many values: in the event loop if they are few."""
    return work(*args, **kwargs) if count <= _FEW else await aside.run(work, *args, **kwargs)


def _finds(detect: Detector, raw: str) -> bool:
    """Return whether a value is recognised by itself, wherever it stands."""
    try:
        return any(finding.end - finding.start >= len(raw) for finding in detect(raw))
    except Exception:  # noqa: BLE001 - a foreign detector: a value that it cannot judge is remembered by itself
        return False


async def made_whole(response: Response, held: Held) -> Response:
    """Return the response with the held values restored, outside the event loop if it is large."""
    return whole(response, held) if is_light(response) else await aside.run(whole, response, held)


def whole(response: Response, held: Held) -> Response:
    """Return the response with the held values restored; a fault stays redacted, because faults end up in logs."""
    restored = restore(response, held)
    return restored if restored is response else msgspec.structs.replace(restored, fault=response.fault)


def has_tokens(value: Request | Response) -> bool:
    """Return whether anything in a value stands for a redacted one; else there is nothing to restore."""
    return TOKEN.search(encode(value).decode()) is not None or has_tokens_in(value.files)


def has_tokens_in(files: Iterable[File]) -> bool:
    """Return whether anything in the content of files stands for a redacted value."""
    return any(TOKEN.search(text) for text in texts_of(files))


def _tokens_in(texts: Iterable[str]) -> set[str]:
    return {match.group() for text in texts for match in TOKEN.finditer(text)}
