"""Builds a model's prompt from a brief: instructions, earlier messages, and the task with its caller."""

from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from remit.ports.brief import HISTORY_TOKENS, Brief
from remit.protocol.codec import text_of
from remit.protocol.envelope import Message, Note, Source, ToolFinding
from remit.protocol.files import File
from remit.runtime.sessions import NOTE_LENGTH

_HEADINGS = {"fact": "Known", "decision": "Decided", "constraint": "Must hold", "answer": "Already answered"}


class ModelPrompt(Struct, frozen=True, kw_only=True):
    """The prompt of one model turn: instructions, earlier messages and the task."""

    instructions: str
    messages: tuple[Message, ...]
    task: str


async def prompt_of(brief: Brief, *, instructions: str | None = None, max_tokens: int = HISTORY_TOKENS) -> ModelPrompt:
    """Return the prompt of a brief; *instructions* take precedence over the team file's."""
    own = brief.prompt if instructions is None else instructions
    history = await brief.history(max_tokens=max_tokens)
    return ModelPrompt(
        instructions=own,
        messages=(*history, *brief.messages),
        # Not among the instructions: parts of it come from other agents, which may not instruct this one.
        task="\n\n".join(part for part in (background(brief), task_of(brief)) if part),
    )


def with_findings_as_text(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages with what tools returned as part of their texts, for a framework that knows texts alone."""
    return tuple(_with_findings_as_text(each) if each.findings else each for each in messages)


def _with_findings_as_text(message: Message) -> Message:
    return replace(message, text="\n".join((*map(_looked_up, message.findings), message.text)), findings=())


def _looked_up(finding: ToolFinding) -> str:
    return f"[{finding.tool}({text_of(finding.arguments)}) returned: {_indented(finding.result)}]"


def background(brief: Brief) -> str:
    """Return the callee's background besides messages and task: notes, summary, workspace."""
    view, parts = brief.view, list[str]()
    for kind, heading in _HEADINGS.items():
        if notes := [note for note in view.known if note.kind == kind]:
            parts.append("\n".join((f"{heading}:", *map(_noted, notes))))
    if view.summary:
        parts.append(f"[Conversation summary]\n{view.summary}")
    if view.workspace:
        parts.append(f"[Workspace]\n{view.workspace}")
    return "\n\n".join(parts)


def _noted(note: Note) -> str:
    """Return a note as one line, with its author unless that is the user."""
    return f"- {' '.join(note.text.split())}{f' (according to {note.by})' if note.by else ''}"


def task_of(brief: Brief) -> str:
    """Return the task for the callee's model, with the name of the caller unless that is the user (O4)."""
    request = brief.request
    task = request.objective
    lines = [task] if brief.is_of_user else [f"[Called by: {request.origin}]", f"Task: {task}"]
    if request.capability:
        lines.append(f"Capability: {request.capability}")
    if request.input is not None and request.input != task:
        lines.append(text_of(request.input) if not task else f"Input: {text_of(request.input)}")
    if request.handoff is not None:
        lines += _handed_over(brief)
    lines += map(_attached, request.files)
    if request.hints:
        lines.append(f"Hints: {_indented('; '.join(request.hints))}")
    if (seen := len(brief.view.seen)) and not brief.is_of_user:
        lines.append(f"({seen} earlier messages that you have seen before are not repeated.)")
    return "\n".join(line for line in lines if line)


def _attached(file: File) -> str:
    """Return a file as a model reads it: its text, or what it is."""
    text = file.text
    if text is not None:
        return f"File {file.name} ({file.media_type}):\n  {_indented(text)}"
    where = f"at {file.url}" if file.url is not None else f"{file.size} bytes, not shown"
    return f"File {file.name} ({file.media_type}, {where})"


def _handed_over(brief: Brief) -> list[str]:
    handoff, lines = brief.handoff, list[str]()
    # The notes of the conversation stand above, and need not be read twice.
    known = {note.text for note in brief.known}
    if handoff.original_request and handoff.original_request != brief.objective:
        lines.append(f"The user asked: {_indented(handoff.original_request)}")
    if handoff.position:
        lines.append(f"Position: {_indented(handoff.position)}")
    if handoff.prior_outputs:
        lines.append("Results so far:")
        lines += [_indented(f"- {agent}: {text_of(output)}") for agent, output in handoff.prior_outputs.items()]
    for heading, texts in (
        ("Decided", handoff.decisions),
        ("Found", handoff.findings),
        ("Assumed", handoff.assumptions),
        ("Known", handoff.facts),
    ):
        lines += _listed(heading, texts, known)
    bounds = [f"{name}: {text_of(value)}" for name, value in handoff.constraints.items()]
    lines += _listed("Must hold", bounds, known)
    if handoff.references:
        lines += ["References:", *map(_referred, handoff.references)]
    if handoff.data:
        lines.append(f"Data: {text_of(handoff.data)}")
    return lines


def _referred(source: Source) -> str:
    """Return a reference as one line, without its owner: access was checked before."""
    return f"- {source.source_id}" + ("" if source.relevance is None else f" (relevance {source.relevance:g})")


def _listed(heading: str, texts: Iterable[str], known: Collection[str]) -> list[str]:
    new = [f"- {_indented(text)}" for text in texts if text[:NOTE_LENGTH] not in known]
    return [f"{heading}:", *new] if new else []


def _indented(text: str) -> str:
    """Return a quoted text in which no line looks like a heading of this prompt."""
    return "\n  ".join(text.splitlines())
