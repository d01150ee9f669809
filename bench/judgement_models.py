"""Scripted models for `judgement`: they know the labels, err as often as they are to, and answer over a socket."""

import hashlib
import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from judgement_sets import Call, LabelledTeam, lists, replies

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from openai_server import Answer, OpenAIServer, Request, say


class Script(NamedTuple):
    """How a model is wrong."""

    errs: float = 0
    """In which share of the texts it names another capability than the right one."""
    careless: bool = False
    """Whether it is sure of a capability where none is asked for."""


SCRIPTS = {
    "model that knows all": Script(),
    "model wrong in 10 %": Script(errs=0.1),
    "model wrong in 30 %": Script(errs=0.3),
    "careless model": Script(careless=True),
}
SURE, UNSURE = 0.95, 0.3
# In a request, the user's text stands behind this line, in numbered pieces.
_PIECES = "The text, by piece:"
_PIECE = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL)


class ScriptedModel:
    """Answers with the capabilities that a text is labelled with."""

    def __init__(self, team: LabelledTeam, script: Script) -> None:
        self._codes = list(team.capabilities)
        self._script = script
        self._labels: dict[str, list[Call]] = {text: [] for text in (*team.requests.vague, *team.requests.foreign)}
        self._vague = frozenset(map(_plain, team.requests.vague))
        self._labels |= {text: [Call(code)] for code, text in team.requests.clear}
        self._labels |= {text: [Call(code)] for code, each in team.capabilities.items() for text in each.examples}
        for compound in team.compounds():
            self._labels[compound.text] = [Call(code) for code in compound.order]
            self._labels |= {text: [Call(code)] if code else [] for code, text in compound.pieces}
        self._labels |= {text: [Call(code) for code in codes] for text, codes in lists(team)}
        self._corrections: set[str] = set()
        self._retractions: set[str] = set()
        for dialogue in team.dialogue:
            before = None
            for turn in dialogue.turns:
                calls = turn.calls()
                self._labels.setdefault(turn.says, calls)
                if before is not None and before.hold:
                    (self._corrections if calls else self._retractions).add(_plain(turn.says))
                before = turn
        forms = replies(team.language)
        self._agree = frozenset(map(_plain, forms.agree)) if forms else frozenset[str]()
        self._deny = frozenset(map(_plain, forms.deny)) if forms else frozenset[str]()
        self._labels = {_plain(text): calls for text, calls in self._labels.items()}

    def answer(self, request: Request) -> Answer:
        """Return the reply to a request, in the form that its schema asks for."""
        content = str(request.messages[-1]["content"])
        pieces = _PIECE.findall(content.rpartition(_PIECES)[2].lstrip("\n"))
        return say(json.dumps({"commands": [each for piece in pieces for each in self._commands(*piece)]}))

    def _calls(self, text: str) -> list[Call]:
        """Return what a text is labelled with, with the errors that this model makes."""
        calls = self._labels.get(text, [])
        if not calls and self._script.careless and text:
            return [Call(self._codes[int(_share(text) * len(self._codes))])]
        return [Call(self._named(text, each.code), each.values) for each in calls]

    def _commands(self, number: str, words: str) -> list[dict[str, Any]]:
        """Return the commands for one piece of a text."""
        quoted = words.strip()
        text = _plain(quoted)
        said = {"piece": int(number), "words": quoted}
        if text in self._agree or text in self._deny or text in self._retractions:
            return [{"command": "agree" if text in self._agree else "deny", **said}]
        if text.isdecimal():
            return [{"command": "choose", "option": int(text), **said}]
        if text not in self._labels:
            # A piece may be cut in another way than the labelled ones.
            within = max((each for each in self._labels if each in text), key=len, default="")
            around = min(
                (each for each in self._labels if text in each and len(text) > len(each) / 3), key=len, default=""
            )
            text = within or around or text
        calls = self._calls(text)
        if calls:
            command = "correct" if text in self._corrections else "start"
            return [
                {"command": command, "capability": each.code, "confidence": SURE, "values": each.values, **said}
                for each in calls
            ]
        if text in self._vague:
            first = int(_share(text) * len(self._codes))
            guesses = (self._codes[(first + step) % len(self._codes)] for step in range(3))
            return [{"command": "start", "capability": code, "confidence": UNSURE, **said} for code in guesses]
        return [{"command": "none", "confidence": SURE, **said}]

    def _named(self, text: str, code: str) -> str:
        if _share(text + code) >= self._script.errs:
            return code
        others = [each for each in self._codes if each != code]
        return others[int(_share(text) * len(others))]


def _plain(text: str) -> str:
    """Return a text without what may differ where it is quoted."""
    return " ".join(text.casefold().split()).strip(" .,;:!?¿¡-*")


def _share(text: str) -> float:
    """Return a number from 0 to 1 that is the same for a text in every run."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


@contextmanager
def scripted_model(team: LabelledTeam, script: Script) -> Generator[str]:
    """Serve a model that answers as its script says; yields its address."""
    with OpenAIServer(ScriptedModel(team, script).answer) as server:
        yield server.base_url
