"""Reads the scripted dialogues of `judgement/dialogues/`: teams whose agents answer as declared, and turns."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, convert, field

from checkout import ROOT
from remit import Capability, Status, Step
from remit.protocol.card import Confirmation

DATA = ROOT / "packages/orchestrator/tests/judgement" / "dialogues"

ClassifierName = Literal["words", "embeddings"]
Texts = list[str]


def _texts() -> Texts:
    return []


class Reaction(Struct, forbid_unknown_fields=True):
    """What an agent does if its input fits: the first reaction that fits counts.

    `{name}` in a result stands for a field of the input.
    """

    when: dict[str, str] = field(default_factory=dict[str, str])
    """Patterns by field of the input; `text` is everything that was said to the agent, `knows` its whole brief."""
    result: Any = None
    confidence: float = 0.9
    facts: Texts = field(default_factory=_texts)
    raises: str = ""
    """The text of the exception with which it fails."""
    hangs: bool = False
    """It never answers; the result, if there is one, is the part that is finished."""


class DialogueCapability(Struct, forbid_unknown_fields=True):
    """A capability of the team, with the agent that has it."""

    agent: str
    description: str
    examples: list[str]
    answers: list[Reaction]
    read_only: bool = False
    confirm: Confirmation | None = None
    cache_ms: int | None = None
    time_ms: int | None = None
    input: dict[str, Any] | None = None
    """The properties of its input; all are required, unless `optional` names them."""
    optional: Texts = field(default_factory=_texts)
    result: dict[str, Any] | None = None
    """The properties of its result."""

    def declared(self, code: str) -> Capability:
        return Capability(
            code=code,
            description=self.description,
            examples=tuple(self.examples),
            read_only=self.read_only,
            confirm=self.confirm,
            cache_ms=self.cache_ms,
            time_ms=self.time_ms,
            input_schema=None if self.input is None else _schema(self.input, self.optional),
            result_schema=None if self.result is None else _schema(self.result, ()),
        )


def _schema(properties: Mapping[str, Any], optional: Sequence[str]) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


class DeclaredWorkflow(Struct, forbid_unknown_fields=True):
    """A workflow of the team."""

    description: str
    examples: list[str]
    steps: list[Step]
    compare: Texts = field(default_factory=_texts)


class ExpectedCall(Struct, forbid_unknown_fields=True):
    """A capability that has to be called once: with exactly this input, if one is named.

    A text in the input that begins with `~` is a pattern. `said` is a pattern of the objective.
    """

    code: str
    input: dict[str, Any] | None = None
    said: str = ""


class Turn(Struct, forbid_unknown_fields=True):
    """What the user says, and what must and must not come of it. All texts are patterns, whatever the case."""

    user: str
    restart: bool = False
    """A new hub is opened before this turn."""
    kill: str = ""
    """The capability at whose work the process is killed; then a new hub is opened and the request sent again."""
    repeat: bool | None = None
    """What a person answers who is asked whether to repeat what may have been done before the kill."""
    says: Texts = field(default_factory=_texts)
    never_says: Texts = field(default_factory=_texts)
    asks: bool | list[str] | Literal["may"] = False
    """Whether the user is asked something, or the texts that the question has."""
    does: list[str | ExpectedCall] = field(default_factory=list["str | ExpectedCall"])
    """What is called, and nothing else is."""
    never_does: Texts = field(default_factory=_texts)
    """What must not be called; everything that `does` does not name, unless `may_do` does."""
    may_do: Texts = field(default_factory=_texts)
    knows: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What the agent of a capability finds in its brief."""
    never_knows: Texts = field(default_factory=_texts)
    """What no called agent can find, in its brief or in the conversation that it may read."""
    status: Status = Status.SUCCESS
    confirms: str = ""
    """The request may be said back, be the first option, or offer a value `as before`: the user agrees to this."""
    agrees: str = "yes"
    fails: str = ""
    """Why this turn is not yet as it should be; it is a fault of the product."""
    needs: Literal["", "parts", "memory", "acting", "faults"] = ""
    """The part of the product that is missing for this turn."""

    @property
    def known_failure(self) -> str:
        return self.fails or (f"needs {self.needs}" if self.needs else "")


class Dialogue(Struct, forbid_unknown_fields=True):
    """The turns of one conversation."""

    name: str
    turn: list[dict[str, Any]]
    """A turn may have `words` and `embeddings`: what differs with that classifier."""

    def turns(self, classifier: ClassifierName) -> list[Turn]:
        return [_turn(each, classifier) for each in self.turn]


def _turn(table: Mapping[str, Any], classifier: ClassifierName) -> Turn:
    shared = {name: each for name, each in table.items() if name not in ("words", "embeddings")}
    return convert(shared | table.get(classifier, {}), Turn)


class Domain(Struct, forbid_unknown_fields=True):
    """A team and the dialogues with it."""

    name: str
    language: Literal["en", "de"]
    capabilities: dict[str, DialogueCapability]
    dialogue: list[Dialogue]
    workflows: dict[str, DeclaredWorkflow] = field(default_factory=dict[str, DeclaredWorkflow])

    def hidden(self) -> Texts:
        """Return names that users never read."""
        agents = {each.agent for each in self.capabilities.values()}
        return [*self.capabilities, *self.workflows, *agents, "orchestrator"]


def domain_from(text: str) -> Domain:
    """Return the domain that a file describes."""
    return convert(tomllib.loads(text), Domain)


def domain_named(name: str) -> Domain:
    return domain_from((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def domains() -> list[Domain]:
    return [domain_named(path.stem) for path in sorted(DATA.glob("*.toml"))]
