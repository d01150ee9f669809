"""Faces on the same machine: what they see of runs with shared agents, what they can do, and who is let in."""

import asyncio
import base64
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from faces import Face, faced
from recorded import recorded, steps
from remit import Brief
from remit.protocol.errors import Code, RemitError
from remit_relay.e2e.channel import Opened
from remit_relay.local_api import changes as changes_module
from remit_relay.local_api.run_commands import ACTS
from remit_relay.local_api.serving import MOST_BODY, Changes, check_local, serve_shared
from remit_relay.local_api.views import SharedRunView, Surroundings, line, view
from remit_relay.messages.types import AgentOffer, OffersMessage, store_offers
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay, PendingDraft
from two_sides import REQUESTER, Sides, Tap, two_sides
from waiting import no_longer

# ── what a face sees and does ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_face_follows_a_run_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1") as face, face.events() as events:
        ready = await events.next()
        assert (ready.kind, ready.record) == ("ready", {"resumed": False})
        run = await face.start()
        assert (run["state"], run["mode"], run["turn"], run["max_turns"]) == ("planning", "manual", 0, 8)
        record = (await events.until(SessionState.READY_TO_SEND)).record
        assert record["draft"]["text"] == "turn 1: review this API"
        assert [each["rule"] for each in record["draft"]["reviews"]] == ["manual", "first_contact"]
        assert {"approve", "reject", "pause", "stop", "take_over"} <= set(record["acts"])
        assert not {"say", "hand_back", "resume"} & set(record["acts"])
        await face.act(run["id"], "approve", draft=record["draft"]["id"], text="in my words")
        ended = (await events.until(SessionState.COMPLETED)).record
        assert [(each["role"], each["text"], each["label"]) for each in ended["timeline"]] == [
            ("local_agent", "in my words", "edited"),
            ("remote_agent", "heard: in my words", None),
        ]
        assert (ended["ended"], ended["acts"], ended["result"]) == ("done", [], "turn 2: review this API")
        assert await face.get(f"/v1/shared/runs/{run['id']}") == (200, ended)
        status, listed = await face.get("/v1/shared/runs")
        assert (status, [each["id"] for each in listed["runs"]]) == (200, [run["id"]])
        assert listed["runs"][0]["waits"] is False


async def test_who_a_face_says_it_speaks_for_is_on_record(tmp_path: Path) -> None:
    """S13."""
    async with faced(tmp_path, "talk", "1") as face:
        run = (await face.start(by="ann"))["id"]
        (begun,) = face.sides.host.runs
        draft = (await face.sides.until(begun, SessionState.READY_TO_SEND)).pending
        assert draft is not None
        await face.act(run, "approve", draft=draft.id, text="in other words", by="bea")
        await face.act(run, "stop")
        status, shown = await face.post(f"/v1/shared/runs/{run}/stop", {"by": "x" * 257})
        assert (status, shown["fault"]["code"]) == (400, "MALFORMED_ENVELOPE")
        shared_steps = steps(await recorded(face.sides.anna, tmp_path / "hub.db"))
    assert [(each.event, each.label, each.by, each.via) for each in shared_steps if each.via] == [
        ("Start", "", "ann", "api"),
        ("Approve", "edited", "bea", "api"),
        ("Stop", "", "api", "api"),
    ]


async def test_each_entry_says_who_wrote_edited_approved_and_rejected_it_and_by_which_rule(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "9") as face, face.events() as events:
        run = (await face.start(by="ann"))["id"]
        drafts: list[Any] = []
        for act, fields in (
            ("reject", {"reason": "too short", "by": "bea"}),
            ("approve", {"text": "in my words", "by": "ann"}),
            ("approve", {"by": "carl"}),
        ):
            drafts.append(
                (await events.until(SessionState.READY_TO_SEND, drafts[-1] if drafts else "")).record["draft"]
            )
            await face.act(run, act, draft=drafts[-1]["id"], **fields)
        await events.until(SessionState.READY_TO_SEND, drafts[-1])
        await face.act(run, "take_over", by="ann")
        shown = await face.act(run, "say", text="and me", by="ann")
    ann, bea, carl = ({"role": "user", "name": name, "via": "api"} for name in ("ann", "bea", "carl"))
    mine, other = (
        {"role": f"{side}_agent", "name": name, "via": ""} for side, name in (("local", "mine"), ("remote", ""))
    )
    keys = ("label", "written_by", "edited_by", "approved_by", "rejected_by")
    entries = sorted((*shown["timeline"], *shown["rejected"]), key=lambda each: int(each["id"].rpartition(".e")[2]))
    assert [each["id"] for each in entries] == [f"{run}.e{number}" for number in range(1, 7)]
    assert [tuple(each[key] for key in keys) for each in entries] == [
        ("rejected", mine, None, None, bea),
        ("edited", mine, ann, ann, None),
        (None, other, None, None, None),
        ("approved", mine, None, carl, None),
        (None, other, None, None, None),
        ("yours", ann, None, None, None),
    ]
    first, edited = entries[:2]
    assert (first["reason"], first["text"], first["turn"]) == ("too short", drafts[0]["text"], 1)
    assert (edited["original"], edited["text"]) == (drafts[1]["text"], "in my words")
    assert [rule["rule"] for rule in edited["reviews"]] == ["manual", "first_contact"]


async def test_profiles_and_devices_are_listed_without_their_keys(tmp_path: Path) -> None:
    async with faced(tmp_path) as face:
        bob = face.sides.bob.device
        status, profiles = await face.get("/v1/shared/profiles")
        assert status == 200
        (mine,) = profiles["profiles"]
        assert (mine["id"], mine["allowed"], mine["devices"], mine["mode"]) == ("mine", True, [bob.id], "manual")
        assert await face.get("/v1/shared/devices") == (
            200,
            {
                "devices": [
                    {
                        "id": bob.id,
                        "name": "bob",
                        "verified": False,
                        "shared": False,
                        "offers": None,
                        "allowed": True,
                        "revoked": False,
                        "revoked_there": False,
                        "groups": [],
                        "own": False,
                        "present": None,
                        "last_heard_ms": None,
                    }
                ]
            },
        )


async def test_what_a_device_shares_is_listed_and_which_agent_is_meant_is_said(tmp_path: Path) -> None:
    async with faced(tmp_path) as face:
        offer = (AgentOffer(name="expert", description="Knows the API."), AgentOffer(name="helper"))
        offers_message = OffersMessage(agents=offer)
        opened = Opened(id=0, sender=face.sides.bob.device.id, message="", requester="", body=b"")
        await face.sides.ours.do(store_offers, face.sides.anna, opened, offers_message)
        _, listed = await face.get("/v1/shared/devices")
        (bob,) = listed["devices"]
        assert (bob["shared"], bob["offers"]) == (
            True,
            [{"name": "expert", "description": "Knows the API."}, {"name": "helper", "description": ""}],
        )
        body = {"profile": "mine", "device": bob["id"], "objective": "x"}
        status, shown = await face.post("/v1/shared/runs", body)
        assert (status, shown["fault"]["code"]) == (400, "INPUT_VALIDATION_FAILED")
        assert "expert, helper" in shown["fault"]["message"]
        status, shown = await face.post("/v1/shared/runs", body | {"agent": "nobody"})
        assert (status, shown["fault"]["code"]) == (404, "AGENT_NOT_FOUND")
        run = await face.start(agent="helper")
        assert run["agent"] == "helper"
        _, runs = await face.get("/v1/shared/runs")
        assert [each["agent"] for each in runs["runs"]] == ["helper"]


async def test_a_person_can_do_everything_with_a_run(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "9") as face, face.events() as events:
        run = (await face.start())["id"]
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]["id"]
        await face.act(run, "reject", draft=draft, reason="too short")
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]["id"]
        assert "too short" in json.dumps(face.sides.requests[-1])
        assert (await face.act(run, "pause"))["state"] == "paused"
        assert (await face.act(run, "resume"))["draft"]["id"] == draft
        assert (await face.act(run, "set_mode", mode="semi_auto"))["mode"] == "semi_auto"
        assert (await face.act(run, "set_objective", objective="look at the costs"))["objective"] == "look at the costs"
        taken = await face.act(run, "take_over")
        assert (taken["decides"], taken["draft"]) == ("person", None)
        assert "say" in taken["acts"]
        await face.act(run, "say", text="hello from me")
        answered = (await events.until(SessionState.PROCESSING_REMOTE)).record
        assert [each["label"] for each in answered["timeline"]] == ["yours", None]
        await face.act(run, "hand_back")
        assert (await face.act(run, "stop"))["ended"] == "user"
        assert {"pause", "resume"} <= set(ACTS)


async def test_a_person_can_chat_with_a_shared_agent_alone_and_have_the_own_agent_join(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "3") as face, face.events() as events:
        body = {"profile": "mine", "device": face.sides.bob.device.id, "decides": "person"}
        status, run = await face.post("/v1/shared/runs", body)
        assert (status, run["objective"], run["decides"], run["state"]) == (201, "", "person", "planning")
        assert "say" in run["acts"]
        assert "hand_back" not in run["acts"]
        await face.act(run["id"], "say", text="hello")
        shown = (await events.until(SessionState.PROCESSING_REMOTE)).record
        assert [(each["role"], each["text"]) for each in shown["timeline"]] == [
            ("user", "hello"),
            ("remote_agent", "heard: hello"),
        ]
        assert (shown["limits"]["turns"]["used"], shown["turn"], shown["is_active"]) == (0, 1, False)
        assert face.sides.requests == []
        shown = await face.act(run["id"], "set_objective", objective="review this API")
        assert "hand_back" in shown["acts"]
        await face.act(run["id"], "hand_back")
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]
        assert draft["text"] == "turn 2: review this API"
        (request,) = face.sides.requests
        assert request["remote_message"] == "heard: hello"


async def test_what_cannot_be_done_is_refused_with_the_field_or_the_reason(tmp_path: Path) -> None:
    async with faced(tmp_path) as face:
        run = (await face.start())["id"]
        bob = face.sides.bob.device.id
        for path, body, status, says in (
            ("/v1/shared/runs", {"profile": "mine", "device": bob}, 400, "objective"),
            ("/v1/shared/runs", {"profile": "no", "device": bob, "objective": "x"}, 404, "profile `no` not found"),
            ("/v1/shared/runs", {"profile": "mine", "device": "x", "objective": "x"}, 403, "the device x"),
            ("/v1/shared/runs", {"profile": "mine", "device": bob, "objective": "x", "hop_count": 0}, 400, "hop_count"),
            (f"/v1/shared/runs/{run}/resume", None, 409, "Resume is not possible while"),
            (f"/v1/shared/runs/{run}/approve", {"draft": "another"}, 409, "Approve is not possible|the draft"),
            (f"/v1/shared/runs/{run}/say", {}, 400, "text"),
            (f"/v1/shared/runs/{run}/say", {"text": 1}, 400, "text"),
            (f"/v1/shared/runs/{run}/arrived", {"text": "x"}, 404, "take_over"),
            ("/v1/shared/runs/none/pause", None, 404, "run `none` not found on this device"),
            ("/v1/shared/runs/none/read", {"entry": "none.e1"}, 404, "run `none` not found on this device"),
            (f"/v1/shared/runs/{run}/read", {"entry": f"{run}.e1"}, 400, "is not the id of an entry of this run"),
        ):
            got, shown = await face.post(path, body)
            assert (got, bool(re.search(says, json.dumps(shown)))) == (status, True), (path, shown)
        assert (await face.get("/v1/shared/runs/none"))[0] == 404
        assert (await face.get("/v1/shared/events?run=none"))[0] == 404
        assert (await face.get("/v1/shared/events?run=a&run=b"))[0] == 400
        assert (await face.get("/v1/elsewhere"))[0] == 404
        status, shown = await face.post(f"/v1/shared/runs/{run}/say", {"text": "x" * MOST_BODY})
        assert (status, shown["fault"]["code"]) == (413, "TOO_LARGE")


# ── reading along ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_each_run_the_newest_state_is_kept_in_the_order_of_the_changes() -> None:
    changes = Changes()
    one, other = (Overlay(id=name, profile="p", device="d", session="s", objective="o") for name in ("one", "other"))
    later = replace(one, turn=1)
    for run in (one, other, later):
        changes.changed(run)
    assert changes.since(0) == [(2, "run", other), (3, "run", later)]
    assert changes.since(2) == [(3, "run", later)]
    assert changes.since(3) == []
    assert [changes.number_of(changes.mark(number)) for number in (0, 3, 4)] == [0, 3, None]
    assert Changes().number_of(changes.mark(3)) is None


async def test_who_comes_back_is_told_of_what_changed_meanwhile_and_of_nothing_else(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1") as face:
        quiet, other = await face.start("stay as you are"), await face.start("go on")
        await face.sides.until(face.sides.host.runs[0], SessionState.READY_TO_SEND)
        run = await face.sides.until(face.sides.host.runs[1], SessionState.READY_TO_SEND)
        async with face.events() as events:
            seen = [await events.next() for _ in range(3)]
        assert [each.record.get("id") for each in seen] == [quiet["id"], other["id"], None]
        assert [bool(each.number) for each in seen] == [False, False, True]
        last = seen[-1].number
        assert last
        assert run.pending is not None
        await face.act(run.id, "approve", draft=run.pending.id)
        await face.sides.until(run, SessionState.COMPLETED)
        async with face.events(**{"last-event-id": last}) as events:
            changed, ready = await events.next(), await events.next()
            assert (changed.record["id"], changed.record["state"]) == (other["id"], "completed")
            assert (ready.record, ready.number) == ({"resumed": True}, face.changes.mark(face.changes.number))
        # A number of another process means nothing here: all that goes on is told anew.
        for stale in ("00000000-1", "1", "x" * 400):
            async with face.events(**{"last-event-id": stale}) as events:
                change, ready = await events.next(), await events.next()
                assert (change.record["id"], ready.record) == (quiet["id"], {"resumed": False})
        async with face.events(f"/v1/shared/events?run={other['id']}") as events:
            assert (await events.next()).record["id"] == other["id"]
            assert (await events.next()).kind == "ready"


async def test_a_reader_hears_numbers_that_grow_and_may_skip_states_but_never_the_last(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "3", mode="full_auto") as face, face.events() as events:
        await events.next()
        await face.start()
        received = [await events.next()]
        while received[-1].record["state"] != "completed":
            received.append(await events.next())
        numbers = [int((each.number or "").rpartition("-")[2]) for each in received]
        assert numbers == sorted(set(numbers))
        assert len(received[-1].record["timeline"]) == 6


async def test_readers_are_let_go_when_they_leave_and_when_the_service_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "KEEP_ALIVE_S", 0.01)
    changes, token = Changes(), tmp_path / "shared.token"
    async with two_sides(tmp_path, changed=changes.changed) as sides, AsyncExitStack() as serving:
        address = await serving.enter_async_context(serve_shared(sides.host, changes, token=token))
        face = Face(sides, changes, address, token)
        async with face.session.head("/v1/shared/events") as reply:
            assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        async with face.events() as events:
            await events.next()
            assert face.changes.is_read.is_set()
        await no_longer(face.changes.is_read.is_set)
        async with face.events() as events:
            await events.next()
            await events.sign_of_life()
            ending = asyncio.create_task(events.ended())
            await serving.aclose()
            assert await ending
        await face.session.close()


# ── who is let in ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_only_who_knows_the_token_is_let_in_and_its_file_is_for_its_owner(tmp_path: Path) -> None:
    async with faced(tmp_path) as face, ClientSession(face.address) as stranger:
        assert face.token_file.stat().st_mode & 0o777 == 0o600
        for authorization in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {face.token}"}):
            for path in ("/v1/shared/runs", "/v1/shared/events", "/v1/shared/devices", "/nowhere"):
                async with stranger.get(path, headers=authorization) as reply:
                    assert reply.status == 401
                    assert face.token not in await reply.text()
        async with stranger.post("/v1/shared/runs", json={}) as reply:
            assert reply.status == 401
        async with stranger.get(f"/v1/shared/runs?token={face.token}") as reply:
            assert reply.status == 401


async def test_a_page_in_a_browser_is_not_let_in_even_with_the_token(tmp_path: Path) -> None:
    """No DNS rebinding, no other origin."""
    async with faced(tmp_path) as face:
        port = face.address.rpartition(":")[2]
        for headers in (
            {"host": f"evil.example:{port}"},
            {"host": "127.0.0.1"},
            {"host": "127.0.0.1:1"},
            {"host": f"127.0.0.1:{port}.evil.example"},
            {"host": f"0.0.0.0:{port}"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": f"https://127.0.0.1:{port}"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            status, shown = await face.get("/v1/shared/runs", **headers)
            assert (status, shown["fault"]["code"]) == (403, "PERMISSION_DENIED"), headers
        for headers in ({"host": f"localhost:{port}"}, {"origin": face.address}, {"sec-fetch-site": "same-origin"}):
            assert (await face.get("/v1/shared/runs", **headers))[0] == 200, headers
        async with face.session.options("/v1/shared/runs") as reply:
            assert not [name for name in reply.headers if name.lower().startswith("access-control")]


def test_a_request_that_names_no_host_is_refused() -> None:
    with pytest.raises(RemitError) as raised:
        check_local({"authorization": "Bearer t"}, port=1, token="t")
    assert raised.value.fault.code is Code.PERMISSION_DENIED
    check_local({"authorization": "Bearer t", "host": "[::1]:1"}, port=1, token="t")


async def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "shared.token"
    token.write_text("a" * 64, encoding="ascii")
    token.chmod(0o644)
    async with two_sides(tmp_path) as sides:
        with pytest.raises(RemitError, match="can be read by other users"):
            async with serve_shared(sides.host, Changes(), token=token):
                pass


# ── what never leaves ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_key_token_ciphertext_or_control_frame_is_ever_in_what_a_face_gets(tmp_path: Path) -> None:
    """S1: every byte of a full run: started, edited, failed, resumed, taken over, ended, listed, refused."""
    async with (
        Tap() as tap,
        faced(tmp_path, "silent-at", "2", mode="semi_auto", url=tap.before) as face,
        face.events() as events,
    ):
        sides = face.sides
        run = (await face.start())["id"]
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]["id"]
        await face.act(run, "approve", draft=draft, text="in my words")
        await sides.kill()
        await events.until(SessionState.ERROR)
        sealed = await sides.ours.do(_secrets, sides)
        sides.clock.by_s += 2
        await face.act(run, "resume")
        await face.act(run, "take_over")
        await face.act(run, "say", text="and now me")
        await events.until(SessionState.PROCESSING_REMOTE)
        sealed |= await sides.ours.do(_secrets, sides)
        await face.act(run, "stop")
        await events.until(SessionState.STOPPED)
        for path in ("profiles", "devices", "runs", f"runs/{run}", "nowhere", "runs/none"):
            await face.get(f"/v1/shared/{path}")
        for act in ACTS:
            await face.post(f"/v1/shared/runs/{run}/{act}", {"draft": "x", "text": "y"})
        await face.get("/v1/shared/runs", authorization=f"Bearer {face.token}x")
        session = sides.host.runs[0].session
        card = sides.bob.device.card
        requests = [each["request_id"] for each in sides.requests]
    everything = b"\n".join(face.got)
    assert b"and now me" in everything
    assert len(face.got) > 20
    hidden = {face.token, session, card.key, card.olm, card.signature, REQUESTER, *sealed}
    hidden |= {"request_id", "desktop.local_prompt", "profile_id", "session_id", "max_output_chars", "constraints"}
    hidden |= {"origin_agent_device_id", "trace_id", "hop_count", "orchestrator_profile_id", "asks", "guidance"}
    for put in tap.put:
        hidden |= {put[-60:-20].hex(), base64.b64encode(put[-60:-20]).decode()[4:-4]}
    assert len(sealed) > 4
    assert len(tap.put) >= 4
    for each in hidden:
        assert each.encode() not in everything, each
    # A draft is named as its prompt is; of the prompt itself nothing is shown.
    assert requests


def _secrets(sides: Sides) -> set[str]:
    """Return what a device holds and shows nobody, as it would stand in JSON: keys, pickles, what is sealed."""
    secret_texts: set[str] = set()
    for each in (sides.anna, sides.bob):
        state = each.device.state
        secret_texts |= {each.device._pair.seed.hex(), state.fact("account", str) or ""}  # pyright: ignore[reportPrivateUsage]
        secret_texts |= {state.keys.digest(b"x").hex()}
        for (blob,) in state.rows("SELECT content FROM sessions WHERE content IS NOT NULL"):
            secret_texts.add(bytes(blob).hex())
        for (blob,) in state.rows("SELECT sealed FROM outbox"):
            secret_texts |= {bytes(blob).hex()}
    return {text[:40] for text in secret_texts if text}


def test_the_view_of_a_run_has_no_field_of_its_machinery() -> None:
    """What a run comes to hold is not shown unless somebody says so."""
    machinery = {"session", "prompt", "prompts", "sending", "since_ms", "back", "guidance", "pending"}
    machinery |= {"recorded_failure", "entries", "unsent", "typed_before"}
    assert set(Overlay.__struct_fields__) - set(SharedRunView.__struct_fields__) == machinery
    run = Overlay(id="r", profile="p", device="d", session="secret", objective="o", active_ms=5, since_ms=10)
    shown = view(run, Surroundings(now_ms=25))
    assert (shown.active_ms, shown.is_active) == (20, True)


def test_a_draft_with_which_its_agent_is_done_waits_for_nobody() -> None:
    run = Overlay(id="r", profile="p", device="d", session="s", objective="o", state=SessionState.PAUSED)
    waiting = replace(run, pending=PendingDraft(id="r.p1", text="Shall I?"))
    done = replace(run, pending=PendingDraft(id="r.p1", text="It is done.", done=True))
    assert [
        (line(each).waits, view(each, Surroundings(now_ms=0)).draft is not None) for each in (run, waiting, done)
    ] == [
        (False, False),
        (True, True),
        (False, False),
    ]


async def test_the_service_answers_many_at_once(tmp_path: Path) -> None:
    """A face that reads slowly, or not at all, keeps nobody else from theirs."""

    async def answer(brief: Brief) -> str:
        return "x" * 50_000

    async with (
        faced(tmp_path, "talk", "3", mode="full_auto", answer=answer) as face,
        face.session.get("/v1/shared/events") as idle,
        face.events() as events,
    ):
        assert idle.status == 200
        await face.start()
        assert len((await events.until(SessionState.COMPLETED)).record["timeline"]) == 6
