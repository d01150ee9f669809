"""Has a model read results for contradictions, as a second reader after the rules."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from remit.agents.model import ModelAgent
from remit.agents.prompting import ModelPrompt
from remit.policy.budget import estimate, grant_time_ms
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError
from remit.runtime.brief import Brief
from remit.text.components import Component, Findings
from remit.text.conflicts.second_reader import INSTRUCTIONS, SCHEMA, compared, material, pointed_out

log = logging.getLogger("remit")

# The results are finished, and the user waits for them: no longer than for one text from them.
PATIENCE_MS = 30_000
# No model answers in less time.
LEAST_MS = 1_000
# Room for quotes of some twenty statements.
_OUTPUT = 2_000


class ConflictReading(Struct, frozen=True):
    """The contradictions that rules and model found, or why the model was not heard."""

    findings: Findings
    metadata: dict[str, Json] = {}


class ConflictReader:
    """Has a model point at contradictions; what it quotes and does not stand in the results is left out."""

    def __init__(self, model: ModelAgent) -> None:
        self._model = model
        self.aclose = model.aclose

    async def read(self, components: Sequence[Component], findings: Findings, brief: Brief) -> ConflictReading:
        """Return the findings with what the model points at; without it if it fails, or there is nothing to compare."""
        several = compared(components)
        if not several:
            return ConflictReading(findings)
        task = material(several)
        if brief.tokens_left() < estimate(INSTRUCTIONS) + estimate(task) + estimate(SCHEMA) + _OUTPUT:
            return _unread(findings, "too few tokens are left")
        time_ms = grant_time_ms(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        if time_ms < LEAST_MS:
            return _unread(findings, "too little time is left")
        try:
            prompt = ModelPrompt(instructions=INSTRUCTIONS, messages=(), task=task)
            answer = await self._model.reply(brief, prompt, time_ms=time_ms, max_tokens=_OUTPUT, schema=SCHEMA)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not read the results for conflicts: %s", self._model.name, error.fault.code)
            return _unread(findings, error.fault.message)
        try:
            more = await asyncio.to_thread(pointed_out, answer.result, several, findings.conflicts)
        except ValueError:
            return _unread(findings, "its reply is not in the form that was asked for")
        return ConflictReading(
            replace(findings, conflicts=(*findings.conflicts, *more)),
            {"second_reader": "model", "pointed_out": len(more)},
        )


def _unread(findings: Findings, why: str) -> ConflictReading:
    return ConflictReading(findings, {"second_reader": "none", "not_read": why})
