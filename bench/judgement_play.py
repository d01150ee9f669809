"""Plays labelled texts with a hub: its agents keep a ledger, and a person answers what the orchestrator asks.

What was executed is read from the ledger; of what an answer says about itself only the decision, the options that it
shows and the parts that it names are used, and by the person, as a person reads them.
"""

import re
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct, field

from judgement_sets import Call, LabelledTeam, content_words, replies
from remit import Answer, Brief, Hub, Response
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json
from remit_models.model import ModelAgent
from remit_orchestrator import add_orchestrator
from remit_orchestrator.adding import ReaderName
from remit_testing.memory import MemoryStore

Decision = Literal["did", "said_back", "offered", "asked", "greeted", "noted", "cannot"]
_YES_OR_NO = re.compile("yes or no|ja oder nein")
# So many replies to one request; nobody answers more.
PATIENCE = 8


class Executed(NamedTuple):
    """A line of the ledger: a capability with what its agent was given."""

    code: str
    input: Json
    objective: str

    def fits(self, call: Call) -> bool:
        """Say whether this is the call that was wanted, with the values that count."""
        given = cast("dict[str, Json]", self.input) if isinstance(self.input, dict) else {}  # pyright: ignore[reportUnknownMemberType]
        return self.code == call.code and all(_same(given.get(name), value) for name, value in call.values.items())


def _same(given: object, wanted: str | int) -> bool:
    if isinstance(wanted, int):
        return str(given) == str(wanted)
    return isinstance(given, str) and wanted.casefold() in given.casefold()


class Shown(Struct):
    """What a person sees of an answer."""

    text: str
    decision: Decision
    options: list[str]
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    executed: list[Executed] = field(default_factory=list[Executed])
    """What the ledger has since the person's words."""

    @property
    def asks(self) -> bool:
        return self.decision in {"said_back", "offered", "asked"}

    def codes(self) -> list[str]:
        return [each.code for each in self.executed]


class Conversation:
    """One session with an orchestrator."""

    def __init__(self, played: "PlayedTeam", session: str) -> None:
        self._played = played
        self._session = session

    async def say(self, text: str) -> Shown:
        before = len(self._played.ledger)
        response = await self._played.hub.ask("orchestrator", text, user="anna", session=self._session)
        return self._played.shown(response, self._played.ledger[before:])


class PlayedTeam:
    """A labelled team in an open hub, whose agents only write down what they are asked to do."""

    def __init__(self, team: LabelledTeam, hub: Hub) -> None:
        self.team = team
        self.hub = hub
        self.ledger: list[Executed] = []
        self._sessions = 0

    def conversation(self) -> Conversation:
        """Return a new conversation."""
        self._sessions += 1
        return Conversation(self, f"conversation-{self._sessions}")

    async def work(self, brief: Brief) -> Answer:
        code = brief.capability or ""
        self.ledger.append(Executed(code, brief.request.input, brief.objective))
        return Answer(f"{self.team.capabilities[code].description}: done.", confidence=0.9)

    def shown(self, response: Response, executed: list[Executed]) -> Shown:
        text = text_of(response.result) if response.fault is None else response.fault.message
        known = response.metadata
        return Shown(
            text=text,
            decision=known["decision"],
            options=known.get("options", []),
            parts=known.get("parts", []),
            executed=executed,
        )

    def changes(self, executed: Sequence[Executed]) -> list[str]:
        """Return the capabilities among these that change something."""
        return [each.code for each in executed if not self.team.capabilities[each.code].read_only]


@asynccontextmanager
async def open_team(team: LabelledTeam, reader: ReaderName, model: str | None = None) -> AsyncGenerator[PlayedTeam]:
    """Open a hub with a labelled team; *model* is the address of one for the reader `model`."""
    # In a file, a conversation would go on with that of the team before, which has the same name.
    hub = Hub(store=MemoryStore())
    played = PlayedTeam(team, hub)
    hub.add("desk", played.work, capabilities=[each.declared(code) for code, each in team.capabilities.items()])
    agent = None if model is None else ModelAgent("scripted", base_url=model, api_key="none")
    # There are no phrases in Spanish: its users read the English ones.
    add_orchestrator(hub, reader=reader, model=agent, language=team.language if replies(team.language) else "en")
    async with hub:
        yield played


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Outcome(Struct):
    """What came of a request once the person has answered all questions about it."""

    seen: list[Shown]
    executed: list[Executed]
    questions: int
    """How often it was asked which capability is meant, or whether it is; fields do not count."""

    @property
    def first(self) -> Shown:
        return self.seen[0]

    def codes(self) -> list[str]:
        return [each.code for each in self.executed]

    def shows(self, words: Collection[str]) -> bool:
        """Say whether the person reads at least half of these words."""
        read = content_words("\n".join(each.text for each in self.seen))
        return len(read.intersection(words)) * 2 >= len(words)


class TruthfulPerson:
    """Somebody who wants certain calls, answers every question by that, and agrees to nothing else."""

    def __init__(self, team: LabelledTeam, wanted: Sequence[Call], unless: Sequence[str] = ()) -> None:
        """*unless* are capabilities that stand under a condition, which is not fulfilled."""
        self._team = team
        self._wanted = list(wanted)
        self._unless = unless
        forms = replies(team.language)
        # Without phrases in their language people answer with numbers.
        self._yes = forms.agree[0] if forms else "1"
        self._none = forms.none if forms else "{none}"
        self._no = forms.deny[0] if forms else "{none}"

    async def ask(self, conversation: Conversation, text: str) -> Outcome:
        """Say a text, and answer what is asked until nothing is."""
        return await self.go_on(conversation, await conversation.say(text))

    async def go_on(self, conversation: Conversation, first: Shown) -> Outcome:
        """Answer what is asked after an answer until nothing is."""
        seen, executed, questions = [first], [*first.executed], 0
        while seen[-1].asks and len(seen) <= PATIENCE:
            questions += seen[-1].decision != "asked"
            seen.append(await conversation.say(self.reply(seen[-1], executed)))
            executed += seen[-1].executed
        return Outcome(seen, executed, questions)

    def reply(self, shown: Shown, executed: Sequence[Executed] = ()) -> str:
        """Return what this person says to a question."""
        done = [each.code for each in executed]
        open_codes = [each.code for each in self._wanted if each.code not in done]
        if shown.decision == "asked":
            held = [each["capability"] for each in shown.parts if each["outcome"] == "asked"]
            if held and _YES_OR_NO.search(shown.text):
                return self._yes if set(held) <= set(open_codes) else self._no.format(none=len(shown.options) + 1)
            return self._values(shown, open_codes)
        named = [each["capability"] for each in shown.parts if each["capability"] is not None]
        if shown.decision == "said_back" and named:
            right = [at for at, code in enumerate(named, 1) if code in {*self._unless, *open_codes}]
            if len(right) == len(named) and self._yes != "1":
                return self._yes
            # A plan is a numbered list: of it only what is wanted.
            return ", ".join(map(str, right)) if right else self._no.format(none=len(named) + 1)
        if shown.decision == "said_back" and shown.options[:1] == open_codes[:1] != []:
            return self._yes
        # Of a plan, what is already in it is not meant by the part that is asked about.
        for code in open_codes:
            if code in shown.options and code not in named:
                return str(shown.options.index(code) + 1)
        return self._none.format(none=len(shown.options) + 1)

    def _values(self, shown: Shown, codes: Sequence[str]) -> str:
        """Return the values that are asked for; all, if it cannot be told which are."""
        known = {
            (call.code, name): value
            for call in self._wanted
            for name, value in call.values.items()
            if call.code in codes
        }
        fields = {
            (code, name): known.get((code, name), self._team.values[name])
            for code in codes
            for name in self._team.capabilities[code].fields
        }
        asked = {
            (code, name): value
            for (code, name), value in fields.items()
            if _mentions(shown.text, name, self._team.capabilities[code].fields[name])
        }
        if self._unless and not asked:
            return self._no.format(none=len(shown.options) + 1)
        those = asked or fields
        if not those:
            return self._yes
        if len(those) == 1:
            return str(*those.values())
        return ", ".join({f"{name}: {value}": None for (_, name), value in those.items()})


def _mentions(text: str, name: str, described: str) -> bool:
    description = described.partition(": ")[2]
    return description.casefold() in text.casefold() or re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


async def agree_to_all(conversation: Conversation, text: str, yes: str) -> Outcome:
    """Say a text, and yes to whatever is asked."""
    seen = [await conversation.say(text)]
    executed = [*seen[0].executed]
    while seen[-1].asks and len(seen) <= PATIENCE // 2:
        seen.append(await conversation.say(yes))
        executed += seen[-1].executed
    return Outcome(seen, executed, len(seen) - 1)
