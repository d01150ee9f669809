"""Notices, warnings and tool uses in the record of a run."""

import logging

from remit.policy.redaction import kind_of
from remit.policy.verdict import Sealing
from remit.policy.withheld import can_be_used, token_given, tokens_asked_for
from remit.protocol.errors import Code
from remit.protocol.records import Body, Kind, Notice
from remit.runtime import journal
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame

log = logging.getLogger("remit")

# The first few show what is wrong with a team; a model may try a hundred tools.
MOST_WARNINGS = 20


class RunRecorder:
    """Writes notices, warnings and steps to the record of a run."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def notice(self, frame: Frame, text: str, code: Code | None = None) -> None:
        """Record a notice for operators."""
        body = Notice(delegation=frame.path, agent=frame.card.name, text=text, code=code)
        self.record(Kind.NOTICE, frame.run.id, frame.request.session or frame.path, body)

    def warn(self, frame: Frame, text: str) -> None:
        """Record a warning for the caller, and repeat it in the responses of *frame* and all frames above it."""
        if frame.warnings is None or text not in frame.warnings:
            self.notice(frame, text)
        for each in frame.lineage():
            each.warnings = each.warnings or []
            if text not in each.warnings and len(each.warnings) < MOST_WARNINGS:
                each.warnings.append(text)

    def warn_of_tokens(self, frame: Frame, code: str) -> None:
        """Warn that an agent gets a token where its capability needs a value, and has nobody to pass it to."""
        capability = frame.card.capability(code)
        schema = capability.input_schema if capability is not None else None
        found = tokens_asked_for(frame.request.input, frame.run.known, schema)
        if not found:
            return
        registry = self.parts.registry
        agents = [entry.card for entry in registry.agents.values()]
        tools = {name: tool.card for name, tool in registry.tools.items()}
        kinds = {kind_of(token) for token in found.values()}
        useless = {kind for kind in kinds if not can_be_used(kind, frame.card, agents, tools)}
        for field, token in found.items():
            if kind_of(token) in useless:
                self.warn(frame, token_given("capability", code, field, kind_of(token)))

    def record(self, kind: Kind, run: str, session: str, body: Body) -> None:
        """Record anything but an admitted request or its response; its text is redacted first."""
        self._append(kind, run, session, self.parts.redactor.clean(body, self.sealing_of(run)))

    def record_clean(self, kind: Kind, frame: Frame, body: Body) -> None:
        """Record a body that is already redacted."""
        self._append(kind, frame.run.id, frame.request.session or frame.path, body)

    def _append(self, kind: Kind, run: str, session: str, body: Body) -> None:
        self.parts.store.append(kind, self.parts.clock.wall_ms(), run, session, body)

    def sealing_of(self, run: str) -> Sealing | None:
        """Return the sealing of a run, if it is in flight here."""
        root = self.parts.ledger.frames.get(run)
        return self.parts.redactor.sealing(run) if root is None else root.run.sealing

    def note_step(self, frame: Frame, step: journal.JournalStep) -> None:
        journal.note(self.parts.store, frame.run, frame.path, step, self.parts.redactor.keys)
