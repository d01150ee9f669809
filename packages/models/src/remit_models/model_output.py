"""Reads what a model writes besides the text of its answer (X2): fields of an answer, and tool calls written as text.

Fields are read leniently: invalid ones are left out. A text is a tool call only as a whole: a sentence may stand before
the call, and nothing after it. Such a call is checked like any other.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, cast

import msgspec

from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Artifact, Json, Level, Source, share_of

# The tool by which a model answers with more than a text; the document does not name it.
NAME = "structured_answer"
KINDS = ("table", "json", "url", "id", "file")
"""The types of artifacts that are accepted; naming them in every model call would cost too much (O11)."""
DESCRIPTION = "Answer with more than plain text, if there is more."
# A longer value is an answer of its own; a fact is kept for all agents that are called later.
_MOST = 20
_FACT_LENGTH = 300
_ID_LENGTH = 200

# Each word of it is sent with every model call, so it names the fields and no more. Whatever a model makes of them is
# read leniently.
SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "answer": {},
        "summary": {},
        "confidence": {},
        "sources": {},
        "facts": {},
        "artifacts": {"description": "[{type, value}]"},
        "follow_up": {},
    },
    "required": ["answer"],
}


def answer_of(output: Json, *, text: str, user: str, references: Iterable[Source] = ()) -> Answer:
    """Return the answer of a model that gave more than a text; *text* is the text beside it.

    Sources belong to the *user*, unless they are among the *references* that the model was given.
    """
    if not isinstance(output, dict):
        return Answer(text or output)
    read = _Reader(cast("dict[str, Json]", output), user, references)
    result: Json = read.given.get("answer")
    if result is None or result == "":
        result = text or read.text("summary") or cast("Json", output)
    return Answer(
        result,
        summary=read.text("summary"),
        confidence=read.confidence(),
        artifacts=read.artifacts(),
        new_facts=tuple(each[:_FACT_LENGTH] for each in read.texts("facts")),
        sources=read.sources(),
        requires_followup=read.flag("follow_up"),
        warnings=tuple(read.warnings),
    )


class _Reader:
    """Reads the fields of one answer, and records what it had to leave out."""

    def __init__(self, given: dict[str, Json], user: str, references: Iterable[Source]) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.warnings: list[str] = []
        self._user = user
        self._references = {each.source_id: each for each in references}

    def _left_out(self, name: str) -> None:
        warning = f"`{name}` of the model's answer could not be read, and was left out"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def text(self, name: str) -> str:
        value = self.given.get(name, "")
        if isinstance(value, str):
            return value
        self._left_out(name)
        return ""

    def texts(self, name: str) -> list[str]:
        value = self.given.get(name, [])
        several = cast("list[Json]", value) if isinstance(value, list) else [value]
        kept = [each.strip() for each in several if isinstance(each, str) and each.strip()]
        if len(kept) < len(several):
            self._left_out(name)
        return kept[:_MOST]

    def flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.strip().lower())
        if isinstance(value, bool):
            return value
        self._left_out(name)
        return False

    def confidence(self) -> float | None:
        """Return a confidence from 0 to 1, also from a percentage or a word."""
        value = self.given.get("confidence")
        if isinstance(value, str):
            value = _confidence_in(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100:
            return float(value) if value <= 1 else value / 100  # some models give percentages
        if "confidence" in self.given:
            self._left_out("confidence")
        return None

    def sources(self) -> tuple[Source, ...]:
        value = self.given.get("sources", [])
        several = cast("list[Json]", value) if isinstance(value, list) else [value]
        named = [_id_in(each) for each in several]
        if not all(named):
            self._left_out("sources")
        ids = dict.fromkeys(each for each in named if each)
        # A model does not name the owner of a source. The owners of given sources are known; all others belong to the
        # user.
        mine = {id: Source(owner_scope=self._user, source_id=id) for id in ids}
        return tuple(self._references.get(id, mine[id]) for id in list(ids)[:_MOST])

    def artifacts(self) -> tuple[Artifact, ...]:
        value = self.given.get("artifacts", [])
        several = cast("list[Json]", value) if isinstance(value, list) else [value]
        made: list[Artifact] = []
        for each in several[:_MOST]:
            try:
                made.append(msgspec.convert(each, Artifact))
            except msgspec.ValidationError:
                self._left_out("artifacts")
        return tuple(made)


def _confidence_in(text: str) -> float | None:
    """Return a confidence from `0.8`, `80 %` or `high`."""
    word = text.strip().upper()
    if word in Level.__members__:
        return share_of(Level(word))
    number = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", word)
    if number is None:
        return None
    return float(number[1]) / (100 if number[2] else 1)


def _id_in(value: Any) -> str:
    """Return the id of a source, in whatever form a model gives it; empty if it gives none."""
    if isinstance(value, dict):
        fields = cast("dict[str, Json]", value)
        value = next((fields[key] for key in ("source_id", "id", "url", "title", "name") if key in fields), "")
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(each for each in text if each.isprintable())[:_ID_LENGTH]


# A model announces a tool call in a sentence or two; a longer text is the answer.
PREAMBLE = 200
# A call begins within this many characters, including its opening mark.
_FIRST = PREAMBLE + 20

# The formats of Hermes and Qwen (which may omit the end), of Llama and of Mistral, and a Markdown fence with or without
# a language.
_TAGGED = re.compile(r"<(tool_call|function_call)>\s*(?P<call>[\[{].*?)(?:</\1>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=(?P<name>[\w.-]+)>\s*(?P<arguments>\{.*?)(?:</function>|\Z)", re.DOTALL)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(?P<call>[\[{].*)\Z", re.DOTALL)
_FENCED = re.compile(r"```[\w-]*\s*(?P<call>[\[{].*?)(?:```|\Z)", re.DOTALL)
_BARE = re.compile(r"(?:\A|\n)[ \t]*(?P<call>[\[{].*)\Z", re.DOTALL)
_OPENING = re.compile(r"(?:\A|\n)[ \t]*[\[{]|```|<(?:tool_call|function)|\[TOOL_CALLS\]")
# The beginning of any of them, for a text that is still arriving.
_BEGUN = re.compile(r"(?:`{1,3}|<[a-z_=]{0,20}|\[[A-Z_]{0,12})\Z")


class WrittenCall(NamedTuple):
    """One call: the tool, and its arguments."""

    name: str
    arguments: dict[str, Json]


def written_calls(text: str, names: Collection[str]) -> list[WrittenCall]:
    """Return the tool calls that make up a text, of tools in *names*; none if it is anything else."""
    text = text.strip()
    if _OPENING.search(text, 0, _FIRST) is None:
        return []
    for form in (_TAGGED, _FUNCTION, _LISTED, _FENCED, _BARE):
        matches = list(form.finditer(text))
        if matches and _is_whole(text, matches):
            calls = [each for match in matches for each in _calls_in(match)]
            known = [each for each in calls if each is not None and each.name in names]
            return known if len(known) == len(calls) else []
    return []


def may_be_call(text: str) -> bool:
    """Return whether an unfinished text may turn out to be a tool call."""
    return _OPENING.search(text.lstrip(), 0, _FIRST) is not None or _BEGUN.search(text) is not None


def _is_whole(text: str, matches: list[re.Match[str]]) -> bool:
    """Return whether a text consists only of tool calls, after at most a short sentence."""
    between = [text[one.end() : other.start()] for one, other in pairwise(matches)]
    after = text[matches[-1].end() :]
    return matches[0].start() <= PREAMBLE and not "".join((*between, after)).strip()


def _calls_in(match: re.Match[str]) -> Iterator[WrittenCall | None]:
    groups = match.groupdict()
    if "arguments" in groups:
        arguments = _object(groups["arguments"])
        yield WrittenCall(groups["name"], arguments) if isinstance(arguments, dict) else None
        return
    try:
        value = json.loads(groups["call"])
    except ValueError:
        yield None
        return
    for each in cast("list[Json]", value) if isinstance(value, list) else [value]:
        yield _call(each)


def _call(value: Json) -> WrittenCall | None:
    """Return a call in the format of OpenAI, Llama or the sub-agents document."""
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Json]", value)
    if isinstance(inner := fields.get("function"), dict):
        fields = cast("dict[str, Json]", inner)
    name = fields.get("name") or fields.get("tool") or fields.get("tool_name") or fields.get("function")
    arguments = next((fields[key] for key in ("arguments", "parameters", "args", "input") if key in fields), None)
    if isinstance(arguments, str):
        arguments = _object(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return WrittenCall(name, cast("dict[str, Json]", arguments))


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
