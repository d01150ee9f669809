"""Reads results for contradictions a second time, after the rules: by a language model, or an entailment model."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.agents.threads import Threads
from remit.installed import install_command
from remit.policy.budget import estimate, grant_time_ms
from remit.ports.brief import Brief
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.protocol.orchestration import ENTAILMENT_THRESHOLD
from remit.runtime.registry import team_invalid
from remit.words.components import Component, Findings
from remit_models.model import ModelAgent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.text.conflicts.second_reader import (
    INSTRUCTIONS,
    QUOTED,
    QUOTING,
    SCHEMA,
    StatementPair,
    compared,
    contradictions,
    material,
    pointed_out,
    quoted,
    quoting,
    statement_pairs,
)
from remit_orchestrator.text.faithfulness import Quotes

log = logging.getLogger("remit")

# The results are finished, and the user waits for them: no longer than for a text that a model writes from them.
PATIENCE_MS = 30_000
# No model answers in less time.
LEAST_MS = 1_000
# Room for quotes of some twenty statements.
_OUTPUT = 2_000


class ConflictReading(Struct, frozen=True):
    """The contradictions found by the rules and by the second reader."""

    findings: Findings
    metadata: dict[str, Json] = {}
    """For `Response.metadata`: the `second_reader` and how many it added, or why nothing was read (`not_read`)."""


class ConflictReader(Protocol):
    """A second reader of results: it adds contradictions to those of the rules, and never takes one away."""

    async def read(self, components: Sequence[Component], findings: Findings, brief: Brief) -> ConflictReading:
        """Return *findings* with the contradictions that it sees between *components* of the same question.

        A reader that fails or runs out of time returns the findings as they are, and says why.
        """
        ...

    async def aclose(self) -> None:
        """Release what it holds; it may be used again."""
        ...


class ModelReader:
    """Asks a language model to quote statements that contradict each other.

    A quote counts only if the result contains it word for word.
    """

    def __init__(self, model: ModelAgent) -> None:
        self.model = model
        self.aclose = model.aclose

    async def read(self, components: Sequence[Component], findings: Findings, brief: Brief) -> ConflictReading:
        """Return the findings with the contradictions that the model points at; as they are if it cannot be asked."""
        several = compared(components)
        if not several:
            return ConflictReading(findings)
        task = material(several)
        if brief.tokens_left() < estimate(INSTRUCTIONS) + estimate(task) + estimate(SCHEMA) + _OUTPUT:
            return not_read(findings, "too few tokens are left")
        time_ms = grant_time_ms(self.model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        if time_ms < LEAST_MS:
            return not_read(findings, "too little time is left")
        try:
            prompt = ModelPrompt(instructions=INSTRUCTIONS, messages=(), task=task)
            answer = await self.model.reply(brief, prompt, time_ms=time_ms, max_tokens=_OUTPUT, schema=SCHEMA)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not read the results for conflicts: %s", self.model.name, error.fault.code)
            return not_read(findings, error.fault.message)
        try:
            more = await asyncio.to_thread(pointed_out, answer.result, several, findings.conflicts)
        except ValueError:
            return not_read(findings, "its reply is not in the form that was asked for")
        return ConflictReading(
            replace(findings, conflicts=(*findings.conflicts, *more)),
            {"second_reader": "model", "pointed_out": len(more)},
        )


class QuoteReader:
    """Asks a language model which passages of results belong to sentences; a quote that stands nowhere is left out.

    *instructions* say which: those that say the same, or those that go against a demand.
    """

    def __init__(self, model: ModelAgent, instructions: str = QUOTING) -> None:
        self._model = model
        self._instructions = instructions

    async def quotes(self, sentences: Sequence[str], components: Sequence[Component], brief: Brief) -> Quotes:
        """Return the passages for each sentence; none if the model cannot be asked."""
        task = quoting(sentences, components)
        time_ms = grant_time_ms(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        needed = estimate(self._instructions) + estimate(task) + estimate(QUOTED) + _OUTPUT
        if brief.tokens_left() < needed or time_ms < LEAST_MS:
            return {}
        try:
            prompt = ModelPrompt(instructions=self._instructions, messages=(), task=task)
            answer = await self._model.reply(brief, prompt, time_ms=time_ms, max_tokens=_OUTPUT, schema=QUOTED)
            return await asyncio.to_thread(quoted, answer.result, sentences, components)
        except ValueError:
            log.warning("%s did not quote the results in the form that was asked for", self._model.name)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not compare a text with the results: %s", self._model.name, error.fault.code)
        return {}


def not_read(findings: Findings, why: str) -> ConflictReading:
    """Return the findings of the rules alone, with the reason why there was no second reading."""
    return ConflictReading(findings, {"second_reader": "none", "not_read": why})


# Two sentences of 300 characters have some 150 tokens.
_LONGEST_TOKENS = 256
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_CONTRADICTION = "contradiction"
_NEEDED = "a model for natural language inference that tells entailment, neutral and contradiction apart"


class EntailmentModel:
    """Says how likely two sentences contradict each other.

    *model* is an ONNX file with a cross-encoder for natural language inference. Its `tokenizer.json` is in the same
    folder. *labels* name its outputs in their order; without them they are read from `config.json` beside it
    (`id2label`). A pair counts as a contradiction if its probability reaches the *threshold*, read both ways round.

    The files are loaded when the first pair is read. `check` raises TEAM_INVALID if they cannot be used.
    """

    def __init__(
        self, model: Path | str, *, labels: Sequence[str] = (), threshold: float = ENTAILMENT_THRESHOLD
    ) -> None:
        self.path = Path(model)
        self.threshold = threshold
        self._labels = tuple(labels)
        self._loaded: _Session | None = None

    def check(self) -> None:
        """Raise TEAM_INVALID if the model cannot be used. It is loaded, tried with two sentences, and let go again."""
        _Session(self.path, self._labels, optimised=False).probability("It is open.", "It is closed.")

    def contradicts(self, one: str, other: str) -> float | None:
        """Return the probability that two sentences contradict each other; None if it is below the threshold.

        It takes up to a second, and longer when it is called first: call it in a thread.
        """
        if self._loaded is None:
            self._loaded = _Session(self.path, self._labels, optimised=True)
        # A contradiction is one in both directions. Most pairs are none, and need not be read a second time.
        likely = self._loaded.probability(one, other)
        if likely >= self.threshold:
            likely = min(likely, self._loaded.probability(other, one))
        return likely if likely >= self.threshold else None


class EntailmentReader:
    """Points at contradictions that an entailment model sees between sentences of two results."""

    def __init__(self, model: EntailmentModel) -> None:
        self._model = model
        # One pair after another: a model uses a core for itself, and the hub needs the others.
        self._threads = Threads("the entailment model", 1)
        self.aclose = self._threads.close

    async def read(self, components: Sequence[Component], findings: Findings, brief: Brief) -> ConflictReading:
        """Return the findings with the contradictions that the model sees; those of the rules stay as they are."""
        several = compared(components)
        if not several:
            return ConflictReading(findings)
        time_ms = grant_time_ms(PATIENCE_MS, brief.time_left_ms())
        if time_ms < LEAST_MS:
            return not_read(findings, "too little time is left")
        task = _Task(self._model, several)
        try:
            async with asyncio.timeout(time_ms / 1000):
                await self._threads.run(_Task.perform, task)
        except TimeoutError:
            if not task.read:
                return not_read(findings, "the entailment model took too long")
        except RemitError as error:
            log.warning("the entailment model could not read the results for conflicts: %s", error.fault.message)
            return not_read(findings, error.fault.message)
        finally:
            task.stop.set()
        more = await asyncio.to_thread(pointed_out, contradictions(task.scored_pairs), several, findings.conflicts)
        return ConflictReading(
            replace(findings, conflicts=(*findings.conflicts, *more)),
            {"second_reader": "entailment", "pointed_out": len(more), "pairs": task.pairs, "pairs_read": task.read},
        )


class _Task:
    """The pairs of one answer, read in a thread; what was found is there at any time."""

    def __init__(self, model: EntailmentModel, components: Sequence[Component]) -> None:
        self._model = model
        self._components = components
        self.scored_pairs: list[tuple[StatementPair, float]] = []
        self.pairs = 0
        self.read = 0
        self.stop = threading.Event()

    def perform(self) -> None:
        pairs = statement_pairs(self._components)
        self.pairs = len(pairs)
        for pair in pairs:
            if self.stop.is_set():
                return
            probability = self._model.contradicts(pair.first.text, pair.second.text)
            if probability is not None:
                self.scored_pairs.append((pair, probability))
            self.read += 1


class _Session:
    """A loaded model with its tokenizer."""

    def __init__(self, model: Path, labels: Sequence[str], *, optimised: bool) -> None:
        for package in ("numpy", "onnxruntime", "tokenizers"):
            if find_spec(package) is None:
                raise team_invalid(f"an entailment model needs {package}; install it with {install_command('intent')}")
        tokenizer = model.with_name("tokenizer.json")
        for file in (model, tokenizer):
            if not file.is_file():
                raise team_invalid(f"{file} does not exist; an entailment model needs its tokenizer.json beside it")
        labels = labels or _labels_beside(model)
        self._contradiction, self._count = _contradiction_among(labels), len(labels)
        import numpy  # pyright: ignore
        import onnxruntime  # pyright: ignore
        import tokenizers  # pyright: ignore

        self._numpy: Any = numpy
        tokens: Any = tokenizers
        try:
            self._tokenizer = tokens.Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            # The library raises plain exceptions.
            raise team_invalid(f"{tokenizer} is not a tokenizer: {_first_line(error)}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST_TOKENS)
        self._path = model
        self._session = _opened(onnxruntime, model, optimised)
        self._inputs = frozenset(each.name for each in self._session.get_inputs())
        if unknown := sorted(self._inputs - _INPUTS):
            raise team_invalid(
                f"{model} has the input `{unknown[0]}`; it needs input_ids, attention_mask and token_type_ids, or some "
                f"of them. Take {_NEEDED}"
            )
        if "input_ids" not in self._inputs:
            raise team_invalid(f"{model} has no input `input_ids`. Take {_NEEDED}")

    def probability(self, premise: str, hypothesis: str) -> float:
        """Return the probability that the second sentence contradicts the first."""
        # The tokenizer reads UTF-8, which cannot contain half of a surrogate pair.
        both = (text.encode(errors="replace").decode() for text in (premise, hypothesis))
        read = self._tokenizer.encode(*both)
        given = {"input_ids": read.ids, "attention_mask": read.attention_mask, "token_type_ids": read.type_ids}
        try:
            inputs = {name: self._numpy.array([given[name]], dtype="int64") for name in self._inputs}
            logits = self._session.run(None, inputs)[0]
        except Exception as error:
            # The library raises its own exceptions, of many classes.
            raise team_invalid(f"{self._path} cannot be run: {_first_line(error)}. Take {_NEEDED}") from error
        if tuple(logits.shape) != (1, self._count):
            raise team_invalid(
                f"{self._path} gives an output of the shape {tuple(logits.shape)} for a pair of sentences, and has "
                f"{self._count} labels: (1, {self._count}) was expected. Take {_NEEDED}"
            )
        raised = self._numpy.exp(logits[0] - logits[0].max())
        return float(raised[self._contradiction] / raised.sum())


def _opened(runtime: Any, model: Path, optimised: bool) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimised:
        # To optimise the graph takes longer than to load it, and does not pay for one trial.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # The library raises its own exceptions, of many classes.
        raise team_invalid(f"{model} is not an ONNX model that can be loaded: {_first_line(error)}") from error


class _Config(msgspec.Struct):
    """The part of a model's `config.json` that is read."""

    id2label: dict[int, str] = {}


def _labels_beside(model: Path) -> tuple[str, ...]:
    """Return the labels that `config.json` beside a model gives to its outputs."""
    config = model.with_name("config.json")
    named: dict[int, str] = {}
    with suppress(OSError, ValueError):
        named = msgspec.json.decode(config.read_bytes(), type=_Config, strict=False).id2label
    if sorted(named) != list(range(len(named))) or not named:
        raise team_invalid(
            f"{config} does not name the outputs of the model (`id2label`); name them in their order, as in "
            'labels = ["contradiction", "entailment", "neutral"]'
        )
    return tuple(named[place] for place in range(len(named)))


def _contradiction_among(labels: Sequence[str]) -> int:
    """Return which label is the contradiction."""
    places = [place for place, label in enumerate(labels) if label.strip().lower() == _CONTRADICTION]
    if len(places) == 1 and len(labels) > 1:
        return places[0]
    listed = ", ".join(labels)
    if len(labels) == 2:
        raise team_invalid(
            f"the model has two outputs ({listed}): what is not entailed need not be contradicted. Take {_NEEDED}"
        )
    raise team_invalid(
        f"one output of the model has to be `{_CONTRADICTION}`, and they are called {listed}; if these are not their "
        f'names, give them in their order, as in labels = ["contradiction", "entailment", "neutral"]'
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".")[:200] if lines else type(error).__name__
