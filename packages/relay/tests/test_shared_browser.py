"""The local API for a browser: a one-time link, a session, its OpenAPI document, and attacks on all of it."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from jsonschema import Draft202012Validator
from yarl import URL

from faces import Face, faced
from remit_relay.local_api.run_commands import ACTS
from remit_relay.local_api.serving import serve_shared
from remit_relay.session.moves import SessionState
from two_sides import Tap


def browser(face: Face) -> ClientSession:
    return ClientSession(face.address, cookie_jar=CookieJar(unsafe=True))


async def signed_in(face: Face, own: ClientSession) -> dict[str, str]:
    """Sign a browser in by a link, as its page does, and return the headers that its acts need."""
    async with own.get(face.links.new(), allow_redirects=False) as reply:
        assert reply.status == 303
        own.headers["x-remit-page-key"] = reply.headers["location"].removeprefix("/#key=")
    return {"origin": face.address}


async def test_a_link_signs_in_one_browser_once_and_a_session_can_be_left(tmp_path: Path) -> None:
    async with faced(tmp_path) as face, browser(face) as own, browser(face) as other:
        link = face.links.new()
        async with own.head(link) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (200, False)
        async with own.get(link, allow_redirects=False) as reply:
            page, _, key = reply.headers["location"].partition("#key=")
            assert (reply.status, page) == (303, "/")
            assert re.search(r"; Path=/; Max-Age=\d+; HttpOnly; SameSite=Strict$", reply.headers["set-cookie"])
            assert reply.headers["referrer-policy"] == "no-referrer"
        async with own.get("/v1/shared/runs") as reply:
            assert reply.status == 401, "the cookie alone, which goes to every port"
        own.headers["x-remit-page-key"] = key
        async with own.get("/v1/shared/runs") as reply:
            assert reply.status == 200
        async with other.get(link, allow_redirects=False) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (401, False)
        async with other.get(link, allow_redirects=False, headers={"accept": "text/html,*/*"}) as reply:
            assert (reply.status, reply.headers["location"]) == (303, "/?link=used")
            assert "set-cookie" not in reply.headers
        async with other.get("/v1/shared/runs") as reply:
            assert reply.status == 401
        async with own.get("/v1/console") as reply:
            session = await reply.json()
        assert session["views"] == ["chat"]
        assert session["who"]["name"] == "local"
        here = {"origin": face.address}
        body = {"profile": "mine", "device": face.sides.bob.device.id, "objective": "x", "by": "ann"}
        for wrong in (
            {},
            {**here, "x-remit-page-key": "x"},
            {**here, "origin": "http://evil.example"},
        ):
            async with own.post("/v1/shared/runs", json=body, headers=wrong) as reply:
                assert reply.status in (401, 403), wrong
        async with own.post("/v1/shared/runs", json=body, headers=here) as reply:
            assert reply.status == 201
        async with own.post("/v1/console/links", headers=here) as reply:
            assert reply.status == 403, "a page cannot make links for others"
        assert {each.via for each in face.sides.noted if each.by == "ann"} == {"console"}
        kept = own.cookie_jar.filter_cookies(URL(face.address)).output(header="", sep=";").strip()
        async with own.delete("/v1/console/session", headers=here) as reply:
            assert await reply.json() == {"signed_out": True}
            assert "Max-Age=0" in reply.headers["set-cookie"]
        for cookies in ({}, {"cookie": kept}):
            async with own.get("/v1/shared/runs", headers=cookies) as reply:
                assert reply.status == 401, "a copy of the cookie is worth nothing either"
        status, made = await face.post("/v1/console/links")
        assert (status, made["url"].startswith(f"{face.address}/v1/console/enter?code=")) == (201, True)


async def test_the_token_typed_into_the_page_signs_in(tmp_path: Path) -> None:
    async with faced(tmp_path) as face, browser(face) as own:
        here = {"origin": face.address}
        for token, status in ((face.token, 201), ("x" * 40, 401)):
            async with own.post("/v1/console/session", json={"token": token}, headers=here) as reply:
                assert reply.status == status
                if status == 201:
                    own.headers["x-remit-page-key"] = (await reply.json())["page_key"]
        async with own.post("/v1/console/session", json={"token": face.token}) as reply:
            assert reply.status == 403, "a page of another site cannot sign in"
        async with own.get("/v1/shared/runs") as reply:
            assert reply.status == 200


async def test_a_session_outlives_a_restart_and_ends_with_the_token(tmp_path: Path) -> None:
    async with faced(tmp_path) as face, browser(face) as own:
        await signed_in(face, own)
        kept = own.cookie_jar.filter_cookies(URL(face.address)).output(header="", sep=";").strip()
        port = URL(face.address).port
        assert port is not None
        changes = face.changes

        async def status(token: Path) -> int:
            async with (
                serve_shared(face.sides.host, changes, token=token, port=0) as address,
                ClientSession(address) as anew,
            ):
                moved = kept.replace(f"remit_{port}", f"remit_{URL(address).port}")
                kept_key = {"x-remit-page-key": own.headers["x-remit-page-key"]}
                async with anew.get("/v1/shared/runs", headers={"cookie": moved, **kept_key}) as reply:
                    return reply.status

        assert await status(face.token_file) == 200
        assert await status(tmp_path / "another.token") == 401


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}]
)
async def test_a_page_of_another_site_can_neither_use_a_link_nor_a_session(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with faced(tmp_path) as face, browser(face) as own:
        link = face.links.new()
        async with own.get(link, headers=headers, allow_redirects=False) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (403, False)
        async with own.get(link, allow_redirects=False) as reply:
            assert reply.status == 303, "it is not spent by that"
        async with own.get("/v1/shared/runs", headers=headers) as reply:
            assert reply.status == 403


async def test_a_wrong_token_is_not_mended_by_a_cookie(tmp_path: Path) -> None:
    async with faced(tmp_path) as face, browser(face) as own:
        await signed_in(face, own)
        for path in ("/v1/shared/runs", "/v1/console"):
            async with own.get(path, headers={"authorization": "Bearer x"}) as reply:
                assert reply.status == 401


# ── the document ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_route_is_in_the_document_and_every_answer_is_as_it_says(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1") as face, face.events() as events:
        _, document = await face.get("/v1/shared/openapi.json")
        operations = {(path, method) for path, each in document["paths"].items() for method in each}
        assert {(f"/v1/shared/runs/{{run}}/{act}", "post") for act in ACTS} <= operations
        names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
        assert len(names) == len(set(names)) == len(operations)
        refs = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
        assert refs <= document["components"]["schemas"].keys()

        def fits(schema: Any, value: Any) -> None:
            checks: Any = Draft202012Validator({**schema, "components": document["components"]})
            checks.validate(value)

        def answered(path: str, method: str, status: int, value: Any) -> None:
            reply = document["paths"][path][method]["responses"][str(status)]
            fits(reply["content"]["application/json"]["schema"], value)

        run = (await face.start())["id"]
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]
        shown = await face.act(run, "approve", draft=draft["id"], text="in my words", by="ann")
        answered("/v1/shared/runs/{run}/approve", "post", 200, shown)
        await events.until(SessionState.COMPLETED)
        for path in (each for each, method in operations if method == "get" and "enter" not in each):
            if path != "/v1/shared/events":
                status, value = await face.get(path.replace("{run}", run))
                answered(path, "get", status, value)
        for path in (each for each, method in operations if method == "post"):
            status, value = await face.post(path.replace("{run}", run), {"no": "such field"})
            answered(path, "post", status, value)
        kinds = {
            each["properties"]["event"]["const"]: each["properties"]["data"]["contentSchema"]
            for each in document["paths"]["/v1/shared/events"]["get"]["responses"]["200"]["content"][
                "text/event-stream"
            ]["schema"]["oneOf"]
        }
        async with face.events() as again:
            while (event := await again.anything()).kind != "ready":
                fits(kinds[event.kind], event.record)


# ── what never leaves ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_secret_of_the_device_is_in_any_byte_of_the_api_in_any_form(tmp_path: Path) -> None:
    """S1: raw, hexadecimal and base64, of everything that the device holds and of everything on the wire."""
    async with (
        Tap() as tap,
        faced(tmp_path, "talk", "2", mode="semi_auto", url=tap.before) as face,
        face.events() as events,
    ):
        sides = face.sides
        run = (await face.start())["id"]
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]["id"]
        await face.act(run, "reject", draft=draft, reason="no")
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]["id"]
        await face.act(run, "approve", draft=draft, text="in my words")
        await events.until(SessionState.PROCESSING_REMOTE)
        secrets = await sides.ours.do(_secrets, face)
        await face.act(run, "stop")
        _, document = await face.get("/v1/shared/openapi.json")
        for path, operations in document["paths"].items():
            for method in operations:
                if path not in ("/v1/shared/events", "/v1/console/links"):
                    where = path.replace("{run}", run)
                    await (face.get(where) if method == "get" else face.post(where, {"entry": f"{run}.e1"}))
        async with face.events() as again:
            while (await again.anything()).kind != "ready":
                pass
    everything = b"\n".join(face.got)
    assert b"in my words" in everything
    assert len(secrets) > 20
    assert len(tap.put) >= 2
    for secret in (*secrets, *(put[-48:] for put in tap.put)):
        for form in _forms(secret):
            assert form not in everything, form


def _secrets(face: Face) -> list[bytes]:
    """Return what both devices hold: keys, pickles, tokens, sessions, everything sealed, every stored value."""
    secret_values = [face.token.encode()]
    for each in (face.sides.anna, face.sides.bob):
        state, card = each.device.state, each.device.card
        secret_values += [each.device._pair.seed, state.keys.digest(b"x")]  # pyright: ignore[reportPrivateUsage]
        secret_values += [(state.fact("account", str) or "").encode(), card.key.encode(), card.olm.encode()]
        secret_values += [card.signature.encode(), face.sides.host.runs[0].session.encode()]
        for table, column in (("facts", "value"), ("sessions", "content"), ("outbox", "sealed"), ("peers", "content")):
            rows = state.rows(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
            secret_values += [bytes(value) for (value,) in rows]
    return [each[:48] for each in secret_values if len(each) >= 16]


def _forms(secret: bytes) -> list[bytes]:
    """Return a secret as it may stand in a response; of base64, the part that does not depend on what is around it."""
    forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret)[4:-4]
        forms += [encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")]
    return forms
