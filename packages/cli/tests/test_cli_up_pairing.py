"""A program pairs the device of a running `remit up`, and changes its grants, over the local API."""

import json
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from command_line import document, remit
from remit_server.console.hosts import TOKEN_FILE
from shared_teams import device_of, make_annas, make_bobs, relay, team_in, up
from waiting import eventually

UNKNOWN = {"agents": ["helpr"], "profiles": ["his"]}


class Api:
    """The local API of a device that runs."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, given: object = None) -> tuple[int, Any]:
        async with self._session.request(method, f"/v1/shared/{path}", json=given) as reply:
            return reply.status, await reply.json()


async def test_programs_pair_and_grant_over_the_local_api(tmp_path: Path) -> None:
    with relay(tmp_path) as gateway:
        address = gateway.said["address"]
        annas, bobs = make_annas(tmp_path / "annas", address), make_bobs(tmp_path / "bobs", address)
        with up("up", "--json", folder=bobs):
            place = bobs / ".remit" / "up.json"
            token = (team_in(bobs).store_path.parent / TOKEN_FILE).read_text().strip()
            headers = {"authorization": f"Bearer {token}"}
            async with ClientSession(json.loads(place.read_text())["address"], headers=headers) as session:
                await paired_and_granted(Api(session), annas)
        (known,) = document("devices", "list", folder=bobs)["devices"]
        assert (known["name"], known["verified"], known["agents"]) == ("anna", True, [])


async def paired_and_granted(call: Api, annas: Path) -> None:
    for refused in (await call("POST", "pairings", UNKNOWN), await call("PUT", f"policies/{'a' * 26}", UNKNOWN)):
        status, answer = refused
        assert (status, answer["fault"]["code"]) == (400, "INPUT_VALIDATION_FAILED")
        assert answer["fault"]["message"] == "unknown names: agents.helpr, profiles.his"
    status, pairing = await call("POST", "pairings", {"agents": ["helper"]})
    assert (status, pairing["state"]) == (201, "waiting")
    joined = remit("pair", pairing["code"], "--use", "mine", folder=annas)
    assert joined.returncode == 0, joined.stderr

    async def now() -> Any:
        return (await call("GET", f"pairings/{pairing['id']}"))[1]

    done = await eventually(now, when=lambda pairing: pairing["state"] == "paired")
    assert done["words"] == joined.stdout.strip()
    # The device that runs knows the new one at once, and answers it.
    chat = remit("chat", "mine", "bob", "--objective", "it", folder=annas)
    assert chat.returncode == 0, chat.stderr
    assert "heard: message 2 about it" in chat.stdout
    (policy,) = (await call("GET", "policies"))[1]["policies"]
    assert (policy["name"], policy["agents"]) == ("anna", ["helper"])
    status, changed = await call("PUT", f"policies/{device_of(annas)}", {"agents": [], "profiles": []})
    assert (status, changed["agents"]) == (200, [])
    _, described = await call("GET", "openapi.json")
    assert described["paths"].keys() >= {
        "/v1/shared/pairings",
        "/v1/shared/pairings/{pairing}",
        "/v1/shared/policies",
        "/v1/shared/policies/{device}",
    }
