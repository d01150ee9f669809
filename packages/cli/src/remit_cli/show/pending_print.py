"""Formats pending questions and drafts."""

from collections.abc import Iterator, Sequence

from remit.protocol.codec import text_of
from remit.protocol.forms import form_lines
from remit.runtime.ports import Question
from remit_cli.show.screen import clock_time, cut, now_ms, spoken
from remit_server.documents.shared import PendingQuestion, SharedDraft

# Enough of a draft to recognise it; `remit pending show` prints all of it.
DRAFT_SHOWN = 80

Asked = Question | SharedDraft


def id_of(asked: Asked) -> str:
    """Return the id by which an item is answered."""
    return asked.id if isinstance(asked, Question) else asked.draft


def short_id(asked: Asked) -> str:
    """Return the shortest unique id: the end of the run's id, the position in the run, and the digest of the question.

    The digest alone would not do: another run may ask the same question, which would then be approved by mistake.
    """
    name, run = id_of(asked), asked.request.run if isinstance(asked, Question) else asked.run
    return name[max(0, len(run) - 6) :] if name.startswith(run) else name


def row_of(asked: Asked, among: Sequence[Asked]) -> tuple[str, str, str, str]:
    """Return a row of the table: an id that is unique *among* the items, caller and callee, the question, and
    its age.
    """
    name = short_id(asked)
    if sum(id_of(each).endswith(name) for each in among) > 1:
        name = id_of(asked)
    if isinstance(asked, SharedDraft):
        to = asked.device_name or asked.device
        text = f"Send as turn {asked.turn}: {cut(asked.text, DRAFT_SHOWN)}"
        return name, f"{asked.profile} → {to}", text, "paused" if asked.paused else ""
    left = spoken(max(0, asked.expires_ms - now_ms()))
    return name, f"{asked.request.origin} → {asked.request.target}", asked.text, left


def fields_of(asked: Asked) -> Iterator[tuple[str, str]]:
    """Return all fields of an item."""
    return _question_fields(asked) if isinstance(asked, Question) else _draft_fields(asked)


def _draft_fields(draft: SharedDraft) -> Iterator[tuple[str, str]]:
    yield "draft", draft.text
    yield "to be sent", f"as turn {draft.turn}, {draft.profile} → {draft.device_name or draft.device}"
    yield "objective", draft.objective
    yield "because", "\n".join(f"{each.rule}: {each.why}" for each in draft.reviews)
    yield "paused", "an answer takes effect when the run resumes" if draft.paused else ""
    yield "editable", "text"
    yield "run", draft.run
    yield "id", draft.draft


def document_of(asked: Asked) -> PendingQuestion | SharedDraft:
    """Return an item as a document."""
    return question_of(asked) if isinstance(asked, Question) else asked


def question_of(question: Question) -> PendingQuestion:
    """Return a question as a document."""
    left_ms = max(0, question.expires_ms - now_ms())
    return PendingQuestion(question=question, run=question.request.run, left_ms=left_ms)


def _question_fields(question: Question) -> Iterator[tuple[str, str]]:
    request = question.request
    yield "question", question.text
    yield "asks", f"{request.origin} → {request.target}" + (f" for {request.capability}" if request.capability else "")
    yield "objective", request.objective
    yield "input", text_of(request.input)
    yield "because", request.reason
    yield "user", request.remit.user
    yield "through", " → ".join(request.remit.chain)
    yield "limits", f"{spoken(request.remit.time_ms)}, {request.remit.tokens} tokens"
    yield "editable", ", ".join(sorted(question.editable)) or "nothing"
    yield "form", "" if question.form is None else "\n".join(form_lines(question.form))
    yield "asked", clock_time(question.asked_ms)
    yield "expires in", spoken(max(0, question.expires_ms - now_ms()))
    yield "run", request.run
    yield "id", question.id
