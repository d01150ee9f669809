"""Counts tokens: exactly if the extra `tokens` is installed, else by an estimate."""

import logging
import re
from collections.abc import Callable
from importlib.util import find_spec
from threading import Lock
from typing import Literal

from remit.policy.budget import estimate
from remit.protocol.errors import RemitError
from remit.runtime.ports import TokenCounter
from remit.runtime.registry import team_invalid

log = logging.getLogger("remit")

Encoding = Literal["o200k_base", "cl100k_base"]

# Each token is an object while it is counted: of a longer text only so much is looked at together.
_PIECE = 1_000_000
# No token reaches from one word into the space before the next.
_SEAM = re.compile(r"(?<=[a-z])(?= [a-z])")
# A word that is not one token itself makes the tokenizer load the rest of itself.
_RARE = "zqxjkv"


def token_counter(name: Literal["auto", "o200k_base", "cl100k_base", "estimate"] = "auto") -> TokenCounter:
    """Return what counts tokens: by *name*, or as exactly as what is installed can (`auto`).

    Nothing is loaded before the first count. Raises a `RemitError` if an encoding is named that is not installed.
    """
    if name == "estimate":
        return estimate
    if find_spec("splintr") is None:
        if name == "auto":
            return estimate
        raise _missing(name)
    return _Exact("o200k_base", otherwise=estimate) if name == "auto" else _Exact(name)


class _Exact:
    """Counts as the models of OpenAI do; as *otherwise* does, if the tokenizer turns out not to run here."""

    def __init__(self, encoding: Encoding, *, otherwise: TokenCounter | None = None) -> None:
        self._encoding: Encoding = encoding
        self._otherwise = otherwise
        self._count: TokenCounter | None = None

    def __call__(self, text: str) -> int:
        count = self._count
        if count is None:
            count = self._count = self._found()
        if len(text) <= _PIECE:
            return count(text)
        total = start = 0
        while start < len(text):
            seam = _SEAM.search(text, start + _PIECE)
            end = seam.start() if seam else len(text)
            total += count(text[start:end])
            start = end
        return total

    def _found(self) -> TokenCounter:
        try:
            encode = _loaded(self._encoding)
        except (ImportError, AttributeError) as error:
            # Something else is installed under that name, or it was built for another machine.
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
"""Each is loaded once for the whole process: it takes a quarter of a second and 30 MB."""


def _loaded(encoding: Encoding) -> Callable[[str], list[int]]:
    with _lock:
        if encoding not in _encoders:
            import splintr

            # Of its methods this is the one that takes what looks like a special token for the text it is.
            encode = splintr.Tokenizer.from_pretrained(encoding).encode_ordinary
            encode(_RARE)
            _encoders[encoding] = encode
        return _encoders[encoding]


def _mended(text: str) -> str:
    """Return a text with the halves of its characters joined, or replaced where the other half is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _missing(encoding: str) -> RemitError:
    return team_invalid(f"to count tokens by `{encoding}`, install the extra `tokens`: pip install 'remit[tokens]'")
