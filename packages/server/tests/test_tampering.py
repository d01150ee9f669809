"""Somebody between two hubs with keys who changes, repeats or redirects what they send: nothing of it is executed."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

import meddling
from commands import start_program
from meddling import Bank, Keys, Meddle, Meddler, Message, back_hub, front_hub, served
from remit import Code, Hub
from remit.ports import OutgoingRequest
from remit.protocol.codec import encode
from remit.protocol.records import Notice
from remit_server import serve
from remit_server.refusals import DOOR
from remit_server.transports.credentials.proof import content_digest
from samples import a_remit, a_request

BOUND_S = 60
ORDER = {"amount": 5, "account": "DE02 1203"}


class Stage:
    """Both hubs, and who stands between them."""

    def __init__(self, front: Hub, back: Hub, between: Meddler, bank: Bank, keys: Keys) -> None:
        self.front, self.back, self.between, self.bank, self.keys = front, back, between, bank, keys

    async def pay(self) -> Any:
        return (await self.front.ask("teller", "Pay", user="ann", input=ORDER)).unwrap()

    async def signed(self, method: str, path: str, body: bytes = b"", id: str = "r-1.1") -> Message:
        """Return a request as the front hub would send it."""
        request = a_request(id=id, run="r-1", remit=a_remit(user="ann", depth=1, chain=("teller@front",)))
        made: dict[str, str] = await self.keys.papers()(request, OutgoingRequest(method, path, body))
        return Message(method, path, made | {"content-type": "application/json"}, body)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    bank, keys = Bank(tmp_path / "payments"), Keys.made()
    back = back_hub(tmp_path, bank)
    async with asyncio.timeout(BOUND_S), served(back, keys) as server, Meddler(server.address).listening() as between:
        front = front_hub(tmp_path, between.address, keys)
        async with front:
            yield Stage(front, back, between, bank, keys)


async def test_what_nobody_changes_is_carried_out(stage: Stage) -> None:
    assert await stage.pay() == "bank paid 5 to DE02 1203"
    assert stage.bank.payments == [["bank", ORDER]]


def redigested(message: Message) -> Message:
    """Return it with the digest of the body that it has now."""
    return message._replace(headers=message.headers | {"Content-Digest": content_digest(message.body)})


Change = Callable[[Message], Message]


def on_delegations(change: Change) -> Meddle:
    return lambda message: [change(message)]


CHANGES: dict[str, Change] = {
    "amount": lambda sent: sent.changed('"amount":5', '"amount":5000'),
    "amount and digest": lambda sent: redigested(sent.changed('"amount":5', '"amount":5000')),
    "account": lambda sent: sent.changed("DE02 1203", "XX66 6666"),
    "account and digest": lambda sent: redigested(sent.changed("DE02 1203", "XX66 6666")),
    "agent": lambda sent: redigested(sent.changed('"target":"bank"', '"target":"vault"')),
    "user": lambda sent: redigested(sent.changed('"user":"', '"user":"x')),
    "path to another dialect": lambda sent: sent._replace(path="/dialects/subagent"),
    "path with a query": lambda sent: sent._replace(path=f"{sent.path}?x=1"),
    "method": lambda sent: sent._replace(method="GET", path=sent.path + "/x"),
    "no proof": lambda sent: sent.without("remit-proof"),
    "no credential": lambda sent: sent.without("remit-credential"),
    "neither": lambda sent: sent.without("remit-proof", "remit-credential"),
    "no digest": lambda sent: sent.without("content-digest"),
    "digest of another algorithm": lambda sent: sent._replace(
        headers=sent.headers | {"Content-Digest": sent.headers["Content-Digest"].replace("256", "512")}
    ),
    "no body": lambda sent: sent._replace(body=b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_what_was_changed_on_the_way_is_refused_and_not_executed(stage: Stage, change: Change) -> None:
    stage.between.meddle = on_delegations(change)
    code, _ = await stage.pay()
    # A refusal that is not signed could be anybody's.
    unsigned = [CHANGES[name] for name in ("path to another dialect", "no proof", "neither")]
    assert code == ("OUTCOME_UNKNOWN" if change in unsigned else "UNAUTHENTICATED")
    assert set(stage.between.statuses) == {401}
    assert stage.bank.payments == []
    assert await stage.back.store.runs() == []
    assert await noted(stage.back) == [Code.UNAUTHENTICATED]


async def noted(hub: Hub) -> list[Code | None]:
    """Return what is on record of refusals at the door of a hub."""
    await hub.store.flush()
    return [each.body.code for each in await hub.store.records(run=DOOR) if isinstance(each.body, Notice)]


async def test_another_agent_cannot_be_put_into_the_path(stage: Stage) -> None:
    """A2A has the agent in the path."""
    part = {"data": ORDER, "mediaType": "application/json"}
    sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}}
    body = encode({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent})
    message = await stage.signed("POST", "/a2a/bank", body)
    reply = await stage.between.send(message._replace(path="/a2a/vault"))
    assert (reply.status, stage.bank.payments) == (401, [])
    assert await noted(stage.back) == [Code.UNAUTHENTICATED]


async def test_a_look_cannot_be_made_into_a_cancel_nor_one_run_into_another(stage: Stage) -> None:
    asking = asyncio.ensure_future(stage.front.ask("teller", "Wait", user="ann"))
    run = await stage.bank.endless_run
    look = await stage.signed("GET", f"/v1/delegations/{run}")
    cancel = await stage.signed("POST", "/v1/delegations/another/cancel", b"{}")
    forged = [
        look._replace(path=f"{look.path}/events"),
        look._replace(method="POST", path=f"{look.path}/cancel"),
        look._replace(method="HEAD"),
        cancel._replace(path=f"/v1/delegations/{run}/cancel"),
        cancel._replace(method="GET", path="/v1/delegations/another"),
        redigested(cancel._replace(body=b'{"reason":"because"}')),
        cancel._replace(body=b""),
    ]
    assert [(await stage.between.send(each)).status for each in forged] == [401] * len(forged)
    assert [each.state for each in await stage.back.store.runs()] == ["running"]
    assert (await stage.between.send(look)).status == 202, "as it was sent it is good"
    asking.cancel()
    await asyncio.wait({asking})


async def test_a_request_for_one_hub_is_not_taken_by_another(stage: Stage, tmp_path: Path) -> None:
    """The other trusts the sender as well, and has the same agents."""
    folder = tmp_path / "other"
    folder.mkdir()
    other, bank = Keys(stage.keys.front, Keys.made().back), Bank(folder / "payments")
    async with served(back_hub(folder, bank), other) as server:
        stage.between.target = server.address
        code, message = await stage.pay()
    assert (code, "for another hub" in message) == ("OUTCOME_UNKNOWN", True)
    assert bank.payments == stage.bank.payments == []


async def test_what_is_sent_twice_is_taken_once(stage: Stage) -> None:
    stage.between.meddle = lambda message: [message, message]
    code, message = await stage.pay()
    assert (code, "used before" in message) == ("UNAUTHENTICATED", True)
    assert stage.between.statuses == [200, 401]
    assert await noted(stage.back) == [Code.UNAUTHENTICATED]
    assert stage.bank.payments == [["bank", ORDER]]


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/runs", "/v1/delegations/none"])
async def test_every_request_with_a_proof_counts_once(stage: Stage, path: str) -> None:
    message = await stage.signed("GET", path)
    first, *more = [(await stage.between.send(message)).status for _ in range(3)]
    assert (first in (200, 404), more) == (True, [401, 401])


async def test_what_is_tried_again_after_a_lost_reply_has_a_proof_of_its_own(stage: Stage) -> None:
    stage.between.deaf = 2
    assert await stage.pay() == "bank paid 5 to DE02 1203"
    assert stage.between.statuses == [200, 200, 200]
    assert stage.bank.payments == [["bank", ORDER]]
    proofs = {message.headers["Remit-Proof"] for message in stage.between.seen}
    assert len(proofs) == 3


async def test_a_large_request_is_covered_whole(stage: Stage) -> None:
    order = ORDER | {"text": "x" * 300_000}
    stage.between.meddle = on_delegations(lambda sent: sent.changed("xxx", "xxy"))
    response = (await stage.front.ask("teller", "Pay", user="ann", input=order)).unwrap()
    assert (response[0], stage.bank.payments) == ("UNAUTHENTICATED", [])
    stage.between.meddle = lambda message: [message]
    assert (await stage.front.ask("teller", "Pay", user="ann", input=order)).unwrap() == "bank paid 5 to DE02 1203"


async def test_to_take_a_proof_once_costs_a_delegation_no_commit_of_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is remembered by the commit that submits the request."""
    counted: list[str] = []
    incr = stage.back.store.incr

    async def counting(key: str, n: int, window_ms: int) -> int:
        counted.append(key.partition(":")[0])
        return await incr(key, n, window_ms)

    monkeypatch.setattr(stage.back.store, "incr", counting)
    await stage.pay()
    assert counted == []


# ── restarts, and several processes ───────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def back_process(folder: Path) -> AsyncGenerator[str]:
    """Serve the back hub in a process of its own, and kill it at the end."""
    process = await start_program([sys.executable, meddling.__file__, str(folder)])
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def test_a_proof_is_taken_once_also_after_a_restart_and_by_another_process(tmp_path: Path) -> None:
    keys, bank = Keys.made(), Bank(tmp_path / "payments")
    keys.save(tmp_path)
    async with asyncio.timeout(2 * BOUND_S), Meddler("").listening() as between:
        async with back_process(tmp_path) as first, back_process(tmp_path) as second:
            between.target = first
            async with front_hub(tmp_path, between.address, keys) as front:
                answer = await front.ask("teller", "Pay", user="ann", input=ORDER)
                assert answer.unwrap() == "bank paid 5 to DE02 1203"
            (paid,) = between.seen
            assert (await between.send(paid, second)).status == 401, "by a process that shares the store"
            stage = Stage(front, front, between, bank, keys)
            look = await stage.signed("GET", "/v1/agents")
            at_once = await asyncio.gather(between.send(look, first), between.send(look, second))
            assert sorted(reply.status for reply in at_once) == [200, 401]
        async with back_process(tmp_path) as third:  # the others were killed
            for message in (paid, look):
                reply = await between.send(message, third)
                assert isinstance(reply.body, bytes)
                assert (reply.status, "used before" in json.loads(reply.body)["fault"]["message"]) == (401, True)
    assert bank.payments == [["bank", ORDER]]


# ── bodies that state their digest ────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_may_state_the_digest_of_a_body_too(tmp_path: Path) -> None:
    """RFC 9530: without a proof it finds out mistakes, if no attackers."""
    async with (
        Hub(store=tmp_path / "web.db", durability="process") as hub,
        serve(hub, clients={"web": "w" * 20}) as address,
        ClientSession(address, headers={"authorization": f"Bearer {'w' * 20}"}) as web,
    ):
        body = b'{"target": "nobody", "user": "ann"}'
        kind = {"content-type": "application/json"}
        for digest, status in ((content_digest(body), 404), (content_digest(b"{}"), 400), ("md5=:x:", 404)):
            headers = kind | {"content-digest": digest}
            async with web.post("/v1/delegations", data=body, headers=headers) as reply:
                assert reply.status == status, await reply.text()
