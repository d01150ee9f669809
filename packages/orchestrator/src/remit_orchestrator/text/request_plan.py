"""Reads the parts of a request, with their order and conditions, from its words alone.

It knows closed classes of words (conjunctions, adverbs of order, pronouns) and verbs that open a request, in English
and German. Which capability serves a part is not known here: a part that does not begin like a request is marked, so
that the classifier decides whether it is one.
"""

import re

from msgspec import Struct, field

from remit_orchestrator.text import request_clauses as opening
from remit_orchestrator.text.request_clauses import (
    AND,
    BARE_NO,
    HAVE_DONE,
    SPEAKS_OF_EARLIER,
    WHETHER_CLAUSE,
    Chunk,
    Marks,
    bare_so,
    chunks,
    count_words,
    denies,
    is_so,
    leaves_out,
    marks_of,
    refers,
    resolved,
)
from remit_orchestrator.text.sentences import sentence_spans, unmarked


class Condition(Struct, frozen=True):
    """A clause on which a part depends."""

    clause: str
    """What has to be found out: "it is positive"."""
    holds: bool = True
    """Whether the part is done if the clause holds, or if it does not."""
    wording: str = field(default="", name="said")
    """How the user said it: "if it is positive", "otherwise"."""


class RequestPart(Struct, frozen=True):
    """One of the things that a text asks for."""

    text: str
    """In the user's words, without what only says when it is to be done."""
    after: tuple[int, ...] = ()
    """The places of the parts that come before it in time."""
    condition: Condition | None = None
    sure: bool = True
    """Whether it begins like a request; if not, it is one only if the classifier is certain."""
    refers: bool = False
    """Whether it speaks of something in the part before ("book it")."""
    checks: bool = False
    """Whether it was made from a condition, which has to be found out first."""
    leads: bool = False
    """Whether it says what the user wants to do, and the next part what is to be done for it."""
    named: bool = False
    """Whether the text only names a capability: the classifier did not say which words ask for it."""
    full: str = ""
    """The text with what it refers to in the place of the pronoun."""


# Each part costs a classification, and nobody asks for more than this at once; what follows is one more part.
MOST_PARTS = 12
# A request is usually stated in the first paragraphs; the rest is the material to work on.
_LONGEST_TEXT = 2_000
# A shorter piece is not a request by itself, unless it begins like one: `as a PDF`, `for me`, `Dr.`.
_FEWEST_WORDS = 3


class _Draft:
    """A part while its text is read."""

    def __init__(self, text: str, *, sure: bool, condition: Condition | None = None) -> None:
        self.text = text
        self.sure = sure
        self.condition = condition
        self.after: set[_Draft] = set()
        self.checks = False
        self.refers = False
        self.leads = False
        self.full = ""


def parts(text: str) -> tuple[RequestPart, ...]:
    """Return the parts of a text, in the order in which they are said."""
    reader = _Reader()
    lines = [line for line in text[:_LONGEST_TEXT].splitlines() if line.strip()]
    for place, line in enumerate(lines):
        mark = _BULLET.match(line.strip())
        following = place + 1 < len(lines) and _BULLET.match(lines[place + 1].strip()) is not None
        heading = following and mark is None and line.rstrip().endswith(":")
        if mark is not None:
            reader.begin_item(numbered=mark["number"] is not None)
        else:
            reader.end_list()
        content = line.strip()[mark.end() :] if mark else line
        for start, end in sentence_spans(content):
            for sentence in _SEMICOLON.split(unmarked(content[start:end])):
                reader.read(sentence, heading=heading)
    return reader.done()


_BULLET = re.compile(r"(?:[-*•–]|\(?(?P<number>\d{1,2}|[a-h])[.)])\s+")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SEMICOLON = re.compile(r"(?<=;) ")
# What follows says more about a thing, not when something is done.
_RELATIVE = re.compile(r"\b(?:that|which|who|dass|weil|because)\b", re.IGNORECASE)


def _begins_with_condition(pieces: list[Chunk]) -> bool:
    """Return whether a sentence begins with a German condition without "wenn", before a request."""
    if len(pieces) < 2 or pieces[-1].text.rstrip().endswith("?") or pieces[1].joint != "comma":
        return False
    return opening.VERB_FIRST_IF.match(pieces[0].text) is not None and opening.opens_request(
        pieces[1].text, first=False
    )


class _Reader:
    """Reads one text, sentence by sentence."""

    def __init__(self) -> None:
        self._parts: list[_Draft] = []
        self._scope: Condition | None = None
        """The condition of all that follows in this sentence."""
        self._last: Condition | None = None
        """The last condition, to which "otherwise" refers."""
        self._clause: Condition | None = None
        """The condition whose main clause has not come yet."""
        self._sooner: list[_Draft] = []
        """What was said to come before or after a main clause that has not come yet."""
        self._later: str = ""
        self._open = False
        """Whether the sentence has a part of its own already."""
        self._by_answer = False
        """Whether the last condition asks for a yes or no: "if so", "if not"."""
        self._item, self._numbered, self._listed = False, False, 0

    def begin_item(self, *, numbered: bool) -> None:
        """Begin an item of a list; those of a numbered one come in order."""
        self._item, self._numbered = True, numbered
        self._listed += 1

    def end_list(self) -> None:
        self._item, self._numbered, self._listed = False, False, 0

    def read(self, sentence: str, *, heading: bool = False) -> None:
        """Read a sentence."""
        self._scope, self._open = None, False
        ended = sentence.rstrip().endswith(";")
        pieces = list(chunks(sentence.rstrip("; ") if ended else sentence))
        if _begins_with_condition(pieces):
            self._condition(pieces[0], Marks(pieces[0].text.strip(), opener="if"))
            del pieces[0]
        for chunk in pieces:
            self._chunk(chunk, heading=heading)
        self._finish_clause()

    def _chunk(self, chunk: Chunk, *, heading: bool) -> None:
        marks = marks_of(chunk.text, first=not self._parts)
        if marks.opener in {"if", "unless", "once"} and self._is_whether(marks, chunk):
            self._append(chunk)
        elif marks.opener in {"if", "unless", "once"}:
            self._condition(chunk, marks)
        elif marks.opener in {"after", "before"}:
            self._temporal(chunk, marks)
        elif marks.opener == "otherwise":
            self._finish_clause()
            self._scope = self._opposite_condition(marks.opening_words)
            if marks.text:
                self._part(chunk, marks, opens=True)
        elif marks.opener == "so":
            self._finish_clause()
            self._trailing = False
            self._scope = self._last = self._same_condition(marks.opening_words, holds=True)
            if marks.text:
                self._part(chunk, marks, opens=True)
        elif self._clause is not None or self._later:
            self._read_consequence(chunk, marks)
        else:
            self._part(chunk, marks, heading=heading)

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_whether(self, marks: Marks, chunk: Chunk) -> bool:
        """Return whether "if" is no condition: "tell me if it rains", "if possible"."""
        if opening.COURTESY.match(marks.text):
            return True
        # "Even if" and "as if" are no conditions either.
        before = self._parts[-1].text if self._parts and self._open and not self._clause else ""
        if before.casefold().endswith((" even", " as", " what", " wie", " auch", " selbst")):
            return True
        if marks.opener == "once" and marks.opening_words.casefold().endswith("when") and chunk.joint != "start":
            # "Tell me when it is ready" is one thing; "and when it is ready, call" is a condition.
            return chunk.joint == "" and bool(before)
        return marks.opener == "if" and chunk.joint == "" and opening.WHETHER.search(before) is not None

    def _condition(self, chunk: Chunk, marks: Marks) -> None:
        self._finish_clause()
        clause, rest = marks.text.strip(" ,.;!?"), ""
        start = bare_so(clause) or opening.main_start(clause)
        trailing = self._open and (chunk.joint == "" or (chunk.joint == "comma" and start is None))
        if start is not None and not trailing:
            clause, rest = clause[:start].strip(" ,"), clause[start:]
        self._trailing = trailing
        self._clause = self._read_condition(clause, marks)
        if rest:
            self._read_consequence(Chunk("comma", rest), Marks(rest, order=marks.order), certain=True)
        elif marks.order and not trailing:
            self._pending_order = marks.order

    _trailing = False
    _pending_order = ""

    def _read_condition(self, clause: str, marks: Marks) -> Condition:
        """Return the condition of a clause; "if so" and "if not" ask what was asked before."""
        wording = f"{marks.opening_words} {clause}".strip()
        holds = marks.opener != "unless"
        if is_so(clause):
            denied, by_answer = denies(clause), self._by_answer
            self._by_answer = True
            if self._last is not None and denied and clause.casefold() in BARE_NO:
                return Condition(self._last.clause, not self._last.holds, wording)
            if self._last is not None and by_answer:
                # "If not, …, and if so, …": both ask the same.
                return Condition(self._last.clause, holds != denied, wording)
            return self._same_condition(wording, holds=holds != denied)
        self._by_answer = False
        return Condition(clause, holds, wording)

    def _same_condition(self, wording: str, *, holds: bool) -> Condition:
        # "I take it if so": not the part itself, but the one before it.
        candidates = self._parts[:-1] if self._trailing and len(self._parts) > 1 else self._parts
        earlier = next((each.text for each in reversed(candidates) if not each.checks), "")
        whether = WHETHER_CLAUSE.search(earlier)
        return Condition((whether[1] if whether else earlier).strip(" ?.,"), holds, wording)

    def _opposite_condition(self, wording: str) -> Condition | None:
        if self._last is None:
            before = next((each.text for each in reversed(self._parts) if each.sure), "")
            return Condition("that works", holds=False, wording=wording) if before else None
        return Condition(self._last.clause, not self._last.holds, wording)

    def _read_consequence(self, chunk: Chunk, marks: Marks, *, certain: bool = False) -> None:
        """Read what follows a condition: more of it, or what depends on it."""
        opens = certain or opening.opens_request(marks.text, first=False) or marks.order == "then"
        clause = self._clause
        if clause is not None and self._trailing:
            # "Book a visit if it is positive": the condition of the part before it.
            if chunk.joint == "comma" and opens and not marks.order and not marks.also and self._german(clause):
                self._trailing = False  # "…, falls es regnet, storniere …" would have both; the nearer is meant
            else:
                self._finish_clause()
                self._part(chunk, marks)
                return
        if clause is not None and chunk.joint == "and" and not opens:
            wording = f"{clause.wording}{chunk.mark}{chunk.text}"
            self._clause = Condition(f"{clause.clause}{chunk.mark}{chunk.text}", clause.holds, wording)
            return
        order, self._pending_order = marks.order or self._pending_order, ""
        if clause is not None:
            self._scope = self._last = clause
            self._clause = None
            self._check(clause)
        if order == "then":
            order = ""  # "if it is positive, then book": no order of its own
        self._part(chunk, marks._replace(order=order), opens=True)

    @staticmethod
    def _german(condition: Condition) -> bool:
        return condition.wording.split(" ", 1)[0].casefold() in {"falls", "wenn", "sofern", "sobald"}

    def _finish_clause(self) -> None:
        """Give a condition that follows its main clause to the part before it."""
        if self._clause is None:
            return
        clause, self._clause = self._clause, None
        self._pending_order = ""
        if self._parts and (self._trailing or self._open) and self._parts[-1].condition is None:
            part = self._parts[-1]
            self._last = part.condition = clause
            self._check(clause, before=part)
        elif self._parts:
            self._parts[-1].text += f" {clause.wording}"
        else:
            self._add(_Draft(clause.wording, sure=False))

    def _check(self, condition: Condition, before: _Draft | None = None) -> None:
        """Add what finds out whether a condition holds, if it speaks of something else than the parts before."""
        earlier = [each for each in self._parts if each is not before and each.sure]
        if not condition.clause or (earlier and SPEAKS_OF_EARLIER.match(condition.clause)):
            return
        if any(condition.clause in each.text for each in earlier):
            return  # "if so"
        if any(each.checks and each.text == condition.clause for each in self._parts):
            return
        check = _Draft(condition.clause, sure=False)
        check.checks = True
        place = len(self._parts) if before is None else self._parts.index(before)
        self._parts.insert(place, check)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _temporal(self, chunk: Chunk, marks: Marks) -> None:
        """Read "after checking the stock" and "before you book it"."""
        self._finish_clause()
        text = HAVE_DONE.sub("", marks.text).strip(" ,")
        if self._open and chunk.joint in {"", "and"} and self._parts:
            main = self._parts[-1]
            done = self._add(_Draft(text, sure=True))
            (main.after if marks.opener == "after" else done.after).add(done if marks.opener == "after" else main)
            return
        # "Before you begin" may speak of what somebody else does.
        done = self._add(_Draft(text, sure=marks.opener == "after"))
        self._sooner.append(done)
        self._later = marks.opener

    def _part(self, chunk: Chunk, marks: Marks, *, opens: bool = False, heading: bool = False) -> None:
        """Add a clause as a part of its own, or to the one before."""
        text = AND.sub("", marks.text.strip(" ,"))
        if not text:
            return
        if self._open and not opens and self._goes_on(chunk, text):
            self._append(chunk)
            return
        sure = opens or opening.opens_request(text, first=chunk.joint == "start" and not marks.order)
        # "Then a massage at three": a step of its own, without a verb.
        sure = sure or (marks.order in {"then", "last"} and self._open and count_words(text) >= _FEWEST_WORDS)
        if heading:
            sure = False
        begins = chunk.joint == "start" and not self._open
        if begins and self._item and not sure:
            # An item without a verb is a part if the list stands alone, or as the others do.
            sure = not self._parts or all(each.sure for each in self._parts)
        if (
            not sure
            and not begins
            and not opening.withdraws(text)
            and (count_words(text) < _FEWEST_WORDS or (chunk.joint == "" and opening.THEN.match(chunk.text)))
        ):
            self._append(chunk)
            return
        if not sure and begins and count_words(text) < _FEWEST_WORDS and self._parts:
            self._append(Chunk("", text))
            return
        if marks.anyway or opening.ANYWAY.search(text):
            self._scope = None
        if self._parts and self._parts[-1].sure and chunk.joint in {"comma", "start"} and not marks.also:
            before = self._parts[-1]
            before.leads = sure and opening.is_wish(before.text) and not opening.is_wish(text) and not marks.order
        chained = chunk.joint == "and" and self._open and bool(self._parts) and self._parts[-1].refers
        part = self._add(_Draft(text, sure=sure, condition=self._scope))
        self._order(part, marks, begins=begins)
        if chained and not part.after:
            part.after.add(self._parts[-2])

    def _goes_on(self, chunk: Chunk, text: str) -> bool:
        """Return whether a clause belongs to the request before: "tell me, which are free", "check, whether it is"."""
        if chunk.joint != "comma" or not self._parts or opening.THEN.match(chunk.text):
            return False
        if opening.SUBORDINATE.match(text) is not None:
            return True
        return opening.is_only_verb(self._parts[-1].text) and not opening.starts_with_verb(_WORD.findall(text))

    def _order(self, part: _Draft, marks: Marks, *, begins: bool) -> None:
        before = [each for each in self._parts[:-1] if not each.checks and each.sure]
        if self._later:
            for each in self._sooner:
                (part.after if self._later == "after" else each.after).add(each if self._later == "after" else part)
            self._later, self._sooner = "", []
        if not before:
            if part.condition is not None and refers(part.text):
                part.refers = True
                part.full = resolved(part.text, part.condition.clause, statement=True)
            return
        within = _RELATIVE.split(part.text, maxsplit=1)[0] if part.sure else ""
        if marks.order == "last":
            part.after.update(before)
        elif marks.order == "then" or opening.LATER_WITHIN.search(within):
            part.after.add(before[-1])
        elif marks.order == "before" or opening.SOONER_WITHIN.search(within):
            before[-1].after.add(part)
        elif self._numbered and begins and self._listed > 1:
            part.after.add(before[-1])
        if part not in before[-1].after and refers(part.text):
            part.refers = True
            part.after.add(before[-1])
            part.full = resolved(part.text, before[-1].full or before[-1].text) if part.sure else ""
        elif part.sure and leaves_out(part.text):
            part.full = resolved(part.text, before[-1].full or before[-1].text)

    def _add(self, part: _Draft) -> _Draft:
        self._open = True
        self._parts.append(part)
        return part

    def _append(self, chunk: Chunk) -> None:
        """Add a clause to the part before it, or to the condition that is being read."""
        joint = chunk.mark
        if self._clause is not None:
            clause = self._clause
            wording = f"{clause.wording}{joint}{chunk.text}"
            self._clause = Condition(f"{clause.clause}{joint}{chunk.text}", clause.holds, wording)
        elif self._parts:
            part = self._parts[-1]
            part.text += f"{joint}{chunk.text.strip()}"
            part.full = part.full and f"{part.full}{joint}{chunk.text.strip()}"
            if opening.LATER_WITHIN.search(chunk.text) and len(self._parts) > 1:
                part.after.add(self._parts[-2])
            self._open = True
        else:
            self._add(_Draft(chunk.text.strip(), sure=False))

    def done(self) -> tuple[RequestPart, ...]:
        """Return the parts; those beyond the limit are one."""
        rest = self._parts[MOST_PARTS:]
        drafts = self._parts[: MOST_PARTS + 1]
        if len(rest) > 1:
            drafts[-1].text = "; ".join(each.text for each in rest)
        places = {id(each): place for place, each in enumerate(drafts)}
        request_parts: list[RequestPart] = []
        for place, each in enumerate(drafts):
            after = {places[id(one)] for one in each.after if id(one) in places} - {place}
            if each.condition is not None:
                after.update(range(place))
                # What comes after this part cannot come before it.
                after -= {at for at, other in enumerate(drafts) if each in other.after}
            request_parts.append(
                RequestPart(
                    text=each.text.strip(" ,;"),
                    after=tuple(sorted(after)),
                    condition=each.condition,
                    sure=each.sure,
                    refers=each.refers,
                    checks=each.checks,
                    leads=each.leads,
                    full=each.full,
                )
            )
        return tuple(request_parts)
