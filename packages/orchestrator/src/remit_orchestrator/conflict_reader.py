"""Reads results for contradictions a second time, after the rules: the port, and its adapter for a language model."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import estimate, grant_time_ms
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.runtime.brief import Brief
from remit.words.components import Component, Findings
from remit_models.model import ModelAgent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.text.conflicts.second_reader import INSTRUCTIONS, SCHEMA, compared, material, pointed_out

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
        self._model = model
        self.aclose = model.aclose

    async def read(self, components: Sequence[Component], findings: Findings, brief: Brief) -> ConflictReading:
        """Return the findings with the contradictions that the model points at; as they are if it cannot be asked."""
        several = compared(components)
        if not several:
            return ConflictReading(findings)
        task = material(several)
        if brief.tokens_left() < estimate(INSTRUCTIONS) + estimate(task) + estimate(SCHEMA) + _OUTPUT:
            return not_read(findings, "too few tokens are left")
        time_ms = grant_time_ms(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        if time_ms < LEAST_MS:
            return not_read(findings, "too little time is left")
        try:
            prompt = ModelPrompt(instructions=INSTRUCTIONS, messages=(), task=task)
            answer = await self._model.reply(brief, prompt, time_ms=time_ms, max_tokens=_OUTPUT, schema=SCHEMA)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not read the results for conflicts: %s", self._model.name, error.fault.code)
            return not_read(findings, error.fault.message)
        try:
            more = await asyncio.to_thread(pointed_out, answer.result, several, findings.conflicts)
        except ValueError:
            return not_read(findings, "its reply is not in the form that was asked for")
        return ConflictReading(
            replace(findings, conflicts=(*findings.conflicts, *more)),
            {"second_reader": "model", "pointed_out": len(more)},
        )


def not_read(findings: Findings, why: str) -> ConflictReading:
    """Return the findings of the rules alone, with the reason why there was no second reading."""
    return ConflictReading(findings, {"second_reader": "none", "not_read": why})
