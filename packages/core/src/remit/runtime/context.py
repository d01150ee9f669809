"""What the parts of a hub share, and what they use of each other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct, field

from remit.policy.limits import Limits
from remit.policy.restoring import HubWarning
from remit.policy.verdict import Ask, Facts, Guard, Refuse, Rewrite, Sealing
from remit.ports import Approver, Clock, Store, Transport
from remit.ports.agents import Tool
from remit.ports.brief import Brief
from remit.protocol.card import AgentCard, Schema
from remit.protocol.envelope import Call, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault
from remit.protocol.records import Body, Kind
from remit.runtime.answer_cache import Cache
from remit.runtime.events import Outflow
from remit.runtime.frames import Frame, RoutedCall, Run
from remit.runtime.journal import JournalStep
from remit.runtime.ledger import Ledger
from remit.runtime.lent_models import LentModels
from remit.runtime.purse import Prices
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry
from remit.runtime.sessions import Sessions


class SharedRates(Protocol):
    """Rates that several hubs keep together: see `shared_requests.py`."""

    async def rate_wait_ms(self, limited: AgentCard | Tool | None) -> int: ...


ToolResult = tuple[Json, Fault | None]


class ReplyRecorder(Protocol):
    """Keeps the replies of models, tools, people and other hubs, or gives those that were kept."""

    def begin(self, frame: Frame) -> None:
        """Note a delegation that begins in the running task; nothing is recorded there until its agent starts."""
        ...

    def enter(self, frame: Frame) -> None:
        """Note that the agent of a delegation starts in the running task."""
        ...

    async def tool(
        self, frame: Frame, name: str, arguments: dict[str, Json], use: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Return the result of a tool."""
        ...

    async def remote(self, frame: Frame, request: Request, send: Callable[[], Awaitable[Response]]) -> Response:
        """Return the response of another hub."""
        ...

    async def value(self, frame: Frame, name: str, work: Callable[[], Awaitable[Json]]) -> Json:
        """Return a value that an agent finds out once."""
        ...


class RuntimeContext(Struct, kw_only=True):
    """The parts that dispatch, runs and brief backends use; made once, by the hub.

    Limits and guards may be replaced while the hub is open: later requests are judged by the new ones.
    """

    registry: Registry
    ledger: Ledger
    store: Store
    transport: Transport
    clock: Clock
    limits: Limits
    guards: tuple[Guard, ...]
    """What judges calls, and the team's own of it uses of tools."""
    answer_guards: tuple[Guard, ...] = ()
    """What judges answers before their callers get them."""
    approver: Approver | None
    redactor: Redactor
    sessions: Sessions
    outflow: Outflow
    cache: Cache
    shared: SharedRates | None = None
    """Rates that are counted for all hubs that share the store; None: this hub is alone, and the ledger counts."""
    sample_ratio: float = 1.0
    """The share of local runs whose spans are kept; it travels along, so that other hubs keep the same runs."""
    remarks: dict[str, tuple[str, ...]] = {}
    """By run, remarks to its sender besides the outcome, until the run is admitted."""
    started: Callable[[Request], None] | None = None
    """Called with each request when it has its slot."""
    asking: Callable[[str], None] | None = None
    """Called with a run before a question to a person, or its answer, is recorded in it."""
    ended: Callable[[str, Response], None] | None = None
    """Called with a run and its outcome once that is durable."""
    passed_on: dict[str, dict[str, str]] = {}
    """By run, the headers of its request that are forwarded wherever the run goes."""
    before_agents: list[Callable[[Brief], Awaitable[None]]] = []
    """Awaited in turn before an agent of this hub that may use tools starts."""
    prices: Prices | None = None
    """What the tokens of models cost; None: no price is known."""
    recorder: ReplyRecorder | None = None
    """Keeps or gives what agents get from outside of their code; None: nothing is recorded or replayed."""
    lent_models: LentModels = field(default_factory=LentModels)
    """The models of hosts that wait for a run."""


class RunRecording(Protocol):
    """Writes to the record of a run: see `delegation/recording.py`."""

    def notice(self, frame: Frame, text: str, code: Code | None = None) -> None: ...

    def warn(self, frame: Frame, warning: HubWarning) -> None: ...

    def warn_of_tokens(self, frame: Frame, code: str) -> None: ...

    def record(self, kind: Kind, run: Run, session: str, body: Body) -> None: ...

    def record_clean(self, kind: Kind, frame: Frame, body: Body) -> None: ...

    def note_step(self, frame: Frame, step: JournalStep) -> None: ...

    def sealing_of(self, run: str) -> Sealing | None: ...


class TaskControl(Protocol):
    """Starts, awaits, stops and pauses delegations: see `delegation/tasks.py`."""

    def start(self, frame: Frame) -> Frame: ...

    async def join(
        self,
        parent: Frame | None,
        frames: Sequence[Frame],
        outcomes: Sequence[asyncio.Future[Response]] | None = None,
    ) -> list[Response]: ...

    async def end(self, frames: Iterable[Frame], reason: str) -> None: ...

    def stop(self, frame: Frame, why: Fault) -> None: ...

    def pause(self, frame: Frame) -> None: ...

    def unpause(self, frame: Frame) -> None: ...


class PersonAsking(Protocol):
    """Asks people: see `delegation/approval.py`."""

    @property
    def may_ask(self) -> bool: ...

    async def ask_person(self, request: Request, ask: Ask, questions: int, run: Run) -> dict[str, Json]: ...

    async def agreed_before(self, request: Request, question: str) -> bool: ...

    async def remember_yes(self, request: Request, question: str) -> None: ...

    async def consult(
        self, parent: Frame, request: Request, ask: Ask, questions: int, form: Schema | None = None, before: int = 0
    ) -> dict[str, Json]: ...

    async def confirm(self, frame: Frame, question: str) -> bool: ...

    async def fill(self, frame: Frame, question: str, form: Schema) -> dict[str, Json] | None: ...


class LimitExtension(Protocol):
    """Extends runs that need more tokens, or a model without a price: see `delegation/extension.py`."""

    async def ask(self, frame: Frame, wanted: int) -> None: ...

    async def draw_for(self, frame: Frame, usage: Usage) -> None: ...

    async def allow_unpriced(self, frame: Frame, model: str) -> Fault | None: ...

    def extend(self, root: Frame, tokens: int, reason: str, cost: int = 0) -> None: ...


class NextAgents(Protocol):
    """Finds the next agent for a call by capability: see `delegation/routing.py`."""

    def next_leg(self, frame: Frame, response: Response) -> RoutedCall | None: ...

    def beside(self, frame: Frame) -> RoutedCall | None: ...


class Delegator(Protocol):
    """Makes the calls of agents: see `delegation/dispatch.py`."""

    @property
    def parts(self) -> RuntimeContext: ...

    @property
    def recording(self) -> RunRecording: ...

    @property
    def tasks(self) -> TaskControl: ...

    @property
    def approval(self) -> PersonAsking: ...

    @property
    def extension(self) -> LimitExtension: ...

    @property
    def routing(self) -> NextAgents: ...

    async def delegate(self, parent: Frame, call: Call) -> Response: ...

    async def judge_tool(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask: ...

    async def begin(
        self,
        parent: Frame,
        call: Call,
        *,
        at_once: int | None = None,
        route: RoutedCall | None = None,
        hedge: bool = False,
    ) -> Frame | Response: ...

    async def routed(self, parent: Frame, frame: Frame) -> Response: ...

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response: ...
