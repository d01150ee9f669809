"""Those who use the team: clients that ask until they have an answer, clients that cancel, and people who agree."""

import asyncio
import json
import random
import time
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from chaos.check import ASK_AGAIN, REJECTED, Kind, Line
from chaos.cluster import TOKEN, Cluster

# A client that hears nothing for so long asks another hub under the same id.
PATIENCE_S = 12.0
# So often a client that is told to ask again does so; an agent's failure may have that code, too, for good.
MOST_UNANSWERED = 10
# After so many requests in a user's name another user follows: enough to use up the budget of a day.
REQUESTS_PER_USER = 30
# The time of a request: longer than any fault lasts together with what the hubs need to recover.
DEADLINE_MS = 90_000
# What is asked for, how often: the agent and its input; by `remit run`, or over HTTP.
WISHES: dict[tuple[str, str | None], int] = {
    ("remit run boss", "till"): 4,
    ("boss", "till"): 20,
    ("boss", "teller"): 10,
    ("till", None): 15,
    ("careful", None): 10,
    ("planner", None): 20,
    ("boss", "vault"): 8,
    ("vault", None): 4,
    ("boss", "patient"): 6,
    ("patient", None): 4,
}
# Outcomes that are asked for once more at the end.
AGAIN = 400
BUDGETS = (400, 700, 1_000)


class Clients:
    """Many clients, each with one request after another, and someone who answers questions."""

    def __init__(self, cluster: Cluster, seed: int, wishes: dict[tuple[str, str | None], int] = WISHES) -> None:
        self._cluster = cluster
        self._wishes = wishes
        self._chance = random.Random(seed)
        self._number = 0
        self._stopped = False
        self._session: ClientSession
        self.lines: list[Line] = []
        self._path = cluster.folder / "clients.jsonl"
        self._bodies: dict[str, dict[str, Any]] = {}
        self.answered = 0

    def note(self, line: Line) -> None:
        line = msgspec.structs.replace(line, at=time.monotonic())
        self.lines.append(line)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    async def run(self, count: int) -> None:
        """Ask until `stop`, and return once everything that was asked is answered."""
        async with self._open_session(), asyncio.TaskGroup() as people:
            answering = people.create_task(self._answer_questions())
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(self._client(f"client{number}"))
            answering.cancel()

    def _open_session(self) -> ClientSession:
        headers = {"authorization": f"Bearer {TOKEN}"}
        self._session = ClientSession(headers=headers, timeout=ClientTimeout(total=PATIENCE_S))
        return self._session

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopped = True

    async def _client(self, name: str) -> None:
        while not self._stopped:
            agent, input = self._chance.choices([*self._wishes], [*self._wishes.values()])[0]
            if agent.startswith("remit run"):
                await self._run_command(name, killed=self._chance.random() < 0.3)
            else:
                await self.ask(agent, input, name)

    def _make_body(self, agent: str, input: str | None, name: str) -> dict[str, Any]:
        self._number += 1
        id, user = f"r{self._number:06d}", f"user{self._number // REQUESTS_PER_USER}"
        tokens = self._chance.choice(BUDGETS)
        self.note(Line(kind="asked", request=id, agent=agent, by=name, user=user, tokens=tokens))
        body = {"target": agent, "user": user, "objective": id, "id": id, "max_tokens": tokens}
        body |= {"deadline_ms": DEADLINE_MS} | ({} if input is None else {"input": input})
        self._bodies[id] = body
        return body

    # ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, agent: str, input: str | None, name: str) -> None:
        """Ask once, and see it through."""
        body = self._make_body(agent, input, name)
        is_cancelled = "patient" in (agent, input)
        status = await self._see_through(
            body, name, later=is_cancelled or self._chance.random() < 0.3, cancel=is_cancelled
        )
        self.answered += 1
        if status == "refused":
            await asyncio.sleep(0.1)  # it may work soon, and need not be asked without end

    async def _see_through(self, body: dict[str, Any], name: str, *, later: bool = False, cancel: bool = False) -> str:
        id, unanswered = body["id"], 0
        while True:
            hub = self._chance.choice(self._cluster.servers)
            headers = {"prefer": "respond-async"} if later else {}
            status, answer = await self._post(hub, "/v1/delegations", body, headers)
            if status == 202:
                if cancel:
                    await asyncio.sleep(self._chance.random())
                    cancel = not await self._cancel(id, answer["run"], name)
                later = cancel
            elif "status" in answer and "target" in answer:
                line = response_line("answered", id, f"{name} {hub.name}", answer)
                unanswered += 1
                if line.code != ASK_AGAIN or unanswered > MOST_UNANSWERED:
                    self.note(line)
                    return line.status
                await asyncio.sleep(1)
            elif status not in (0, 429, 502, 503):  # it is there, and does not go down
                self.note(response_line("answered", id, f"{name} {hub.name}", {**answer, "status": REJECTED}))
                return REJECTED
            await asyncio.sleep(0.1 + self._chance.random() * 0.2)

    async def _post(self, hub: Any, path: str, body: object, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Send something to a hub; return its status and document, or 0 if there is none."""
        try:
            address = self._cluster.address(hub) + path
            async with self._session.post(address, json=body, headers=headers) as reply:
                return reply.status, await reply.json()
        except (ClientError, OSError, TimeoutError, json.JSONDecodeError):
            return 0, {}

    async def _cancel(self, id: str, run: str, name: str) -> bool:
        """Cancel a request, at any hub or by the command; return whether that was accepted."""
        if self._chance.random() < 0.2:
            code, _ = await self._cluster.command("runs", "cancel", run, bound_s=PATIENCE_S)
            is_accepted = code == 0
        else:
            hub = self._chance.choice(self._cluster.servers)
            status, _ = await self._post(hub, f"/v1/delegations/{id}/cancel", {}, {})
            is_accepted = status in (200, 202)
        if is_accepted:
            self.note(Line(kind="cancelled", request=id, by=name))
        return is_accepted

    async def ask_again(self) -> None:
        """Ask for outcomes that clients have heard once more: they must be the same."""
        kept = {line.request for line in self.lines if line.kind == "answered" and line.is_kept}
        kept -= {line.request for line in self.lines if line.by.endswith(" run")}
        todo = self._chance.sample(sorted(kept), min(AGAIN, len(kept)))

        async def again(name: str) -> None:
            while todo:
                await self._see_through(self._bodies[todo.pop()], name)

        async with self._open_session(), asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(again(f"again{number}"))

    # ── by commands ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_command(self, name: str, *, killed: bool) -> None:
        """Ask by `remit run`, which is a hub of its own for so long; it may be killed."""
        body = self._make_body("boss", "till", f"{name} run")
        options = ("--user", body["user"], "--budget", str(body["max_tokens"]), "--input", '"till"', "--json")
        bound_s = self._chance.random() * 2 if killed else 2 * DEADLINE_MS / 1_000
        code, output = await self._cluster.command(
            *("run", "boss", body["id"], *options, "--set", "bus.hosts=[]"), bound_s=bound_s
        )
        answer = _document(output)
        if code < 0 or "status" not in answer:  # killed, or it could not even begin
            self.note(Line(kind="abandoned", request=body["id"], by=name))
            return
        self.note(response_line("answered", body["id"], f"{name} run", answer))
        self.answered += 1

    async def _answer_questions(self) -> None:
        """Be the people who answer: mostly one of them, who mostly agrees, and sometimes two at once."""
        seen: set[str] = set()
        decided: set[str] = set()
        while True:
            code, output = await self._cluster.command("pending", "list", "--jsonl", bound_s=PATIENCE_S)
            for each in map(_document, output.splitlines() if code == 0 else ()):
                id, request = each["question"]["id"], each["question"]["request"]["objective"]
                if id not in seen:
                    seen.add(id)
                    self.note(Line(kind="question", request=request, question=id))
                if id not in decided:
                    verdicts = self._chance.choices([(True,), (False,), (True, False)], [8, 1, 1])[0]
                    async with asyncio.TaskGroup() as group:
                        tasks = [
                            group.create_task(self._decide(id, request, f"person{number}", agreed=agreed))
                            for number, agreed in enumerate(verdicts)
                        ]
                    if any(task.result() for task in tasks):
                        decided.add(id)
            await asyncio.sleep(0.5)

    async def _decide(self, question: str, request: str, name: str, *, agreed: bool) -> bool:
        verb = "approve" if agreed else "reject"
        code, output = await self._cluster.command(
            "pending", verb, question, "--as", name, "--json", bound_s=PATIENCE_S
        )
        if _document(output).get("code") == "INPUT_VALIDATION_FAILED":
            return False  # somebody else has answered, or its run was taken over; it is listed again if it waits
        kind = "decided" if code == 0 else "unsure"
        self.note(Line(kind=kind, request=request, question=question, by=name, agreed=agreed))
        return code == 0


def response_line(kind: Kind, request: str, by: str, response: dict[str, Any]) -> Line:
    """Return the line for a response, as a client gets it or as it is on record."""
    fault: dict[str, str] = response.get("fault") or {}
    result = response.get("result")
    receipt = result if isinstance(result, str) and response["status"] == "success" else ""
    code = fault.get("code", "")
    return Line(kind=kind, request=request, by=by, status=response["status"], code=code, receipt=receipt)


def _document(text: str) -> dict[str, Any]:
    """Return the document that a command printed, or an empty one if it printed none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {}
