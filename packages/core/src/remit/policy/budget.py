"""Grants of time, tokens and calls, and the guards that refuse what cannot be afforded."""

from msgspec import Struct

from remit.policy.limits import Limits
from remit.protocol.card import AgentCard, Rate
from remit.protocol.codec import encode
from remit.protocol.envelope import Assignment, Call, Json
from remit.protocol.files import texts_of

# A caller needs time to use an answer: half a second, or a tenth of what is left if that is less.
RESERVE_MS = 500
# Below this no callee can do anything, and the answer would come too late anyway.
FLOOR_MS = 20


def grant_time_ms(wanted_ms: int, left_ms: int) -> int:
    """Return the time of a callee: what was asked for, at most what is left minus the caller's reserve."""
    if 0 < wanted_ms <= left_ms - RESERVE_MS:
        return wanted_ms  # as most are: enough is left
    tenth = left_ms // 10
    most = left_ms - (tenth if tenth < RESERVE_MS else RESERVE_MS)
    granted = wanted_ms if wanted_ms < most else most
    return granted if granted > 0 else 0


def grant_tokens(wanted: int, left: int) -> int:
    """Return the tokens of a callee: what was asked for, at most what is left."""
    granted = wanted if wanted < left else left
    return granted if granted > 0 else 0


# Some providers accept no lower limit for an answer, and none is shorter.
LEAST_OUTPUT = 16


def amounts(*millionths: int) -> tuple[str, ...]:
    """Return amounts of money as decimals, with as many digits as tell them apart, to within 5 %: `0.42` and `0.40`."""
    for digits in range(2, 6):
        texts = tuple(f"{each / 1_000_000:.{digits}f}" for each in millionths)
        near = (abs(float(text) * 1_000_000 - each) <= each / 20 for each, text in zip(millionths, texts, strict=True))
        if len(set(texts)) == len(set(millionths)) and all(near):
            return texts
    return tuple(f"{each / 1_000_000:.6f}" for each in millionths)


# What one call of a model takes with its context and its answer; a share is no smaller while the callers above can
# spare that much.
LEAST_SHARE = 8_000


def fair_share(left: int, reach: int, *, slots: int) -> int:
    """Return the tokens of a call for which nobody sets any: never all that its caller has left.

    *slots* is how many calls the caller may still start, including this one. What is *left* is split equally among
    those and the caller itself, since nobody knows how many will come. *reach* is what is left together with what the
    caller may take from its own callers: a small share is made larger from there.
    """
    parts = slots + 1 if slots > 1 else 2
    share = left // parts
    if share >= LEAST_SHARE or reach <= left:
        return share if share > 0 else 0
    more = reach // parts
    return max(share, more if more < LEAST_SHARE else LEAST_SHARE)


# What such a call costs at the prices of large models: ten cents, or as much in another currency.
LEAST_COST = 100_000


def share_of_day(left: int, wanted: int, least: int, *, slots: int) -> int:
    """Return how much of a user's day a run reserves at once of what is *wanted*: a fair share of what is left.

    A share is no smaller than *least*, as long as that much is left.
    """
    return max(0, min(wanted, left, max(least, left // (slots + 1))))


def tokens_wanted(call: Call, card: AgentCard | None, limits: Limits) -> int | None:
    """Return the tokens that somebody sets for a call; None: it gets a fair share, and draws on its caller."""
    if call.max_tokens is not None:
        return call.max_tokens
    if card is not None:
        capability = card.capability(call.capability) if call.capability is not None else None
        if capability is not None and capability.tokens is not None:
            return capability.tokens
        if card.tokens is not None:
            return card.tokens
    return limits.delegation_tokens


def settle(granted: int, used: int) -> tuple[int, int, int]:
    """Return how much of a grant is settled, how much is released, and how much was spent beyond it."""
    settled = min(granted, used)
    return settled, granted - settled, used - settled


# Hundredths of a token per byte, by kind of byte, fitted to o200k on some twenty kinds of text, whole and cut into
# sentences: the total is off by 10 % at most, a single text by up to 20, a sentence by 30. The first byte of a
# multi-byte character shows its script, and counts for all of them. No such table can see whether letters make words:
# hexadecimal numbers are a quarter more than estimated.
_WEIGHTS = (
    ([*range(0x41, 0x5B), *range(0x61, 0x7B)], 22),  # letters
    (range(0x30, 0x3A), 77),  # digits
    ([*range(0x21, 0x30), *range(0x3A, 0x41), *range(0x5B, 0x61), *range(0x7B, 0x7F)], 48),
    ([0x20], 7),
    ([*range(0x20), 0x7F], 111),  # mostly line ends
    (range(0xC2, 0xD0), 72),  # Latin letters with accents, Greek
    (range(0xD0, 0xD8), 27),  # Cyrillic, Hebrew
    (range(0xD8, 0xE0), 35),  # Arabic
    (range(0xE0, 0xE2), 38),  # Indic
    ([0xE2, 0xEE, 0xEF], 130),  # typographic signs, full-width punctuation
    ([0xE3], 64),  # kana
    (range(0xE4, 0xEA), 77),  # Han
    (range(0xEA, 0xEE), 65),  # Hangul
    (range(0xF0, 0xF5), 200),  # emoji
)
_WEIGHT_OF = {byte: weight for several, weight in _WEIGHTS for byte in several}
_PART = 64 * 1024
_WEIGHED = bytes(_WEIGHT_OF.get(byte, 0) for byte in range(256))


def estimate(value: Json) -> int:
    """Return an estimate of the tokens of a text or structure, without a tokenizer."""
    if value is None:
        return 0
    raw = value.encode(errors="replace") if isinstance(value, str) else encode(value)
    # In parts, so that other threads get their turn in between; a token is at least one byte.
    weights = sum(sum(raw[at : at + _PART].translate(_WEIGHED)) for at in range(0, len(raw), _PART))
    return min(len(raw), round(weights / 100))


def estimate_request(request: Assignment) -> int:
    """Return an estimate of the tokens of a request; of its files, those count that are text."""
    files = sum(map(estimate, texts_of(request.files))) if request.files else 0
    return estimate(request.objective) + estimate(request.input) + files


class Window(Struct, frozen=True):
    """The calls counted since *start*."""

    start: float = float("-inf")
    calls: int = 0


def wait_ms(window: Window, rate: Rate, now: float) -> int:
    """Return how long to wait before the next call; 0 if it may come now."""
    left = window.start + rate.seconds - now
    return 0 if left <= 0 or window.calls < rate.calls else max(1, round(left * 1_000))


def count(window: Window, rate: Rate, now: float) -> Window:
    """Return the window with one more call, a new one if the last is over."""
    if now >= window.start + rate.seconds:
        return Window(now, 1)
    return Window(window.start, window.calls + 1)
