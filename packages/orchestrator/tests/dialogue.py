"""Plays scripted dialogues of `judgement/dialogues/` with a real hub, and says where a turn is not as it should be.

A file has a team, whose agents answer as declared, and dialogues. Each dialogue is one session on one SQLite file. At a
turn with `restart` the hub is closed and a new one opened; at a turn with `kill` the hub is a process of its own (this
file, run as a program) that is killed while the named capability is at work.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, convert, to_builtins

from commands import popen
from labelled_dialogues import ClassifierName, Dialogue, DialogueCapability, Domain, ExpectedCall, Turn, domain_named
from programs import with_tests_on_path
from remit import Answer, Brief, Capability, Hub, Response, Workflow
from remit.protocol.codec import text_of
from remit.protocol.errors import Code
from remit.protocol.records import Progress
from remit.runtime import root_runs
from remit.words.failures import reason
from remit_orchestrator import add_orchestrator, add_workflow
from remit_orchestrator.classifiers.embeddings import Embeddings
from remit_orchestrator.classifiers.words import WordClassifier
from waiting import eventually, no_longer, wait_until

# ── the hub ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CALLS = "calls.jsonl"
HANGS = "hangs.txt"
LEASE_MS = 200


class Called(Struct):
    """A call of an agent, as it was written down when it began."""

    code: str
    objective: str
    input: Any
    brief: str
    history: str


def make_hub(domain: Domain, folder: Path, classifier: ClassifierName) -> Hub:
    """A hub with the team of a domain; each agent writes down what it was asked before it does anything."""
    hub = Hub(store=folder / "hub.db", durability="process", approver="inbox")
    by_agent: dict[str, list[Capability]] = {}
    for code, each in domain.capabilities.items():
        by_agent.setdefault(each.agent, []).append(each.declared(code))

    async def work(brief: Brief) -> Answer:
        code = brief.capability or ""
        called = await _called(brief)
        # One write, so that a kill leaves whole lines.
        with (folder / CALLS).open("ab", buffering=0) as lines:
            lines.write(json.dumps(to_builtins(called)).encode() + b"\n")
        hangs = folder / HANGS
        await no_longer(lambda: hangs.exists() and hangs.read_text() == code)
        return await _react(domain.capabilities[code], called, brief)

    for name, capabilities in by_agent.items():
        # So little that a call whose outcome is unknown, which keeps its grant, can be paid for again.
        hub.add(name, work, capabilities=capabilities, tokens=1_000)
    for name, each in domain.workflows.items():
        add_workflow(
            hub,
            Workflow(
                name=name,
                description=each.description,
                examples=tuple(each.examples),
                steps=tuple(each.steps),
                compare=tuple(each.compare),
            ),
        )
    add_orchestrator(hub, classifier=_trained(domain, classifier))
    return hub


_CLASSIFIERS: dict[tuple[str, ClassifierName], WordClassifier | Embeddings] = {}


def _trained(
    domain: Domain, classifier: ClassifierName
) -> Callable[[Sequence[Capability]], WordClassifier | Embeddings]:
    """Return what trains a classifier; the same team gives the same one, and learning it takes long."""

    def train(capabilities: Sequence[Capability]) -> WordClassifier | Embeddings:
        key = domain.name, classifier
        if key not in _CLASSIFIERS:
            make = WordClassifier if classifier == "words" else Embeddings
            _CLASSIFIERS[key] = make(capabilities)
        return _CLASSIFIERS[key]

    return train


async def _called(brief: Brief) -> Called:
    known = {
        "objective": brief.objective,
        "input": brief.request.input,
        "handoff": to_builtins(brief.handoff),
        "view": to_builtins(brief.view),
        "facts": await brief.facts(),
    }
    earlier = brief.handoff.history
    earlier_texts = [] if earlier is None else [each.text for each in await brief.history(earlier)]
    return Called(
        brief.capability or "",
        brief.objective,
        brief.request.input,
        json.dumps(known, ensure_ascii=False),
        "\n".join(earlier_texts),
    )


async def _react(capability: DialogueCapability, called: Called, brief: Brief) -> Answer:
    given = _as_dict(called.input)
    texts = {**given, "text": f"{called.objective}\n{text_of(called.input)}", "knows": called.brief}
    reaction = next(
        each
        for each in capability.answers
        if all(_matches(pattern, text_of(texts.get(name, ""))) for name, pattern in each.when.items())
    )
    if reaction.raises:
        raise ValueError(reaction.raises)
    result = _filled(reaction.result, given)
    if reaction.hangs:
        if result is not None:
            brief.progress("halfway", partial=Answer(result))
        await asyncio.Event().wait()
    return Answer(result, confidence=reaction.confidence, new_facts=tuple(reaction.facts))


def _as_dict(values: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", values) if isinstance(values, dict) else {}


def _filled(result: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(result, str):
        return re.sub(r"\{(\w+)\}", lambda match: text_of(given.get(match[1], "")), result)
    return {name: _filled(each, given) for name, each in _as_dict(result).items()} or result


# ── playing ───────────────────────────────────────────────────────────────────────────────────────────────────────────

USER, SESSION = "anna", "conversation"


class TurnReport(Struct):
    """A turn with the user's words, the answer, the calls, and what is wrong."""

    number: int
    turn: Turn
    answer: str
    calls: list[Called]
    wrong: list[str]
    detour: str = ""
    """The question that was answered with a yes in between."""

    def __str__(self) -> str:
        called = "".join(f"\n   -> {each.code} {each.input!r} «{each.objective}»" for each in self.calls)
        wrong = "".join(f"\n   ! {each}" for each in self.wrong)
        between = f"\n   (asked: {self.detour})" if self.detour else ""
        return f"{self.number}. {self.turn.user}{between}{called}\n   < {self.answer}{wrong}"


async def play(domain: Domain, dialogue: Dialogue, folder: Path, classifier: ClassifierName) -> list[TurnReport]:
    """Play a dialogue to its end, whatever goes wrong on the way, and return what came of each turn."""
    reports: list[TurnReport] = []
    done: Counter[str] = Counter()
    turns = list(enumerate(dialogue.turns(classifier), start=1))
    while turns:
        if turns[0][1].kill:
            await asyncio.to_thread(_kill, domain, dialogue, folder, classifier, turns[0][0])
        async with make_hub(domain, folder, classifier) as hub:
            first = True
            while turns and (first or not (turns[0][1].restart or turns[0][1].kill)):
                number, turn = turns.pop(0)
                reports.append(await _play_turn(hub, domain, folder, number, turn, done))
                first = False
    return reports


async def _play_turn(hub: Hub, domain: Domain, folder: Path, number: int, turn: Turn, done: Counter[str]) -> TurnReport:
    before = 0 if turn.kill else len(calls(folder))
    if turn.kill:
        before = int((folder / "before.txt").read_text())
    seen = _Seen()
    response = await _ask(hub, turn.user, f"turn-{number}", turn.repeat, seen)
    detour = ""
    changed = [each for each in calls(folder)[before:] if not domain.capabilities[each.code].read_only]
    reply = "" if changed else _agreement(turn, response)
    if reply:
        detour = answer_text(response)
        response = await _ask(hub, reply, f"turn-{number}-agreed", turn.repeat, seen)
    made = calls(folder)[before:]
    report = TurnReport(number, turn, answer_text(response), made, [], detour)
    report.wrong = [
        *_wrong_answer(turn, response),
        *_wrong_calls(turn, domain, made, done),
        *_wrong_knowledge(turn, made),
        *_leaks(domain, [detour, *_user_texts(response), *seen.texts]),
    ]
    return report


class _Seen(Struct):
    """What the user reads besides answers: progress, and questions to a person."""

    texts: list[str] = []


async def _ask(hub: Hub, text: str, request_id: str, repeat: bool | None, seen: _Seen) -> Response:
    asking = asyncio.create_task(hub.ask("orchestrator", text, user=USER, session=SESSION, request_id=request_id))
    if repeat is not None:
        pending = await eventually(lambda: _pending_or_end(hub, asking))
        if pending is not True:
            seen.texts += [each.text for each in pending]
            await hub.decide(pending[0].id, agreed=repeat, by="anna")
    response = await asking
    records = await hub.store.records(run=response.run)
    seen.texts += [
        each.body.text for each in records if isinstance(each.body, Progress) and each.body.text != "halfway"
    ]
    return response


async def _pending_or_end(hub: Hub, asking: "asyncio.Task[Response]") -> Any:
    return True if asking.done() else await hub.pending()


# How a question for missing fields begins; a yes is no answer to it.
_ASKS_FOR_FIELDS = "`name: value`|could you tell me"


def _agreement(turn: Turn, response: Response) -> str:
    """Return how the user agrees to what is offered; empty if it is not what they asked for."""
    text = answer_text(response)
    if not (turn.confirms and response.requires_followup):
        return ""
    if _matches(_ASKS_FOR_FIELDS, text):
        # What was given before may be offered for a field, and a yes takes it.
        return turn.agrees if turn.confirms.endswith("as before") and _matches(turn.confirms, text) else ""
    options = [line for line in text.splitlines() if re.match(r"\d\. ", line)]
    if options:
        return "1" if _matches(turn.confirms, options[0]) else ""
    return turn.agrees if _matches(turn.confirms, text) else ""


def calls(folder: Path) -> list[Called]:
    """Return all calls of agents so far."""
    path = folder / CALLS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [convert(json.loads(line), Called) for line in lines]


def answer_text(response: Response) -> str:
    """Return what the user reads as the answer."""
    failed = "" if response.ok or response.fault is None else response.summary or reason(response.fault)
    return "\n".join(filter(None, (failed, text_of(response.result))))


def _user_texts(response: Response) -> Iterator[str]:
    yield answer_text(response)
    yield response.summary
    yield from (*response.warnings, *response.finished, *response.unfinished)


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _wrong_answer(turn: Turn, response: Response) -> Iterator[str]:
    answer = answer_text(response)
    if response.status is not turn.status:
        yield f"ended as {response.status}, not {turn.status}"
    if turn.asks != "may" and response.requires_followup is not bool(turn.asks):
        yield "asks nothing" if turn.asks else "asks something"
    wanted = turn.says + (turn.asks if isinstance(turn.asks, list) else [])
    yield from (f"does not say /{each}/" for each in wanted if not _matches(each, answer))
    yield from (f"says /{each}/" for each in turn.never_says if _matches(each, answer))


def _wrong_calls(turn: Turn, domain: Domain, made: Sequence[Called], done: Counter[str]) -> Iterator[str]:
    left = list(made)
    for each in turn.does:
        expected = ExpectedCall(each) if isinstance(each, str) else each
        call_made = next((call for call in left if call.code == expected.code), None)
        if call_made is None:
            yield f"{expected.code} was not called"
            continue
        left.remove(call_made)
        if expected.input is not None and not _fits(expected.input, call_made.input):
            yield f"{expected.code} got {call_made.input!r}, not {expected.input!r}"
        if not _matches(expected.said, call_made.objective):
            yield f"{expected.code} was told «{call_made.objective}», which lacks /{expected.said}/"
    for call in left:
        # What only reads may be asked again after a kill.
        if call.code in turn.may_do or (call.code == turn.kill and domain.capabilities[call.code].read_only):
            continue
        yield f"{call.code} was called, though nobody asked for it"
    for call in made:
        if domain.capabilities[call.code].read_only:
            continue
        key = f"{call.code} {json.dumps(call.input, sort_keys=True)} {call.objective if call.input is None else ''}"
        done[key] += 1
        if done[key] > (2 if call.code == turn.kill and turn.repeat else 1):
            yield f"{call.code} was done twice with {call.input!r}"
    yield from (f"{each} was called" for each in turn.never_does if each in [call.code for call in made])


def _fits(expected: Mapping[str, Any], given: Any) -> bool:
    named = _as_dict(given)
    return named.keys() == expected.keys() and all(_same(each, named[name]) for name, each in expected.items())


def _same(expected: Any, given: Any) -> bool:
    if isinstance(expected, str) and expected.startswith("~"):
        return re.search(expected[1:], text_of(given), re.IGNORECASE) is not None
    return expected == given


def _wrong_knowledge(turn: Turn, made: Sequence[Called]) -> Iterator[str]:
    for code, patterns in turn.knows.items():
        briefs = [call.brief for call in made if call.code == code]
        yield from (f"{code} does not know /{each}/" for each in patterns if not any(_matches(each, b) for b in briefs))
    for call in made:
        everything = f"{call.brief}\n{call.history}"
        yield from (f"{call.code} knows /{each}/" for each in turn.never_knows if _matches(each, everything))


# Words of programs that no user should read.
_PROGRAM_TEXT = re.compile(r"Traceback|\b\w+(?:Error|Exception)\b|\b[A-Z]{2,}_[A-Z_]+\b|<\w+ object at")
_ERROR_CODES = re.compile(rf"\b(?:{'|'.join(each for each in Code if '_' in each)})\b")


def _leaks(domain: Domain, texts: Sequence[str]) -> Iterator[str]:
    raised = [each.raises for one in domain.capabilities.values() for each in one.answers if each.raises]
    for text in texts:
        for hidden in (*domain.hidden(), *raised):
            if re.search(rf"(?<![\w-]){re.escape(hidden)}(?![\w-])", text, re.IGNORECASE):
                yield f"the user reads «{hidden}» in «{text[:80]}»"
        for pattern in (_PROGRAM_TEXT, _ERROR_CODES):
            if (match := pattern.search(text)) is not None:
                yield f"the user reads «{match[0]}» in «{text[:80]}»"


# ── killing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _kill(domain: Domain, dialogue: Dialogue, folder: Path, classifier: ClassifierName, number: int) -> None:
    """Play one turn in a process of its own, and kill it with -9 while the named capability is at work."""
    turn = dialogue.turns(classifier)[number - 1]
    before = len(calls(folder))
    (folder / "before.txt").write_text(str(before))
    (folder / HANGS).write_text(turn.kill)
    command = [sys.executable, __file__, domain.name, str(folder), classifier, str(number), turn.user]
    process = popen(command, env=with_tests_on_path())
    try:
        wait_until(
            lambda: turn.kill in [each.code for each in calls(folder)[before:]],
            f"the call of {turn.kill}",
            alive=lambda: process.poll() is None,
        )
    except AssertionError:
        pass  # it was not called, which the checks of the turn find as well
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        (folder / HANGS).unlink()


async def _live(domain: str, folder: Path, classifier: ClassifierName, number: str, text: str) -> None:
    root_runs.LEASE_MS = LEASE_MS
    async with make_hub(domain_named(domain), folder, classifier) as hub:
        await hub.ask("orchestrator", text, user=USER, session=SESSION, request_id=f"turn-{number}")


if __name__ == "__main__":
    _, _domain, _folder, _classifier, _number, _text = sys.argv
    asyncio.run(_live(_domain, Path(_folder), "words" if _classifier == "words" else "embeddings", _number, _text))
