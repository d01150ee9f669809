"""Pairing and grants over the endpoints of the local API, with a real gateway."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from starlette.applications import Starlette

from devices import gateway, sealer
from pairing import meeting_at, owner_of
from remit_relay.device.identity import Card
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.local_api.access import local_operations, starlette_routes
from remit_relay.local_api.pairing import GrantEndpoints, GrantNames, PairingEndpoints
from remit_relay.pairing.client import PairingService, join_pairing
from remit_relay.pairing.code import read_code
from remit_server.server import Server
from remit_server.transports.addresses import listening
from waiting import eventually


class Api:
    """The endpoints as an application."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.hurried = asyncio.Event()

    async def open(self) -> None: ...

    async def drain(self, wait_s: float) -> int:
        return 0


async def test_a_pairing_is_started_seen_and_joined_and_its_grants_are_changed(tmp_path: Path) -> None:
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")

    async def check(card: Card) -> None:
        anna.peers.check(card)

    async def record(card: Card, grants: Grants) -> PeerDevice:
        return anna.peers.pair_verified(card, grants)

    async def on_peers(work: Callable[[Peers], list[PeerDevice]]) -> list[PeerDevice]:
        return work(anna.peers)

    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        service = PairingService(at, lambda: anna.device.card, check=check, record=record)
        names = GrantNames(agents=frozenset({"expert"}), profiles=frozenset({"reviewer"}))
        routes = [
            *local_operations(PairingEndpoints(service, names)),
            *local_operations(GrantEndpoints(on_peers, names)),
        ]
        app = Starlette(routes=list(starlette_routes(routes)))
        with listening("127.0.0.1", 0) as bound:
            async with Server(Api(app), bound=bound) as server, ClientSession(server.address) as http:
                async with http.post("/v1/shared/pairings", json={"agents": ["expert"]}) as reply:
                    assert reply.status == 201
                    started = await reply.json()
                assert started["state"] == "waiting"
                assert started["qr_svg"].startswith("<svg")
                assert read_code(started["link"]).code == read_code(started["code"]).code
                joined = await join_pairing(at, owner_of(bob), read_code(started["code"]).code)

                async def state() -> dict[str, Any]:
                    async with http.get(f"/v1/shared/pairings/{started['id']}") as reply:
                        return await reply.json()

                done = await eventually(state, when=lambda pairing: pairing["state"] == "paired")
                assert (done["device"], done["words"]) == (bob.device.id, joined.words)
                assert "code" not in done
                async with http.get("/v1/shared/policies") as reply:
                    (policy,) = (await reply.json())["policies"]
                assert (policy["agents"], policy["allowed"], policy["verified"]) == (["expert"], True, True)
                wanted = {"agents": [], "profiles": ["reviewer"]}
                async with http.put(f"/v1/shared/policies/{bob.device.id}", json=wanted) as reply:
                    assert (await reply.json())["profiles"] == ["reviewer"]
                for path, method in ((f"/v1/shared/policies/{bob.device.id}", "PUT"), ("/v1/shared/pairings", "POST")):
                    unknown = {"agents": ["export"], "profiles": ["nobody"]}
                    async with http.request(method, path, json=unknown) as reply:
                        assert reply.status == 400
                        refused = (await reply.json())["fault"]
                    assert refused["message"] == "unknown names: agents.export, profiles.nobody"
                    assert "did you mean `expert`?" in refused["problems"][0]["message"]
                async with http.post("/v1/shared/pairings", json={"code": "1000-acid-acid-acid"}) as reply:
                    wrong = (await reply.json())["id"]
                started["id"] = wrong
                failed = await eventually(state, when=lambda pairing: pairing["state"] == "failed")
                assert failed["error"] == "NOT_FOUND"
                async with http.post("/v1/shared/pairings", json={}) as reply:
                    again = (await reply.json())["id"]
                async with http.delete(f"/v1/shared/pairings/{again}") as reply:
                    assert (await reply.json())["state"] == "cancelled"
        await service.close()
