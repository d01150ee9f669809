"""How time and tokens are carved, and the guards that refuse what cannot be afforded."""

from remit.policy.verdict import ALLOW, Facts, Verdict, refuse
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request
from remit.protocol.errors import Code

# A caller needs time to use what it was answered: half a second, or a tenth of what is left if that is less.
RESERVE_MS = 500
# Below this no callee can do anything, and the answer would come too late anyway.
FLOOR_MS = 20


def grant_time_ms(asked_ms: int, left_ms: int) -> int:
    """Return the time a callee gets: what was asked for, but never more than is left less the caller's reserve."""
    tenth = left_ms // 10
    most = left_ms - (tenth if tenth < RESERVE_MS else RESERVE_MS)
    granted = asked_ms if asked_ms < most else most
    return granted if granted > 0 else 0


def grant_tokens(asked: int, left: int) -> int:
    """Return the tokens a callee gets: what was asked for, but never more than are left."""
    granted = asked if asked < left else left
    return granted if granted > 0 else 0


def split_tokens(left: int, among: int) -> int:
    """Return each share when what is left is split equally."""
    return max(0, left) // among


def settle(granted: int, used: int) -> tuple[int, int, int]:
    """Return what of a grant is settled, what is released, and what was spent beyond it."""
    settled = min(granted, used)
    return settled, granted - settled, used - settled


def deadline(request: Request, facts: Facts) -> Verdict:
    """There is enough time left to be worth starting."""
    if request.remit.time_ms >= FLOOR_MS:
        return ALLOW
    return refuse(Code.TIMEOUT, f"only {request.remit.time_ms} ms are left for {request.target}; nothing was started")


def tokens(request: Request, facts: Facts) -> Verdict:
    """The request alone does not use up its budget, and the run has not overrun its own."""
    budget = request.remit.tokens
    if facts.overrun:
        return refuse(
            Code.TOKEN_BUDGET_EXCEEDED, "an agent of this run spent more than it was granted; nothing more is started"
        )
    if budget == 0:
        return refuse(Code.TOKEN_BUDGET_EXCEEDED, f"no tokens are left for {request.target}")
    # A token is at least one byte, and a character at most four: short requests need no counting.
    said = request.input or ""
    if isinstance(said, str) and 4 * (len(request.objective) + len(said)) <= budget:
        return ALLOW
    estimated = estimate(request.objective) + estimate(request.input)
    if estimated <= budget:
        return ALLOW
    return refuse(
        Code.TOKEN_BUDGET_EXCEEDED,
        f"Estimated tokens ({estimated}) exceeds budget ({budget}). Simplify task or increase budget.",
    )


# Tokens per byte by kind of byte, fitted to nine kinds of text (English, code, JSON, Chinese …): 4 % off at the most.
_KINDS = {"letter": 0.206, "digit": 0.911, "punctuation": 0.585, "beyond": 0.239, "space": 0.157}


def _kind_of(byte: int) -> str:
    char = chr(byte)
    if byte >= 128:
        return "beyond"
    if char.isalpha():
        return "letter"
    if char.isdigit():
        return "digit"
    return "space" if char.isspace() else "punctuation"


_OTHERS = {kind: bytes(byte for byte in range(256) if _kind_of(byte) != kind) for kind in _KINDS}


def estimate(value: Json) -> int:
    """Return about how many tokens a text or structure is, without a tokenizer."""
    if value is None:
        return 0
    raw = value.encode(errors="replace") if isinstance(value, str) else encode(value)
    return round(sum(weight * len(raw.translate(None, _OTHERS[kind])) for kind, weight in _KINDS.items()))
