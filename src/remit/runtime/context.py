"""The parts of a hub, wired together."""

from msgspec import Struct

from remit.policy.limits import Limits
from remit.policy.verdict import Guard
from remit.runtime.answer_cache import Cache
from remit.runtime.ledger import Ledger
from remit.runtime.live_text import Outflow
from remit.runtime.ports import Approver, Clock, Store, Transport
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry
from remit.runtime.sessions import Sessions


class RuntimeContext(Struct, kw_only=True):
    """The parts that dispatch, runs and brief backends use; made once, by the engine.

    Limits and guards may be replaced while the hub is open: later requests are judged by the new ones.
    """

    registry: Registry
    ledger: Ledger
    store: Store
    transport: Transport
    clock: Clock
    limits: Limits
    guards: tuple[Guard, ...]
    approver: Approver | None
    redactor: Redactor
    sessions: Sessions
    outflow: Outflow
    cache: Cache
    sample_ratio: float = 1.0
    """The share of local runs whose spans are kept; it travels along, so that other hubs keep the same runs."""
    remarks: dict[str, tuple[str, ...]] = {}
    """By run, remarks to its sender besides the outcome, until the run is admitted."""
    passed_on: dict[str, dict[str, str]] = {}
    """By run, the headers of its request that are forwarded wherever the run goes."""
