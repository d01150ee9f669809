"""A team's own rules: which calls are refused, and which need a person's approval."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, cast

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from remit.policy.verdict import ALLOW, Ask, Detector, Facts, Guard, Rewrite, Verdict, on_answer, refuse
from remit.protocol.codec import convert, text_of
from remit.protocol.conditions import Condition, checked_condition, holds
from remit.protocol.envelope import USER, AnswerContent, Json, Request
from remit.protocol.errors import Code
from remit.runtime.schemas import check_schema, misfits
from remit_redaction.disguises import DROPPED, FILLERS, LIKENESSES, SPACES, is_seen, likeness, unescaped

Pattern = Annotated[str, Meta(min_length=1)]
Editable = Literal["objective", "input"]


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to calls of agents, uses of tools and answers that match. The first rule that matches decides.

    `*` in a name matches anything. A rule with `tool` is about uses of tools, one with `to` or `capability` about
    calls, and one with none of them about both. One with `on = "answer"` is about answers alone.
    """

    then: Literal["allow", "ask", "refuse", "rewrite"]
    """Allow it, ask a person first, refuse it, or change an answer: what `finds` found becomes its kind, a text that is
    `longer_than` is cut, and the rules after it judge the rest."""
    on: Literal["call", "answer"] = "call"
    """What is judged: calls and uses of tools before they are made, or answers before their callers get them."""
    from_: Pattern = field(default="*", name="from")
    """The agent that calls, uses a tool, or answers; `user` is the user."""
    to: Pattern = "*"
    """The agent that is called; of an answer who gets it, which may be `user`."""
    tool: Pattern | None = None
    """The tool that is used."""
    where: dict[Pattern, Condition] = {}
    """Conditions on arguments of the tool, or on the input of the call, by name or path (`to.iban`): all hold. A
    value, a list of values, a text with `*`, a comparison (`"> 500"`), or a table of `in`, `not_in`, `under` (folders),
    `above`, `at_least`, `below`, `at_most`. Of a list, a rule that allows matches if they hold for every value, any
    other if they hold for one. If it cannot be told whether one holds, since the value is missing or of another kind, a
    rule asks or refuses, and does not allow."""
    capability: Pattern | None = None
    """The capability that is asked for."""
    user: Pattern = "*"
    """The user on whose behalf the call is made."""
    mentions: tuple[Pattern, ...] = ()
    """Words of which at least one occurs in what the callee is told (objective, input, hand-off, hints, names, files
    that are text), in the arguments of the tool, or in the answer, in any case, also disguised: see `remit docs
    approvals`."""
    finds: tuple[Pattern, ...] = ()
    """Of an answer: kinds of personal data and secrets of which at least one is found in it, such as `IBAN`; `*` is
    any."""
    longer_than: Annotated[int, Meta(ge=1)] | None = None
    """Of an answer: its texts have more characters together."""
    unless_schema: dict[str, Any] | None = None
    """Of an answer: its result does not fit this JSON Schema."""
    check: Pattern | None = None
    """Of an answer: a function of your own, as `module:function`. It is called with the result, and the rule matches if
    it returns true, or a text, which is the reason."""
    say: str = ""
    """The question to the person, or the reason for the refusal."""
    edit: frozenset[Editable] = frozenset()
    """What the person may change before approving; the arguments of a tool are its `input`."""

    def __post_init__(self) -> None:
        if self.tool is not None and (self.to != "*" or self.capability is not None):
            raise ValueError("a rule is about a tool (`tool`) or about a call (`to`, `capability`): leave one out")
        if self.on == "answer" and self.tool is not None:
            raise ValueError('a rule with `on = "answer"` is about answers of agents: leave `tool` out')
        for name in ("finds", "longer_than", "unless_schema", "check"):
            if self.on == "call" and getattr(self, name) not in ((), None):
                raise ValueError(f'`{name}` is about answers: add `on = "answer"`')
        if self.then == "rewrite" and not (self.finds or self.longer_than):
            raise ValueError('`then = "rewrite"` needs `finds` or `longer_than`, with `on = "answer"`')
        if self.unless_schema is not None and (wrong := check_schema(self.unless_schema)):
            raise ValueError(f"unless_schema: {wrong}")
        if self.where and self.on == "call" and self.tool is None and self.to == "*" and self.capability is None:
            raise ValueError("`where` needs the `tool`, or the agent (`to`) or `capability`, whose values it is about")
        _conditions(self)

    @property
    def is_about_tools(self) -> bool:
        """Whether it judges uses of tools."""
        return self.tool is not None or (self.on == "call" and self.to == "*" and self.capability is None)


def _conditions(rule: Rule) -> dict[str, Condition]:
    """Return the conditions of a rule, with comparisons as bounds; raise `ValueError` for one that is malformed."""
    conditions: dict[str, Condition] = {}
    for name, condition in rule.where.items():
        try:
            conditions[name] = checked_condition(condition)
        except ValueError as error:
            raise ValueError(f"where.{name}: {error}") from None
    return conditions


def guard_of(rules: Sequence[Rule]) -> Guard:
    """Return the guard for *rules*: the first matching rule decides."""
    find = _finder(rules)

    def team_rules(request: Request, _: Facts) -> Verdict:
        """No rule of the team refuses it or requires a person's approval."""
        place = find(request)
        return ALLOW if place is None else _outcome(rules[place], request)

    return team_rules


Check = Callable[[Json], object]
"""Says of a result whether a rule matches: true, or a text that is the reason."""


def answer_guard_of(rules: Sequence[Rule], checks: Mapping[str, Check], detect: Detector) -> Guard:
    """Return the guard for the *rules* about answers: the first matching rule decides.

    *checks* are the functions that they name. What *detect* finds is what `finds` looks for, with the secrets that are
    known in the run.
    """
    find = _finder(rules)

    @on_answer
    def team_answers(request: Request, facts: Facts) -> Verdict:
        """No rule of the team about answers refuses it, changes it or requires a person's approval."""
        content = facts.answer or AnswerContent(result=request.input)
        known = detect if facts.sealing is None else facts.sealing.detect
        judged, reasons = request, dict[int, str]()

        def matches(place: int, texts: Sequence[str]) -> bool:
            rule = rules[place]
            if rule.finds and not any(_is_wanted(each.kind, rule) for text in texts for each in known(text)):
                return False
            if rule.longer_than is not None and sum(map(len, texts)) <= rule.longer_than:
                return False
            if rule.unless_schema is not None and not misfits(rule.unless_schema, judged.input):
                return False
            if rule.check is not None:
                reason = checks[rule.check](judged.input)
                reasons[place] = reason if isinstance(reason, str) else ""
                return bool(reason)
            return True

        place = find(judged, content, matches)
        while place is not None and rules[place].then == "rewrite":
            content = _rewritten(rules[place], content, known)
            judged = replace(request, input=content.result)
            place = find(judged, content, matches, after=place)
        if place is not None:
            verdict = _outcome(rules[place], judged, reasons.get(place, ""))
            if verdict is not ALLOW and not (isinstance(verdict, Ask) and verdict.question in facts.approved):
                return verdict
        return ALLOW if judged is request else Rewrite(judged, answer=content)

    return team_answers


def _is_wanted(kind: str, rule: Rule) -> bool:
    return any(fnmatchcase(kind, each) for each in rule.finds)


def _rewritten(rule: Rule, content: AnswerContent, detect: Detector) -> AnswerContent:
    """Return an answer with the kinds in place of what was found, and with a text that is not too long."""

    def struck(value: Json) -> Json:
        match value:
            case str():
                for each in sorted(detect(value), reverse=True):
                    if _is_wanted(each.kind, rule):
                        value = f"{value[: each.start]}[{each.kind}]{value[each.end :]}"
                return value
            case dict():
                fields = cast("dict[str, Json]", value)
                return {cast("str", struck(name)): struck(each) for name, each in fields.items()}
            case list():
                return [struck(each) for each in cast("list[Json]", value)]
            case _:
                return value

    if rule.finds:
        content = convert({**struck(to_builtins(replace(content, files=()))), "files": []}, AnswerContent)
    if rule.longer_than is not None:
        text = text_of(content.result)
        cut = text if len(text) <= rule.longer_than else f"{text[: rule.longer_than - 1]}…"
        content = AnswerContent(result=cut, confidence=content.confidence, metadata=content.metadata)
    return content


def matching_rule(rules: Sequence[Rule], request: Request) -> int | None:
    """Return the place of the rule that decides about a request; None if none matches."""
    return _finder(rules)(request)


def question_of(rule: Rule, request: Request) -> str:
    """Return what a rule asks a person about a request."""
    return rule.say or f"May {request.origin} {_what(request)}?"


Find = Callable[..., int | None]


def _finder(rules: Sequence[Rule]) -> "Find":
    conditions = [_conditions(rule) for rule in rules]
    mentions = [tuple(map(search_word, rule.mentions)) for rule in rules]
    folds = any(word.folded for words in mentions for word in words)

    def find(
        request: Request,
        content: AnswerContent | None = None,
        matches: Callable[[int, Sequence[str]], bool] = lambda _, __: True,
        after: int = -1,
    ) -> int | None:
        texts: list[SearchText] | None = None
        written: list[str] | None = None
        for place, (rule, where, words) in enumerate(zip(rules, conditions, mentions, strict=True)):
            if place <= after or not _fits(rule, where, request):
                continue
            if written is None and (words or rule.on == "answer"):
                # Read once for all rules.
                written = [text for text in _texts(request, content) if text]
            if words:
                texts = texts or [search_text(text, folds=folds) for text in written or ()]
                if not any(word.is_in(text) for text in texts for word in words):
                    continue
            if rule.on == "answer" and not matches(place, written or ()):
                continue
            return place
        return None

    return find


def _texts(request: Request, content: AnswerContent | None = None) -> Iterator[str]:
    """Yield what a caller tells its callee: texts, names, and files that are text.

    Not what was said before, which was judged then: the conversation, and the user's own words in a hand-off.
    """
    if request.act == "answer":
        content = content or AnswerContent(result=request.input)
        for each in to_builtins(replace(content, files=())).values():
            yield from _texts_in(each)
        for file in content.files:
            yield from (file.name, file.url or "", file.text or "")
        return
    yield from (request.objective, request.target, request.capability or "", *request.hints)
    yield from _texts_in(request.input)
    if request.handoff is not None:
        yield from _texts_in(to_builtins(replace(request.handoff, original_request="", history=None)))
    for file in request.files:
        yield from (file.name, file.url or "", file.text or "")


def _texts_in(value: Json) -> Iterator[str]:
    match value:
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield name
                yield from _texts_in(each)
        case list():
            for each in cast("list[Json]", value):
                yield from _texts_in(each)
        case _:
            yield text_of(value)


def _fits(rule: Rule, where: dict[str, Condition], request: Request) -> bool:
    """Return whether the names and values in *request* match; its words are checked separately."""
    return (
        _is_about(rule, request)
        and (rule.from_ == "*" or fnmatchcase(request.origin, rule.from_))
        and (rule.user == "*" or fnmatchcase(request.remit.user, rule.user))
        and all(_may_hold(rule, request, name, condition) for name, condition in where.items())
    )


def _is_about(rule: Rule, request: Request) -> bool:
    """Return whether a rule is about this tool, this call, or this answer."""
    if (rule.on == "answer") is not (request.act == "answer"):
        return False
    if rule.tool is not None:
        return request.act == "tool" and fnmatchcase(request.target, rule.tool)
    if rule.is_about_tools:  # and about calls
        return True
    return (
        request.act in ("call", "answer")
        and fnmatchcase(request.target, rule.to)
        and (rule.capability is None or fnmatchcase(request.capability or "", rule.capability))
    )


def _may_hold(rule: Rule, request: Request, name: str, condition: Condition) -> bool:
    """Return whether a condition holds; what cannot be told counts against whoever wants to act."""
    allows = rule.then == "allow"
    verdict = holds(condition, request.input, name, every=allows)
    return not allows if verdict is None else verdict


def _outcome(rule: Rule, request: Request, why: str = "") -> Verdict:
    match rule.then:
        case "allow" | "rewrite":
            return ALLOW
        case "refuse":
            return refuse(
                Code.PERMISSION_DENIED,
                rule.say or why or f"the team does not let {request.origin} {_what(request)}",
                suggestion="Ask for something that the rules of the team allow.",
            )
        case "ask":
            question = question_of(rule, request)
            return Ask(f"{question} ({why})" if why else question, frozenset(rule.edit))


def _what(request: Request) -> str:
    if request.act == "tool":
        return f"use {request.target}"
    if request.act == "answer":
        return f"give {'the user' if request.target == USER else request.target} this answer"
    return f"ask {request.target} for {request.capability}" if request.capability else f"ask {request.target}"


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_LETTER = r"[^\W\d_]"
_TOKEN = re.compile(rf"{_LETTER}+")
# The patterns begin with the characters that are rare, so that the search skips all others at once.
_SPLIT = re.compile(rf"[-_.*~|+=](?<={_LETTER}.)(?:(?<=-)[ \t]*\n[ \t]*|[-_.*~|+=]{{0,2}})(?={_LETTER})")
_APART = re.compile(rf"[ \t]{_LETTER}[ \t]{_LETTER}(?!\w)")
_SPACED = re.compile(rf"(?<!\w){_LETTER}(?:[ \t]{_LETTER}){{2,}}(?!\w)")
_GAP = re.compile(r"(\s+)")
_SPACE = re.compile(r"[ \t]")
# A tag of HTML may stand inside a word. It is bounded, so that no text makes the search slow.
_MARKUP = re.compile(r"<[/!A-Za-z][^<>]{0,100}>")
# A text that is written in these characters alone is not shown, and models read it all the same.
_TAGS = re.compile(r"[\U000e0020-\U000e007e]+")
# Shown from right to left, whatever its letters are.
_REVERSED = re.compile("\u202e([^\u202c]+)")
# A break inside a word, and the fewest letters of a word in which it is looked for: `a\nm` is in every other list.
_BREAK = "(?: {0,3}\n {0,3}){0,2}"
_FEWEST = 3


class SearchText(NamedTuple):
    """The forms of a text in which words are searched, all in lower case."""

    written: str
    """As it is written."""
    seen: str
    """Without disguises, words of other scripts as they are."""
    folded: str
    """Without disguises, all letters as the ones of ASCII that they look like."""
    joined: str
    """As seen, with split words joined."""
    broken: str
    """As seen, with breaks inside words; empty if there are none."""


class SearchWord(NamedTuple):
    """The forms in which a word is searched."""

    written: str
    seen: str
    folded: str
    joined: str
    broken: re.Pattern[str] | None

    def is_in(self, text: SearchText) -> bool:
        """Return whether the word occurs in any form of *text*."""
        return (
            self.written in text.written
            or (bool(self.seen) and self.seen in text.seen)
            or (bool(self.folded) and self.folded in text.folded)
            or (bool(self.joined) and self.joined in text.joined)
            or (bool(text.broken) and self.broken is not None and self.broken.search(text.broken) is not None)
        )


def search_word(word: str) -> SearchWord:
    """Return the forms in which *word* is searched."""
    plain = unescaped(word)
    shown = (word if plain is None else plain.text).translate(_SHOWN)
    seen, folded = _collapsed(shown.casefold()), _collapsed(shown.translate(LIKENESSES).casefold())
    if seen.translate(LIKENESSES).isascii() and _script(seen) == "":
        seen = folded  # an accent, or letters in circles
    joined = _joined(seen)
    first, *rest = [re.escape(char) if char != " " else r"\s{1,3}" for char in joined] or [""]
    pattern = _BREAK.join([rf"{first}(?<!\w{first})", *rest])
    broken = re.compile(rf"{pattern}(?!\w)") if len(rest) + 1 >= _FEWEST else None
    # If all its letters have look-alikes, it could be a word of another language: `рот` is no `pot`.
    return SearchWord(word.casefold(), seen, "" if folded.isascii() else folded, joined, broken)


def search_text(text: str, *, folds: bool = True) -> SearchText:
    """Return the forms of *text* in which words are searched; unless it *folds*, those with a folded form are not."""
    written = text.casefold()
    plain = unescaped(text)
    shown = text if plain is None else plain.text
    if shown.isascii():
        shown = folded = shown.replace("\r", "").casefold()
    else:
        hidden = ["".join(chr(ord(char) - 0xE0000) for char in match[0]) for match in _TAGS.finditer(shown)]
        hidden += [match[1][::-1] for match in _REVERSED.finditer(shown)]
        shown = "\n\n\n".join([shown, *hidden]).translate(_SHOWN)
        folded = shown.translate(LIKENESSES).casefold() if folds else ""
        shown = _undisguised(shown).casefold()
    if "<" in shown:
        shown = _MARKUP.sub("\n", shown)
    seen = _collapsed(shown)
    return SearchText(written, seen, _collapsed(folded), _joined(shown), shown if "\n" in shown else "")


def _collapsed(text: str) -> str:
    return " ".join(text.split())


def _joined(text: str) -> str:
    text = _SPLIT.sub("", text)
    if _APART.search(text):
        text = _SPACED.sub(lambda spaced: _SPACE.sub("", spaced[0]), text)
    return _collapsed(text)


def _undisguised(shown: str) -> str:
    """Return a text with look-alike letters replaced, except in the words of a language that is written with them.

    A word of one other script is proper if one of its letters looks like none of ASCII, or if the text has such words.
    """
    pieces = _GAP.split(shown)
    foreign = {piece for piece in pieces if not piece.isascii()}
    tokens = {
        token: (_script(token), token.translate(LIKENESSES))
        for piece in foreign
        for token in _TOKEN.findall(piece)
        if not token.isascii()
    }
    written = {script for script, folded in tokens.values() if script and not folded.isascii()}

    def read(match: re.Match[str]) -> str:
        script, folded = tokens.get(match[0], ("", match[0]))
        return match[0] if script in written else folded

    undisguised = {piece: _TOKEN.sub(read, piece) for piece in foreign}
    return "".join([undisguised.get(piece, piece) for piece in pieces])


def _script(token: str) -> str:
    """Return the script of a word; empty if it is Latin, or mixed."""
    scripts = {_SCRIPTS[ord(char)] for char in token}
    return scripts.pop() if len(scripts) == 1 else ""


class _Scripts(dict[int, str]):
    """The script of each letter; empty for Latin ones, in whatever form."""

    def __missing__(self, point: int) -> str:
        char = chr(point)
        name = "" if unicodedata.normalize("NFKC", char).isascii() else unicodedata.name(char, "").partition(" ")[0]
        script = self[point] = "" if name == "LATIN" else name
        return script


class _ShownForms(dict[int, str]):
    """Each character as it is shown: nothing if it is invisible, letters without accents, others by their likeness.

    Odd spaces are breaks: they may stand inside a word.
    """

    def __missing__(self, point: int) -> str:
        char = chr(point)
        category = unicodedata.category(char)
        if char.isascii() and char != "\r":
            form = char
        elif category in DROPPED or char in FILLERS or char == "\r":
            form = ""
        elif category[0] == "Z" or char in SPACES:
            form = "\n"
        elif char.isalpha():
            base = "".join(filter(is_seen, unicodedata.normalize("NFD", char)))
            form = base if len(base) == 1 else char
        else:
            form = likeness(char)
        self[point] = form
        return form


_SCRIPTS, _SHOWN = _Scripts(), _ShownForms()
