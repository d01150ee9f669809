"""Pending questions and drafts."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.documents.common import RunId, State
from remit.documents.shared import SharedDraft
from remit.runtime.ports import Decision, Question


class PendingQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.question/1"):
    """A pending question. Printed by `remit pending show --json`, and by `pending list --jsonl`."""

    question: Annotated[Question, Meta(description="The question and its request, redacted.")]
    run: RunId
    left_ms: Annotated[int, Meta(description="Time left to answer.")]


class Pending(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pending/1"):
    """The pending questions and drafts. Printed by `remit pending list --json`."""

    questions: Annotated[tuple[PendingQuestion, ...], Meta(description="The questions, oldest first.")]
    drafts: Annotated[
        tuple[SharedDraft, ...], Meta(description="The pending drafts to shared agents, oldest run first.")
    ] = ()


class Decided(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.decision/1"):
    """The answer to a question. Printed by `remit pending approve --json` and `pending reject --json`."""

    question: Annotated[str, Meta(description="The question id.")]
    run: RunId
    state: State
    decision: Annotated[Decision, Meta(description="The answer, and who gave it.")]


class DraftAnswered(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.draft-answer/1"):
    """The answer to a draft. Printed by `remit pending approve --json` and `pending reject --json` for a draft."""

    draft: Annotated[SharedDraft, Meta(description="The draft before the answer.")]
    agreed: Annotated[bool, Meta(description="Whether it is sent.")]
    text: Annotated[str | None, Meta(description="The replacement text; null: sent unchanged, or not sent.")] = None
    reason: Annotated[str, Meta(description="Reason for rejecting it, as told to the agent.")] = ""
