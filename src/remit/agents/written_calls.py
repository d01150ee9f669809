"""Finds tool calls that a model wrote as text, in the forms that small models use.

A text is a call only as a whole: a sentence may stand before it, and nothing after it. It is judged as any other call.
"""

import json
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, cast

from remit.protocol.envelope import Json

# A model that is about to use a tool says so in a sentence or two; what is longer is the answer.
PREAMBLE = 200
# So far into a text a call begins, its own opening included.
_FIRST = PREAMBLE + 20

# Hermes and Qwen, which may forget the end; Llama; Mistral; and a fence of Markdown, with or without a language.
_TAGGED = re.compile(r"<(tool_call|function_call)>\s*(?P<call>[\[{].*?)(?:</\1>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=(?P<name>[\w.-]+)>\s*(?P<arguments>\{.*?)(?:</function>|\Z)", re.DOTALL)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(?P<call>[\[{].*)\Z", re.DOTALL)
_FENCED = re.compile(r"```[\w-]*\s*(?P<call>[\[{].*?)(?:```|\Z)", re.DOTALL)
_BARE = re.compile(r"(?:\A|\n)[ \t]*(?P<call>[\[{].*)\Z", re.DOTALL)
_OPENING = re.compile(r"(?:\A|\n)[ \t]*[\[{]|```|<(?:tool_call|function)|\[TOOL_CALLS\]")
# The beginning of any of them, where a text is not there whole yet.
_BEGUN = re.compile(r"(?:`{1,3}|<[a-z_=]{0,20}|\[[A-Z_]{0,12})\Z")


class WrittenCall(NamedTuple):
    """One call: the tool, and its arguments."""

    name: str
    arguments: dict[str, Json]


def written_calls(text: str, names: Collection[str]) -> list[WrittenCall]:
    """Return the calls that a text is, of tools of these *names*; none if it is anything else."""
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
    """Say whether a text whose end is not there yet may turn out to be a call."""
    return _OPENING.search(text.lstrip(), 0, _FIRST) is not None or _BEGUN.search(text) is not None


def _is_whole(text: str, matches: list[re.Match[str]]) -> bool:
    """Say whether there is nothing else in a text than a short sentence before the calls."""
    between = [text[one.end() : other.start()] for one, other in pairwise(matches)]
    after = text[matches[-1].end() :]
    return matches[0].start() <= PREAMBLE and not "".join((*between, after)).strip()


def _calls_in(match: re.Match[str]) -> Iterator[WrittenCall | None]:
    found = match.groupdict()
    if "arguments" in found:
        arguments = _object(found["arguments"])
        yield WrittenCall(found["name"], arguments) if isinstance(arguments, dict) else None
        return
    try:
        value = json.loads(found["call"])
    except ValueError:
        yield None
        return
    for each in cast("list[Json]", value) if isinstance(value, list) else [value]:
        yield _call(each)


def _call(value: Json) -> WrittenCall | None:
    """Return a call as OpenAI, Llama or the document of the sub-agents writes it."""
    if not isinstance(value, dict):
        return None
    said = cast("dict[str, Json]", value)
    if isinstance(inner := said.get("function"), dict):
        said = cast("dict[str, Json]", inner)
    name = said.get("name") or said.get("tool") or said.get("tool_name") or said.get("function")
    arguments = next((said[key] for key in ("arguments", "parameters", "args", "input") if key in said), None)
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
