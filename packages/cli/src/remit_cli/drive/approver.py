"""Asks the person at the terminal for approval."""

import asyncio
import os
import shlex
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from remit.ports import Decision, Question
from remit.protocol.card import Schema
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Json
from remit.protocol.errors import RemitError
from remit.protocol.forms import field_value, form_lines
from remit.runtime.approvers import check_edits, check_form
from remit.runtime.question_view import ALSO_SENT, described_file, view_of
from remit.words.terminal import marked, one_line, several_lines
from remit_cli.show.display import Display
from remit_cli.show.screen import spell_ms

# Long inputs are cut; `?` shows them in full, and so does a yes before it counts.
MAX_SHOWN = 300
_CUT = "… (? shows all)"


class TerminalApprover:
    """Asks the person at the terminal one question at a time; implements `ports.Approver`."""

    def __init__(self, display: Display, who: str, terminal: int) -> None:
        self._display = display
        self._who = who
        self._terminal = terminal
        self._turn = asyncio.Lock()

    async def __call__(self, question: Question) -> Decision:
        async with self._turn:
            async with self._display.aside():
                decision = await self._decide(question)
            self._display.say("Approved." if decision.agreed else "Rejected.")
            return decision

    async def _decide(self, question: Question) -> Decision:
        is_cut = False
        for line in described(question):
            self._display.say(line)
            is_cut = is_cut or line.endswith(_CUT)
        # Discard what was typed before the question appeared.
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        while True:
            answer = await self._line(f"{_choices(question)} > ")
            match answer.strip().lower() if answer is not None else None:
                case "?" | "help" | "y" | "yes" | "e" | "edit" as typed if is_cut or typed in ("?", "help"):
                    is_cut = False
                    for line in described(question, whole=True):
                        self._display.say(line)
                    if typed not in ("?", "help"):
                        self._display.say("That is all of it. Type your answer again.")
                case "y" | "yes":
                    if self._is_filled_in(question, {}):
                        return Decision(agreed=True, by=self._who)
                case "n" | "no":
                    return Decision(agreed=False, by=self._who, reason=await self._line("Reason (optional): ") or "")
                case "e" | "edit" if question.editable:
                    edits = await self._edited(question)
                    if edits is not None and self._is_filled_in(question, edits):
                        return Decision(agreed=True, by=self._who, edits=edits)
                case None:
                    return Decision(agreed=False, by=self._who, reason="no answer")
                case _:
                    self._display.say("Type y to approve, n to reject" + (", e to edit." if question.editable else "."))

    def _is_filled_in(self, question: Question, edits: dict[str, Json]) -> bool:
        """Return whether the form of a question can be sent; if not, say why."""
        try:
            check_form(question, edits)
        except RemitError as error:
            self._display.say(one_line(f"{error.fault.message}. Type e to edit, n to reject."))
            return False
        return True

    # ── editing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _edited(self, question: Question) -> dict[str, Json] | None:
        """Return the edits of the person, or None if they are invalid."""
        edits: dict[str, Json] = {}
        try:
            if question.form is not None:
                return {"input": await self._fields(question.form, question.request.input)}
            for field in sorted(question.editable):
                before: Json = getattr(question.request, field)
                after = await self._new_value(field, before)
                if after != before:
                    edits[field] = after
            check_edits(question, edits)
        except (RemitError, msgspec.DecodeError, ValueError, OSError) as error:
            self._display.say(several_lines(f"Invalid value: {error}"))
            return None
        return edits

    async def _fields(self, form: Schema, before: Json) -> Json:
        """Return the fields of a form, each typed on a line of its own."""
        known = cast("dict[str, Json]", before) if isinstance(before, dict) else {}
        given: dict[str, Json] = {}
        for (name, field), line in zip(form["properties"].items(), form_lines(form), strict=True):
            now = known.get(name)
            shown = ", ".join(map(str, cast("list[Json]", now))) if isinstance(now, list) else text_of(now)
            kept = f" [{one_line(shown)}]" if shown and now is not None else ""
            typed = await self._line(f"{one_line(line, MAX_SHOWN)}{kept}: ")
            given[name] = field_value(field, typed) if typed and typed.strip() else now
        return given

    async def _new_value(self, field: str, before: Json) -> Json:
        is_text = isinstance(before, str)
        shown = before if is_text else msgspec.json.format(encode(before), indent=2).decode()
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if editor:
            text = await in_editor(editor, field, shown, ".txt" if is_text else ".json")
        else:
            text = await self._line(f"New {field}{'' if is_text else ' (JSON)'}; empty keeps it: ") or shown
        return text if is_text else msgspec.json.decode(text)

    async def _line(self, prompt: str) -> str | None:
        """Return the next typed line, or None at the end of input, without blocking the event loop."""
        os.write(2, prompt.encode(errors="replace"))
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(self._terminal, lambda: typed.done() or typed.set_result(os.read(self._terminal, 65_536)))
        try:
            raw = await typed
        except asyncio.CancelledError:
            os.write(2, b"\n")
            raise
        finally:
            loop.remove_reader(self._terminal)
        return raw.decode(errors="replace").rstrip("\r\n") if raw else None


async def in_editor(editor: str, field: str, text: str, suffix: str) -> str:
    """Return a text after editing it in an editor; raise `ValueError` if the editor fails."""
    with tempfile.TemporaryDirectory(prefix="remit-") as folder:
        file = Path(folder) / f"{field}{suffix}"
        file.write_text(text + "\n", encoding="utf-8")
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
        if code := await process.wait():  # vim exits like this on :cq, which cancels the edit
            raise ValueError(f"exited with code {code}")
        return file.read_text(encoding="utf-8").removesuffix("\n")


# ── the question ──────────────────────────────────────────────────────────────────────────────────────────────────────


def described(question: Question, *, whole: bool = False) -> Iterator[str]:
    """Yield the facts for the decision, already redacted."""
    yield ""
    yield f"Approval needed: {one_line(marked(question.text))}"
    for name, value in _facts(question, whole=whole):
        text = several_lines(value) if whole else one_line(value, MAX_SHOWN + 1)
        if not whole and len(text) > MAX_SHOWN:
            text = f"{text[:MAX_SHOWN]}{_CUT}"
        if text:
            yield f"  {name:9} " + text.replace("\n", "\n" + " " * 12)


def _facts(question: Question, *, whole: bool) -> Iterator[tuple[str, str]]:
    view = view_of(question)
    yield "call", view.sentence
    yield "user", question.request.remit.user
    for part in view.parts:
        if whole or part.title != ALSO_SENT:
            yield part.title, part.text
    for file in view.files:
        yield "file", described_file(file)
    yield "time", f"{spell_ms(question.expires_ms - question.asked_ms)} to answer; then it is rejected"


def _choices(question: Question) -> str:
    edit = "e edit first, " if question.editable else ""
    return f"y yes, n no, {edit}? show all"
