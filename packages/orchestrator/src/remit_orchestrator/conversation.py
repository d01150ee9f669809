"""What an orchestrator remembers of a conversation: given values, what was done, answers, and the open question.

It is kept in the session's state: over restarts, redacted, for one user and one orchestrator.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from remit.policy.redaction import TOKEN
from remit.ports.brief import Brief
from remit.protocol.card import Capability, Schema
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Handoff, Json, Response
from remit.protocol.errors import Code, RemitError
from remit.runtime.schemas import misfits
from remit.words.components import cut, squeezed
from remit_orchestrator.decision_cache import folded
from remit_orchestrator.dialogue.phrases import Texts
from remit_orchestrator.dialogue.questions import as_before
from remit_orchestrator.text.field_values import find_values
from remit_orchestrator.text.fields import EarlierValues, GivenValue, earlier_values, given_values, newest
from remit_orchestrator.text.replies import inputs, wanted

# The key under which the open question is stored in a conversation.
_ASKED = "asked"
# The key for the run that took the reply.
_TAKEN = "heard"


async def keep_question(brief: Brief, pending: dict[str, Json]) -> None:
    """Store the question to the user; if two runs of a session ask at once, the later question is the open one."""
    while not await _changed(brief, {_ASKED: pending}):
        await brief.state()


async def take_question(brief: Brief) -> dict[str, Any] | None:
    """Return the open question, once: the next message in the session is taken as its reply."""

    async def take() -> Json:
        kept, run = await brief.state(), brief.request.run
        earlier, pending = kept.get(_TAKEN), kept.get(_ASKED)
        if earlier is not None and earlier["run"] == run:
            return earlier["question"]  # taken before a restart, which came before that was recorded
        taken = {_ASKED: None, _TAKEN: {"run": run, "question": pending}}
        # Only one of two simultaneous replies is used: the other would execute the same request twice.
        return pending if pending is None or await _changed(brief, taken) else None

    # After a restart, use the stored state: meanwhile this run may have asked another question.
    return cast("dict[str, Any] | None", await brief.once("asked", take))


async def _changed(brief: Brief, changes: dict[str, Json]) -> bool:
    """Store the question and the run that took the reply; False if another run of the session was faster."""
    try:
        await brief.update_state(**changes)
    except RemitError as error:
        if error.fault.code is not Code.STATE_CONFLICT:
            raise
        return False
    return True


def merged_input(before: Json, now: Json) -> Json:
    """Return the data of a request merged with the data of the reply to a question about it."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {**cast("dict[str, Json]", before), **cast("dict[str, Json]", now)}
    return cast("Json", before if now is None else now)


_KEPT = "memory"
# A person gives a dozen values in a long conversation; the oldest is the least likely to be meant again.
_MOST_GIVEN = 32
# What is handed over counts against what a callee may be shown (4,000 tokens): together some 1,000 tokens.
_MOST_DONE = 6
_LONGEST_OUTPUT = 700
_LONGEST_REQUEST = 160
# Answers to questions that may be asked again: a page each.
_MOST_ANSWERS = 4
_LONGEST_ANSWER = 6_000


class DoneWork(Struct, frozen=True, omit_defaults=True):
    """Something that was done in a conversation, for those who are asked next."""

    code: str
    agent: str
    request: str
    output: Json = None
    input: Json = None


class KnownAnswer(Struct, frozen=True):
    """An answer to a question that only read something; it holds until something is changed or decided."""

    key: str
    text: str
    at_ms: int
    confidence: float | None = None
    codes: tuple[str, ...] = ()
    request: str = ""
    given: Json = None


class Memory(Struct, frozen=True, omit_defaults=True):
    """What is remembered of one conversation."""

    given: tuple[GivenValue, ...] = ()
    done: tuple[DoneWork, ...] = ()
    answers: tuple[KnownAnswer, ...] = ()


class FieldSources(Struct, frozen=True):
    """The values for the fields of an input, by where they come from."""

    stated: dict[str, Json]
    """Found in the words of this request."""
    earlier: EarlierValues

    @property
    def certain(self) -> dict[str, Json]:
        return {**self.earlier.certain, **self.stated}


class Conversation:
    """The conversation of one run, as it was when the run began."""

    def __init__(self, memory: Memory, now_ms: int) -> None:
        self._memory = memory
        self._fresh = Memory()
        self.now_ms = now_ms
        self.anew = False
        """Whether the user wants a new look at what was answered before."""

    @property
    def today(self) -> date:
        """The day on which the user speaks, where the hub runs."""
        return datetime.fromtimestamp(self.now_ms / 1_000, UTC).astimezone().date()

    def sources(self, capability: Capability, text: str, given: Json) -> FieldSources:
        """Return the values that stand in a text, or were given before, for the fields of a capability."""
        schema = capability.input_schema or {}
        properties = cast("Mapping[str, Schema]", schema.get("properties") or {})
        here = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
        required = frozenset(cast("Sequence[str]", schema.get("required", ())))
        wanted = {name: each for name, each in properties.items() if name not in here}
        found_values = find_values(text, wanted, required, fits, self.today) if wanted else {}
        stated: dict[str, Json] = {name: each.value for name, each in found_values.items()}
        left = {name: each for name, each in wanted.items() if name in required and name not in stated}
        changes = not capability.read_only
        known = (*self._memory.given, *self._fresh.given)
        earlier = earlier_values(known, capability.code, left, text, fits, changes=changes) if left else _NOTHING
        return FieldSources(stated, earlier)

    def corrected(self, capability: Capability, text: str, given: Json) -> dict[str, Json] | None:
        """Return the input of a capability with the values that a text changes; None if it gives none."""
        edits = self.sources(capability, text, None).stated
        before = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
        return {**before, **edits} if edits and any(before.get(name) != each for name, each in edits.items()) else None

    def learn_given(self, capability: Capability, values: Json) -> None:
        """Remember the values that the user gave for a capability."""
        if isinstance(values, dict):
            named = cast("dict[str, Json]", values)
            self._learn(given=given_values(capability.code, capability.input_schema or {}, named))

    def handoff(self) -> Handoff:
        """Return what was done before in this conversation, for those who are asked now."""
        done = self._memory.done
        return Handoff(
            prior_agents=tuple(dict.fromkeys(each.agent for each in done)),
            prior_outputs={each.code: each.output for each in done},
        )

    def learn_done(
        self, codes: Mapping[str, str], text: str, responses: Mapping[str, Response], inputs: Mapping[str, Json]
    ) -> None:
        """Remember the results of the steps, each under the code of its capability; also a part that was finished."""
        request = cut(squeezed(text), _LONGEST_REQUEST)
        done = [
            DoneWork(codes[step], response.target, request, _shortened(response.result), _repeatable(inputs.get(step)))
            for step, response in responses.items()
            if step in codes and (response.ok or response.result is not None)
        ]
        self._learn(done=done)

    def answered(self, key: str, within_ms: int) -> KnownAnswer | None:
        """Return the answer to the same question, if it was given within that time."""
        known = [each for each in self._memory.answers if each.key == key]
        return known[-1] if known and 0 <= self.now_ms - known[-1].at_ms < within_ms else None

    @property
    def done(self) -> tuple[DoneWork, ...]:
        """What was done in the conversation, the newest at the end."""
        return self._memory.done

    def last_answer(self) -> KnownAnswer | None:
        """Return the last answer that only read something, however old."""
        return self._memory.answers[-1] if self._memory.answers else None

    def learn_answer(self, answer: KnownAnswer) -> None:
        """Remember the answer to a question that only read something, unless it is long."""
        if len(answer.text) + len(answer.request) + len(encode(answer.given)) <= _LONGEST_ANSWER:
            self._learn(answers=[answer])

    def _learn(self, **fresh: Sequence[Any]) -> None:
        self._fresh = _added(self._fresh, Memory(**{name: tuple(each) for name, each in fresh.items()}))

    async def keep(self, brief: Brief, *, changed: bool = False) -> None:
        """Store what was learned; *changed*: answers from before may be out of date, so they are forgotten."""
        fresh, self._fresh = self._fresh, Memory()
        if fresh == Memory() and not (changed and self._memory.answers):
            return
        while True:
            kept = _parse_memory((await brief.state()).get(_KEPT))
            kept = msgspec.structs.replace(kept, answers=()) if changed else kept
            try:
                await brief.update_state(**{_KEPT: msgspec.to_builtins(_added(kept, fresh))})
            except RemitError as error:
                if error.fault.code is Code.STATE_CONFLICT:
                    continue  # another run of the session was faster: both are remembered
                raise
            return


class FilledInputs(Struct, frozen=True):
    """The inputs of several capabilities: what is known for each, and what is missing."""

    inputs: tuple[Json, ...]
    missing: dict[str, Schema]
    offered: dict[str, Json]
    """Values from before for missing fields, to be asked about."""
    stated: Json
    """What came with the request, and what stands in it."""
    earlier: dict[str, Json]
    """Values from before that were used."""

    @classmethod
    def of(cls, talk: Conversation, capabilities: Sequence[Capability], text: str, given: Json) -> "FilledInputs":
        made: list[Json] = []
        missing: dict[str, Schema] = {}
        offered: dict[str, Json] = {}
        earlier: dict[str, Json] = {}
        stated: dict[str, Json] = {}
        for capability in capabilities:
            sources = talk.sources(capability, text, given)
            values, lacking = inputs(capability.input_schema, text, given, sources.certain)
            made.append(values)
            missing |= wanted(capability.input_schema, lacking)
            offered |= {name: each for name, each in sources.earlier.offered.items() if name in lacking}
            earlier |= sources.earlier.certain
            stated |= sources.stated
        known = cast("Json", {**stated, **given} if isinstance(given, dict) else stated or given)
        if missing and not isinstance(known, dict):
            known = {}
        return cls(tuple(made), missing, offered, known, earlier)

    def lead(self, texts: Texts) -> str:
        """Return the sentence that says which values were taken from before, and a space; empty without any."""
        sentence = as_before(self.earlier, texts)
        return f"{sentence} " if sentence else ""


class RecalledConversations:
    """The conversations of the runs in progress, each read once."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._open: dict[str, Conversation] = {}

    async def of(self, brief: Brief) -> Conversation:
        """Return the conversation of a brief; after a restart, as it was before."""
        path = brief.request.path
        if (known := self._open.get(path)) is None:

            async def recall() -> Json:
                return {"now_ms": self._wall_ms(), _KEPT: (await brief.state()).get(_KEPT)}

            kept = cast("dict[str, Any]", await brief.once("conversation", recall))
            known = self._open[path] = Conversation(_parse_memory(kept[_KEPT]), kept["now_ms"])
        return known

    def close(self, brief: Brief) -> None:
        """Forget the conversation of a run that has ended."""
        self._open.pop(brief.request.path, None)


def question_key(codes: Sequence[str], text: str, inputs: Sequence[Json], notes: Sequence[str]) -> str:
    """Return the key of a question: the same words with the same input, while the same was decided and demanded."""
    digest = hashlib.blake2b(
        encode((sorted(codes), folded(text).rstrip(" ?!."), list(inputs), list(notes))), digest_size=16
    ).hexdigest()
    # As short words: in one piece it would be taken for a secret, and redacted.
    letters = digest.translate(_LETTERS)
    return " ".join(letters[place : place + 4] for place in range(0, len(letters), 4))


_LETTERS = str.maketrans("0123456789", "ghijklmnop")


_NOTHING = EarlierValues({}, {})


def _parse_memory(kept: Json) -> Memory:
    return msgspec.convert(kept, Memory) if kept else Memory()


def _added(memory: Memory, fresh: Memory) -> Memory:
    done = {each.code: each for each in memory.done}
    for each in fresh.done:
        done.pop(each.code, None)
        done[each.code] = each
    answers = {each.key: each for each in memory.answers if each.key not in {new.key for new in fresh.answers}}
    answers |= {each.key: each for each in fresh.answers}
    return Memory(
        given=newest((*memory.given, *fresh.given), _MOST_GIVEN),
        done=tuple(done.values())[-_MOST_DONE:],
        answers=tuple(answers.values())[-_MOST_ANSWERS:],
    )


def _repeatable(values: Json) -> Json:
    """Return an input as it is remembered; a long one is not repeated from memory."""
    return values if len(encode(values)) <= _LONGEST_OUTPUT else None


def _shortened(result: Json) -> Json:
    """Return a result as it is handed on: whole if it is short, else the beginning of its text."""
    if result is None or len(encode(result)) <= _LONGEST_OUTPUT:
        return result
    return cut(squeezed(text_of(result)), _LONGEST_OUTPUT)


def fits(schema: Schema, value: Json) -> bool:
    """Return whether a value fits a schema; values behind redaction tokens are checked by the hub when sending."""
    try:
        return TOKEN.search(text_of(value)) is not None or not misfits(schema, value)
    except ValueError:  # it refers to another part of the schema: then the hub checks it, too
        return True


def only_text(capability: Capability, words: str, before: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return an input with other words for its only text, if it has just one field."""
    properties = cast("Mapping[str, Schema]", (capability.input_schema or {}).get("properties") or {})
    if len(properties) != 1:
        return None
    [(name, schema)] = properties.items()
    if schema.get("type") != "string" or name not in before or not fits(schema, words):
        return None
    return {name: words.strip(" ?.!")}
