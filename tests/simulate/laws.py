"""What must hold at the end of every simulated world."""

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import MOVES, DelegationState, Status
from simulate.plan import REPEATABLE, ClientOrder
from simulate.world import Entry, SimulatedWorld, WrittenRow

# A person who cancels a run sees it end within this time.
CANCEL_S = 1.0


def violations(world: SimulatedWorld, *, ended: bool) -> list[str]:
    """Return what was promised and does not hold."""
    violated = [] if ended else ["something never ended"]
    for order in world.scenario.orders:
        nodes = {node.id for node in order.root.tree()}
        entries = [entry for entry in world.entries if entry.node in nodes]
        for law in (executed_once, truly_reported, within_budget, asked_once, stopped, same_answer, foreseen):
            violated += law(world, order, entries)
    violated += [f"{error!r} was raised in a task and not handled" for error in world.loop.errors]
    return [*violated, *rightly_recorded(world)]


def executed_once(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """Nothing that may not be repeated is executed twice."""
    begun = Counter(entry.node for entry in entries if entry.what == "begins")
    for node in order.root.tree():
        if begun[node.id] > 1 and node.agent not in REPEATABLE:
            yield f"{node.id} of {node.agent} was executed {begun[node.id]} times"


def truly_reported(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """Nothing is reported as refused that ran and may have changed something, or as done that did not run."""
    agents = {node.id: node.agent for node in order.root.tree()}
    # What may be repeated can begin before it is on record, and is lost with its process.
    lost = {
        (entry.who, node)
        for entry in entries
        if entry.what == "begins" and agents[node := entry.node] in REPEATABLE and not _is_recorded(world, entry)
    }
    begun: set[str] = set()
    noted: set[str] = set()
    for entry in entries:
        if entry.what == "begins":
            begun.add(entry.node)
            if agents[entry.node] != "shelf" and (entry.who, entry.node) not in lost:
                noted.add(entry.node)
        if not isinstance(entry.detail, Response):
            continue
        response = entry.detail
        if response.status is Status.REFUSED and entry.node in noted:
            yield f"{entry.node} is reported as refused ({response.fault and response.fault.code}), and had begun"
        if response.ok and entry.node not in begun:
            yield f"{entry.node} is reported as done, and had not begun"
        unknown = response.fault is not None and response.fault.code is Code.OUTCOME_UNKNOWN
        if unknown and response.status is not Status.FAILED:
            yield f"the outcome of {entry.node} is unknown, and its status {response.status}"


def _is_recorded(world: SimulatedWorld, begun: Entry) -> bool:
    """Return whether the process in which a request began has written it to the record."""
    rows = (each.detail.record.body for each in world.entries if each.who == begun.who and each.what == "row")
    return any(isinstance(body, Request) and body.objective == begun.node for body in rows)


def within_budget(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """A tree spends no more than its root was granted."""
    spent = sum(entry.detail for entry in entries if entry.what == "charges")
    if spent > order.tokens:
        yield f"{order.id} spent {spent} tokens of {order.tokens}"


def asked_once(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """A person is asked once about each request, and nobody else declines it."""
    questions: dict[str, set[str]] = {}
    declined = {entry.node for entry in entries if entry.what == "decides" and not entry.detail}
    for entry in entries:
        if entry.what == "asked":
            questions.setdefault(entry.node, set()).add(entry.detail)
        fault = entry.detail.fault if isinstance(entry.detail, Response) else None
        if fault is not None and fault.code is Code.APPROVAL_DECLINED and entry.node not in declined:
            yield f"{entry.node} was declined, and not by the person: {fault.message}"
    for node, ids in questions.items():
        if len(ids) > 1:
            yield f"the person was asked {len(ids)} times about {node}: {', '.join(sorted(ids))}"


def stopped(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """What was cancelled starts no work after a moment, if its hub lives and can reach the others."""
    for cancelled in (entry for entry in entries if entry.what == "cancels"):
        if world.was_cut_off(cancelled.at):
            continue
        # A hub that takes the run over once the store is back hears of the cancel a moment later.
        late = {each.who for each in world.entries if each.what == "claimed" and each.at > cancelled.at}
        for entry in takewhile(lambda entry: entry.what != "asks again", entries):
            since = world.store_is_back(cancelled.at) if entry.who in late else cancelled.at
            if entry.what in ("begins", "charges") and entry.at > since + CANCEL_S:
                yield f"{entry.node} {entry.what} {entry.at - cancelled.at:.1f} s after {order.id} was cancelled"


def same_answer(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """An answer that was given stays the same if the same is asked again."""
    answers = [entry.detail for entry in entries if entry.what in ("answered", "answered again")]
    before = takewhile(lambda entry: entry.what != "answered", entries)
    has_begun = any(entry.what == "begins" and entry.node == order.root.id for entry in before)
    if len(answers) == 2 and has_begun and _outcome(answers[0]) != _outcome(answers[1]):
        yield f"{order.id} was answered {_outcome(answers[0])}, and then {_outcome(answers[1])}"


def _outcome(response: Response) -> tuple[object, ...]:
    return response.status, response.result, response.fault and response.fault.code


def foreseen(world: SimulatedWorld, order: ClientOrder, entries: list[Entry]) -> Iterator[str]:
    """Whatever strikes, a delegation fails by a fault that the product has a name for, and not by an exception."""
    for entry in entries:
        fault = entry.detail.fault if isinstance(entry.detail, Response) else None
        if fault is not None and "the transport failed: " in fault.message:
            yield f"{entry.node} failed by an exception: {fault.message}"


def rightly_recorded(world: SimulatedWorld) -> Iterator[str]:
    """Only the hub that has claimed a run writes to its record, and delegations move along the table of states."""
    states: dict[tuple[str, str], DelegationState | Status] = {}
    for entry in world.entries:
        if entry.what in ("released", "claimed"):  # what a closing hub cancelled begins again where the run is resumed
            states = {at: state for at, state in states.items() if at[0] != entry.node or state is not Status.CANCELLED}
        if not isinstance(entry.detail, WrittenRow):
            continue
        row, body = entry.detail.record, entry.detail.record.body
        if not entry.detail.entitled:
            yield f"{entry.who} wrote a row ({row.kind}) to run {row.run}, which it does not have"
        if isinstance(body, Request):
            place = row.run, body.path
            before = states.setdefault(place, DelegationState.QUEUED)
            if isinstance(before, Status):
                yield f"{body.path} begins again on record after it has ended: {before}"
        elif isinstance(body, Response):
            place = row.run, body.id if body.id.startswith(f"{row.run}.") else row.run
            before = states.get(place, DelegationState.REQUESTED)
            # Between its rows a delegation may have run: only the way from its last row to this one must exist.
            ran = MOVES[DelegationState.RUNNING] if before is DelegationState.QUEUED else MOVES[before]
            if body.status not in MOVES[before] | ran:
                yield f"{place[1]} moves on record from {before} to {body.status}"
            unknown = body.fault is not None and body.fault.code is Code.OUTCOME_UNKNOWN
            # A hub that resumes the run later may know more about a call in it.
            states[place] = DelegationState.QUEUED if unknown and place[1] != row.run else body.status
