"""One chaos run: a cluster, clients, faults, and the verdict of the checker on what happened."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from chaos.clients import Clients
from chaos.cluster import Cluster, ClusterPlan
from chaos.databases import DATABASE
from chaos.faults import WEIGHTS, Storm, drawn
from chaos.history import Event, Outcome, Rules, StoredRequest, Violation, check, read_history
from chaos.hub import MAY_REPEAT, RUN_TOKENS, USER_TOKENS_PER_DAY
from postgres_server import PASSWORD, USER
from remit.protocol.records import Kind, read_response
from remit.runtime.ports import StoreError
from remit.stores.postgres.store import PostgresStore
from remit.stores.schema import KINDS

# After the last fault everything has ended within this time, or is stuck: the deadline of a request, and recovery.
SETTLE_S = 240.0
# Outcomes that are asked for once more at the end, of all kinds.
AGAIN = 400


class ChaosPlan(Struct, frozen=True, kw_only=True):
    """What is tried."""

    cluster: ClusterPlan
    faults: int
    seed: int
    clients: int
    pace_s: float = 1.0
    """How long the pauses between faults are: about so many seconds each."""
    most_s: float = 3.0
    """How long faults last at most."""


class Report(Struct, frozen=True, kw_only=True):
    """What came of a run."""

    faults: Counter[str]
    untried: tuple[str, ...]
    requests: int
    outcomes: Counter[str]
    executions: int
    violations: list[Violation]
    records: int
    failovers: int
    starts: int
    exits: Counter[str]
    network: str


async def storm(folder: Path, plan: ChaosPlan, say: Callable[[str], None]) -> Report:
    """Have clients ask while faults happen, and check what came of it."""
    async with Cluster(folder, plan.cluster) as cluster:
        kinds = _kinds(cluster)
        faults = drawn(random.Random(plan.seed), plan.faults, kinds, plan.pace_s, plan.most_s)
        clients = Clients(cluster, plan.seed)
        storm = Storm(cluster, clients)
        late = ""
        asking = asyncio.create_task(clients.run(plan.clients))
        try:
            await _while_alive(storm.run(faults, say), asking)
            clients.stop()
            async with asyncio.timeout(SETTLE_S):
                await asking
                await _settled(cluster)
        except TimeoutError:
            late = f"not everything ended within {SETTLE_S:.0f} s after the last fault"
            asking.cancel()
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        say("asking again for the outcomes")
        if not late:
            await _ask_again(cluster, clients, plan.seed)
        return await _judged(cluster, storm, kinds, late)


async def _while_alive(work: Coroutine[None, None, None], asking: "asyncio.Task[None]") -> None:
    """Wait for the faults; a client that fails ends them."""
    task = asyncio.create_task(work)
    await asyncio.wait({task, asking}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        asking.result()
    task.result()


def _kinds(cluster: Cluster) -> dict[str, int]:
    kinds = dict(WEIGHTS)
    if cluster.databases.standby is None:
        del kinds["fail over"]
    if not cluster.databases.has_small_disk:
        del kinds["disk full"]
    return kinds


async def _settled(cluster: Cluster) -> None:
    """Return once no request in the store is open."""
    connection = await cluster.databases.primary.connect(DATABASE)
    try:
        while await connection.fetchval("SELECT count(*) FROM remit.request WHERE state = 0"):
            await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def _ask_again(cluster: Cluster, clients: Clients, seed: int) -> None:
    events = read_history(cluster.folder / "history")
    kept = {event.id for event in events if event.outcome is not None and event.outcome.is_kept}
    asked = [event for event in events if event.kind == "asked" and event.id in kept]
    await clients.ask_again(random.Random(seed).sample(asked, min(AGAIN, len(asked))))


async def _judged(cluster: Cluster, storm: Storm, kinds: dict[str, int], late: str) -> Report:
    events = read_history(cluster.folder / "history")
    stored = await stored_requests(cluster, {event.id for event in events if event.kind == "asked"})
    url = cluster.databases.primary
    store = PostgresStore(
        f"postgresql://{USER}@127.0.0.1:{url.port}/{DATABASE}",
        key=cluster.folder / "hub.key",
        password=PASSWORD,
        make_key=False,
    )
    findings: list[str] = []
    records = 0
    try:
        await store.open()
        await store.records(limit=1)  # whoever reads brings the chain up to date
        verdict = await store.verify()
        findings = [str(each) for each in verdict.findings]
        records = verdict.rows
        unchained = verdict.unchained
        await store.close()
    except StoreError as error:
        findings, unchained = [f"the record cannot be verified: {error}"], 0
    rules = Rules(may_repeat=MAY_REPEAT, run_tokens=RUN_TOKENS, user_tokens_per_day=USER_TOKENS_PER_DAY)
    violations = check(events, stored, rules, findings=findings, unchained=unchained)
    if late:
        violations.append(Violation("stuck", "-", late))
    return Report(
        faults=storm.done,
        untried=tuple(sorted(set(WEIGHTS) - set(kinds))),
        requests=sum(event.kind == "asked" for event in events),
        outcomes=_outcomes(events),
        executions=sum(event.kind == "executed" for event in events),
        violations=violations,
        records=records,
        failovers=cluster.databases.failovers,
        starts=sum(hub.starts for hub in cluster.hubs.values()),
        exits=Counter(f"{name} {code}" for name, code in cluster.exits),
        network=cluster.network.name,
    )


def _outcomes(events: list[Event]) -> Counter[str]:
    last = {event.id: event.outcome for event in events if event.outcome is not None}
    return Counter(outcome.code or outcome.status for outcome in last.values())


async def stored_requests(cluster: Cluster, asked: set[str]) -> list[StoredRequest]:
    """Return the requests of clients in the store, and leave a copy of all rows and records in the folder."""
    connection = await cluster.databases.primary.connect(DATABASE)
    try:
        rows = await connection.fetch(
            "SELECT request.id, target, by_user, request.run, body FROM remit.request"
            " LEFT JOIN remit.record ON stream = last_stream AND number = last_number WHERE state < 2"
        )
        results = await connection.fetch("SELECT run, body FROM remit.record WHERE kind = $1", KINDS[Kind.RESULT])
        for table in ("request", "record", "stream", "counter", "worker"):
            copied = await connection.fetch(f"SELECT row_to_json({table}) FROM remit.{table}")
            (cluster.folder / f"{table}.jsonl").write_text("".join(f"{row[0]}\n" for row in copied))
    finally:
        await connection.close()
    ended = Counter((run, read_response(body).id) for run, body in results)
    return [_stored(id, target, user, body, ended[run, id]) for id, target, user, run, body in rows if id in asked]


def _stored(id: str, target: str, user: str, body: bytes | None, outcomes: int) -> StoredRequest:
    if body is None:
        return StoredRequest(id=id, agent=target, user=user, outcome=None, outcomes=outcomes)
    response = read_response(body)
    ok = response.status == "success"
    outcome = Outcome(
        str(response.status),
        "" if response.fault is None else str(response.fault.code),
        str(response.result) if ok else "",
    )
    return StoredRequest(
        id=id, agent=target, user=user, outcome=outcome, outcomes=outcomes, tokens=response.usage.total
    )


# ── a standby that lags ───────────────────────────────────────────────────────────────────────────────────────────────


class LostTail(Struct, frozen=True, kw_only=True):
    """What came of a failover to a standby that had not received everything."""

    lost: dict[int, tuple[int, int]]
    """The streams whose last records are gone: what was acknowledged at least, and what is there."""
    said: frozenset[int]
    """The streams of which a hub said so."""

    @property
    def is_said(self) -> bool:
        return bool(self.lost) and set(self.lost) <= self.said


async def lose_tail(folder: Path, plan: ClusterPlan, seed: int) -> LostTail:
    """Fail over to an asynchronous standby that lags, and find out whether each hub says what it lost."""
    plan = replace(plan, synchronous=False, databases=2)
    async with Cluster(folder, plan) as cluster:
        clients = Clients(cluster, seed)
        asking = asyncio.create_task(clients.run(6))
        try:
            databases = cluster.databases
            await _more(clients, 10)
            await databases.pause_standby()
            await _more(clients, 10)
            before = await _streams(cluster)
            await databases.fail_over()
            after = await _streams(cluster)
            lost = {
                stream: (number, after.get(stream, 0))
                for stream, number in before.items()
                if number > after.get(stream, 0)
            }
            said: frozenset[int] = frozenset()
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while not set(lost) <= (said := _said(cluster)):
                        await asyncio.sleep(0.2)
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        return LostTail(lost=lost, said=said)


async def _more(clients: Clients, count: int) -> None:
    """Return once clients have heard so many more answers."""
    wanted = clients.answered + count
    async with asyncio.timeout(SETTLE_S):
        while clients.answered < wanted:
            await asyncio.sleep(0.1)


async def _streams(cluster: Cluster) -> dict[int, int]:
    connection = await cluster.databases.primary.connect(DATABASE)
    try:
        return dict(await connection.fetch("SELECT id, number FROM remit.stream"))
    finally:
        await connection.close()


def _said(cluster: Cluster) -> frozenset[int]:
    logs = "".join(file.read_text() for file in (cluster.folder / "logs").glob("h*.log"))
    return frozenset(int(each) for each in re.findall(r"ACKNOWLEDGED RECORDS ARE LOST.*? stream ([0-9]+) ", logs))
