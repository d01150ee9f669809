"""Clients that ask a cluster under ids of their own until each request has an answer, and log what they hear."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from chaos.cluster import Cluster
from chaos.history import ASK_AGAIN, REJECTED, Event, HistoryFile, Outcome
from chaos.hub import DEADLINE_MS

# A client that hears nothing for so long asks another hub under the same id.
PATIENCE_S = 12.0
# So often a client that is told to ask again does so; an agent's failure may have that code, too, for good.
MOST_UNANSWERED = 10
# After so many requests in a user's name another user follows: enough to use up the budget of a day.
REQUESTS_PER_USER = 50
TARGETS = ("till", "till", "boss", "boss", "careful", "steady", "clerk")
BUDGET_TOKENS = (400, 700, 1_000)


class Clients:
    """Many clients, each with one request after another."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._history = HistoryFile(cluster.folder / "history" / "clients.jsonl")
        self._number = 0
        self._stopped = asyncio.Event()
        self._session: ClientSession | None = None
        self.answered = 0
        self.on_answer: Callable[[], None] = lambda: None

    async def run(self, count: int) -> None:
        """Ask until `stop`, and return once everything that was asked is answered."""
        async with (
            ClientSession(
                headers={"authorization": "Bearer web"}, timeout=ClientTimeout(total=PATIENCE_S)
            ) as self._session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(count):
                group.create_task(self._client(f"client{number}"))

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopped.set()

    async def _client(self, name: str) -> None:
        while not self._stopped.is_set():
            await self.ask(self._chance.choice(TARGETS), name)

    async def ask(self, agent: str, name: str) -> None:
        """Ask once, and see it through."""
        self._number += 1
        id, user = f"r{self._number:06d}", f"user{self._number // REQUESTS_PER_USER}"
        body = {
            "target": agent,
            "user": user,
            "objective": id,
            "id": id,
            "deadline_ms": DEADLINE_MS,
            "max_tokens": self._chance.choice(BUDGET_TOKENS),
        }
        later = self._chance.random() < 0.3
        self._history.add(Event(kind="asked", id=id, agent=agent, by=name, user=user))
        outcome = await self._see_through(body, name, later=later)
        self.answered += 1
        self.on_answer()
        if outcome.status == "refused":
            await asyncio.sleep(0.1)  # it may work soon, and need not be asked without end

    async def _see_through(self, body: dict[str, Any], name: str, *, later: bool) -> Outcome:
        accepted, unanswered = False, 0
        while True:
            hub = self._chance.choice(list(self._cluster.hubs.values()))
            headers = {"prefer": "respond-async"} if later and not accepted else {}
            said = await self._post(hub.address, body, headers)
            by = f"{name} {hub.name}"
            if isinstance(said, Outcome) and said.code == ASK_AGAIN and unanswered < MOST_UNANSWERED:
                unanswered += 1
                await asyncio.sleep(1)
            elif isinstance(said, Outcome):
                event = Event(kind="answered", id=body["id"], agent=body["target"], by=by, outcome=said)
                self._history.add(event)
                return said
            elif said and not accepted:
                accepted = True
                self._history.add(Event(kind="accepted", id=body["id"], agent=body["target"], by=by))
            await asyncio.sleep(0.1 + self._chance.random() * 0.2)

    async def _post(self, address: str, body: dict[str, Any], headers: dict[str, str]) -> Outcome | bool:
        """Ask a hub; return the outcome, or whether it accepted the request."""
        assert self._session is not None
        try:
            async with self._session.post(f"{address}/v1/delegations", json=body, headers=headers) as reply:
                answer = await reply.json()
                if reply.status == 202:
                    return True
        except (ClientError, OSError, TimeoutError, json.JSONDecodeError):
            return False
        fault: dict[str, str] = answer.get("fault") or {}
        if "status" not in answer or "target" not in answer:
            if reply.status in (429, 502, 503):  # it goes down, or has just come up
                return False
            return Outcome(REJECTED, fault.get("code", str(reply.status)))
        ok = answer["status"] == "success"
        return Outcome(answer["status"], fault.get("code", ""), str(answer["result"]) if ok else "")

    async def ask_again(self, asked: Sequence[Event]) -> None:
        """Ask for outcomes that clients have heard, at all hubs in turn: they must be the same."""
        todo = list(asked)
        async with (
            ClientSession(
                headers={"authorization": "Bearer web"}, timeout=ClientTimeout(total=PATIENCE_S)
            ) as self._session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(8):
                group.create_task(self._again(todo, f"again{number}"))

    async def _again(self, todo: list[Event], name: str) -> None:
        while todo:
            event = todo.pop()
            body = {"target": event.agent, "user": event.user, "objective": event.id, "id": event.id}
            await self._see_through(body, name, later=False)
