"""Counts tokens: exactly if the extra `tokens` is installed, else by an estimate."""

import logging
import re
from collections.abc import Callable
from importlib.util import find_spec
from threading import Lock
from typing import Literal

from remit.installed import install_command
from remit.policy.budget import estimate
from remit.ports import TokenCounter
from remit.protocol.errors import RemitError
from remit.runtime.registry import team_invalid

log = logging.getLogger("remit")

Encoding = Literal["o200k_base", "cl100k_base"]

# Each token is an object while it is counted, so a longer text is processed in pieces of this size.
_PIECE = 1_000_000
# No token extends from one word into the space before the next.
_SEAM = re.compile(r"(?<=[a-z])(?= [a-z])")
# A word that is not a single token makes the tokenizer load the rest of its data.
_RARE = "zqxjkv"


def token_counter(name: Literal["auto", "o200k_base", "cl100k_base", "estimate"] = "auto") -> TokenCounter:
    """Return a token counter: the encoding with this *name*, or the most exact one that is installed (`auto`).

    Nothing is loaded before the first count. Raises a `RemitError` if the named encoding is not installed.
    """
    if name == "estimate":
        return estimate
    if find_spec("splintr") is None:
        if name == "auto":
            return estimate
        raise _missing(name)
    return _Exact("o200k_base", otherwise=estimate) if name == "auto" else _Exact(name)


class _Exact:
    """Counts as OpenAI's models do; falls back to *otherwise* if the tokenizer does not run here."""

    def __init__(self, encoding: Encoding, *, otherwise: TokenCounter | None = None) -> None:
        self._encoding: Encoding = encoding
        self._otherwise = otherwise
        self._count: TokenCounter | None = None

    def __call__(self, text: str) -> int:
        count = self._count
        if count is None:
            count = self._count = self._load_counter()
        if len(text) <= _PIECE:
            return count(text)
        total = start = 0
        while start < len(text):
            seam = _SEAM.search(text, start + _PIECE)
            end = seam.start() if seam else len(text)
            total += count(text[start:end])
            start = end
        return total

    def _load_counter(self) -> TokenCounter:
        try:
            encode = _loaded(self._encoding)
        except (ImportError, AttributeError) as error:
            # Another package is installed under that name, or it was built for another machine.
            if self._otherwise is None:
                raise _missing(self._encoding) from error
            log.warning("tokens are estimated, because the tokenizer cannot be loaded: %s", error)
            return self._otherwise

        def count(text: str) -> int:
            try:
                return len(encode(text))
            except UnicodeEncodeError:
                return len(encode(_mended(text)))

        return count


_lock = Lock()
_encoders: dict[Encoding, Callable[[str], list[int]]] = {}
"""Each encoding is loaded once per process: it takes a quarter of a second and 30 MB."""


def _loaded(encoding: Encoding) -> Callable[[str], list[int]]:
    with _lock:
        if encoding not in _encoders:
            import splintr

            # The only method that treats text that looks like a special token as plain text.
            encode = splintr.Tokenizer.from_pretrained(encoding).encode_ordinary
            encode(_RARE)
            _encoders[encoding] = encode
        return _encoders[encoding]


def _mended(text: str) -> str:
    """Return a text with surrogate pairs joined, and unpaired surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _missing(encoding: str) -> RemitError:
    return team_invalid(f"to count tokens by `{encoding}`, install the extra `tokens`: {install_command('tokens')}")
