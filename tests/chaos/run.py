"""One chaos run: a cluster, clients, faults, and the verdict of the checker on what happened."""

import asyncio
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chaos.check import Line, Promises, Violation, check
from chaos.clients import DEADLINE_MS, Clients, response_line
from chaos.cluster import BANK, COMMANDS, Cluster, ClusterPlan
from chaos.faults import WEIGHTS, Storm, drawn

# After the last fault everything has ended within this time, or is stuck: the deadline of a request, and recovery.
SETTLE_S = 2 * DEADLINE_MS / 1_000


class ChaosPlan(Struct, frozen=True, kw_only=True):
    """What is tried."""

    cluster: ClusterPlan
    faults: int
    seed: int
    clients: int
    pace_s: float
    """How long the pauses between faults are: about so many seconds each."""
    most_s: float
    """How long faults last at most."""


class Report(Struct, frozen=True, kw_only=True):
    """What came of a run."""

    faults: Counter[str]
    untried: tuple[str, ...]
    lines: list[Line]
    violations: list[Violation]
    records: int
    starts: int
    exits: Counter[str]
    slowest_stop_s: float

    def count(self, kind: str) -> int:
        return sum(line.kind == kind for line in self.lines)

    @property
    def outcomes(self) -> Counter[str]:
        last = {line.request: line.code or line.status for line in self.lines if line.kind == "answered"}
        return Counter(last.values())


async def storm(folder: Path, plan: ChaosPlan, say: Callable[[str], None]) -> Report:
    """Have clients ask while faults happen, and check what came of it."""
    async with Cluster(folder, plan.cluster) as cluster:
        clients = Clients(cluster, plan.seed)
        storm = Storm(cluster, clients)
        kinds = storm.kinds()
        faults = drawn(random.Random(plan.seed), plan.faults, kinds, plan.pace_s, plan.most_s)
        late: list[Violation] = []
        asking = asyncio.create_task(clients.run(plan.clients))
        try:
            await _while_alive(storm.run(faults, say), asking)
            clients.stop()
            async with asyncio.timeout(SETTLE_S):
                await asking
        except TimeoutError:
            late.append(Violation("stuck", "-", f"not everything ended within {SETTLE_S:.0f} s after the last fault"))
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        if not late:
            say("asking again for the outcomes")
            await clients.ask_again()
            await _settled(cluster)
        say("reading the record")
        lines = [*clients.lines, *_parse_ledger(folder / "ledger.jsonl")]
        findings: list[str] = []
        records = 0
        for name in (COMMANDS, BANK):
            findings_of_store, rows = await _verified(cluster, name)
            findings += findings_of_store
            records += rows
            lines += await _recorded(cluster, name)
        return Report(
            faults=storm.done,
            untried=tuple(sorted(set(WEIGHTS) - set(kinds))),
            lines=lines,
            violations=[*check(lines, promises(folder), findings), *late],
            records=records,
            starts=sum(hub.starts for hub in cluster.hubs.values()),
            exits=Counter(f"{name} {code}" for name, code in cluster.exits),
            slowest_stop_s=storm.slowest_stop_s,
        )


async def _while_alive(work: Coroutine[None, None, None], asking: "asyncio.Task[None]") -> None:
    """Wait for the faults; a client that fails ends them."""
    task = asyncio.create_task(work)
    await asyncio.wait({task, asking}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        asking.result()
    task.result()


def promises(folder: Path) -> Promises:
    """Return what the team file promises."""
    team = tomllib.loads((folder / "remit.toml").read_text())
    resumable = frozenset(name for name, agent in team["agents"].items() if agent.get("resumable"))
    return Promises(may_repeat=resumable, user_tokens_per_day=team["budgets"]["per_user_per_day"])


# ── what is left at the end ───────────────────────────────────────────────────────────────────────────────────────────


def _parse_ledger(ledger: Path) -> Iterator[Line]:
    decode = msgspec.json.Decoder(Line).decode
    return map(decode, ledger.read_bytes().splitlines())


async def _settled(cluster: Cluster) -> None:
    """Return once no run is under way, also none whose client was killed; what does not end is found on record."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            for state in ("running", "waiting", "silent"):
                while await _runs(cluster, state):
                    await asyncio.sleep(0.5)


async def _runs(cluster: Cluster, state: str) -> int:
    code, output = await cluster.command("runs", "list", "--state", state, "--jsonl", bound_s=60)
    return len(output.splitlines()) if code == 0 else 1


async def _verified(cluster: Cluster, name: str) -> tuple[list[str], int]:
    """Return what is wrong with a record, and how many rows it has."""
    code, output = await cluster.command("audit", "verify", "--json", bound_s=600, name=name)
    verdict: dict[str, Any] = json.loads(output) if output else {}
    findings = [json.dumps(each) for each in verdict.get("findings", [])]
    if unchained := verdict.get("unchained"):
        findings.append(f"{unchained} records are not in the chain")
    if code != 0 and not findings:
        findings.append(f"it cannot be verified: exit code {code}, {output}")
    return findings, verdict.get("rows", 0)


async def _recorded(cluster: Cluster, name: str) -> list[Line]:
    """Return what a record says of every delegation."""
    file = cluster.folder / f"record-{name}.jsonl"
    code, output = await cluster.command("audit", "export", "--out", str(file), bound_s=600, name=name)
    assert code == 0, output
    lines: list[Line] = []
    requests: dict[tuple[str, str], str] = {}
    for row in map(json.loads, file.read_text().splitlines()):
        if row.get("kind") not in ("started", "delegation", "result"):
            continue
        body: dict[str, Any] = json.loads(row["body"])
        place = row["run"], body["id"]
        if row["kind"] != "result":
            requests[place] = body["objective"]
            line = Line(kind="started", request=requests[place], by=body["origin"], parent=body.get("parent", ""))
        else:
            line = response_line("ended", requests[place], name, body)
        lines.append(replace(line, at=row["seq"], run=place[0], call=place[1]))
    return lines


# ── a standby that lags ───────────────────────────────────────────────────────────────────────────────────────────────


async def lose_tail(folder: Path, plan: ClusterPlan, seed: int) -> tuple[set[int], set[int]]:
    """Fail over to a standby that lags: return the streams whose last records are gone, and those that hubs name."""
    plan = replace(plan, synchronous=False, databases=2)
    async with Cluster(folder, plan) as cluster:
        clients = Clients(cluster, seed, {("boss", "till"): 1})  # no commands, which end before they lose anything
        asking = asyncio.create_task(clients.run(6))
        try:
            databases = cluster.databases
            await _more(clients, 10)
            await cluster.in_thread(databases.detach_standby)
            await _more(clients, 10)
            before = await cluster.in_thread(databases.streams)
            await cluster.in_thread(databases.fail_over)
            after = await cluster.in_thread(databases.streams)
            lost = {stream for stream, number in before.items() if number > after.get(stream, 0)}
            named: set[int] = set()
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while not lost <= (named := _workers_named(cluster)):
                        await asyncio.sleep(0.2)
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        return lost, named


async def _more(clients: Clients, count: int) -> None:
    """Return once clients have heard so many more answers."""
    wanted = clients.answered + count
    async with asyncio.timeout(SETTLE_S):
        while clients.answered < wanted:
            await asyncio.sleep(0.1)


def _workers_named(cluster: Cluster) -> set[int]:
    logs = "".join(hub.log.read_text() for hub in cluster.hubs.values())
    return {int(each) for each in re.findall(r"ACKNOWLEDGED RECORDS ARE LOST.*? stream ([0-9]+) ", logs)}
