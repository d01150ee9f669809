"""The local API: runs and entries in pages, search, what is unread, and what is used of the limits."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from faces import Face, faced
from remit.policy.budget import Window
from remit.protocol.card import Rate
from remit_redaction.pipeline import detector_pipeline
from remit_relay.local_api.endpoints import RunQuery, find_runs
from remit_relay.local_api.views import MOST_SHOWN, Surroundings, entries_of, view
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import Profile, ProfileActivity
from remit_relay.session.repository import ReadMarks
from remit_relay.session.run import CredentialFilter, Overlay, RejectedDraft, TimelineEntry

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


def a_run(name: str = "r", *texts: str, **more: Any) -> Overlay:
    timeline = tuple(
        TimelineEntry(role="remote_agent", text=text, turn=1, at_ms=number, number=number)
        for number, text in enumerate(texts, 1)
    )
    fields: dict[str, Any] = {"profile": "p", "device": "d", "objective": "o", "entries": len(texts)}
    return Overlay(id=name, session="s", timeline=timeline, **fields | more)


async def ended(face: Face, *objectives: str) -> list[str]:
    """Start runs one after the other, and return their ids once they have ended."""
    run_ids: list[str] = []
    for objective in objectives:
        await face.start(objective)
        run = face.sides.host.runs[-1]
        await face.sides.until(run, SessionState.COMPLETED)
        run_ids.append(run.id)
    return run_ids


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_runs_come_in_pages_and_can_be_searched(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1", mode="full_auto") as face:
        one, two, three = await ended(face, "review the API", "count the costs", "review the docs")
        bob = face.sides.bob.device.id

        async def listed(query: str) -> tuple[list[str], str | None]:
            status, page = await face.get(f"/v1/shared/runs{query}")
            assert status == 200, page
            return [each["id"] for each in page["runs"]], page["next"]

        assert await listed("") == ([three, two, one], None)
        assert await listed("?limit=2") == ([three, two], two)
        assert await listed(f"?limit=2&before={two}") == ([one], None)
        assert await listed("?q=REVIEW") == ([three, one], None)
        assert await listed("?q=REVIEW&limit=1") == ([three], three)
        assert await listed("?q=turn%201:%20count") == ([two], None)
        assert await listed("?q=nowhere") == ([], None)
        assert await listed(f"?profile=mine&device={bob}&state=completed,stopped") == ([three, two, one], None)
        assert await listed("?profile=other") == ([], None)
        assert await listed("?state=paused") == ([], None)
        for query, says in (
            ("limit=0", "from 1 to 1000"),
            ("limit=many", "is not a number"),
            ("limit=1&limit=2", "more than once"),
            ("before=nobody", "no run 'nobody'"),
            ("state=completd", "completed"),
            ("stat=completed", "did you mean"),
            (f"q={'x' * 300}", "is longer than"),
        ):
            status, shown = await face.get(f"/v1/shared/runs?{query}")
            assert (status, shown["fault"]["code"]) == (400, "MALFORMED_ENVELOPE"), query
            assert says in str(shown["fault"]["problems"]), shown


async def test_a_search_finds_nothing_that_is_not_displayed() -> None:
    shown = CredentialFilter(detector_pipeline()).run
    run = a_run("r", f"the key is {KEY}", f"the {KEY[:8]} one")
    for text, is_found in (("the key is", True), (KEY.lower(), False), (KEY[:12].lower(), False)):
        runs, _ = await find_runs([run], RunQuery(q=text), shown)
        assert bool(runs) == is_found, text


async def test_the_entries_of_a_run_come_in_pages_with_its_rejected_drafts(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "2", mode="full_auto") as face:
        (run,) = await ended(face, "review the API")
        path = f"/v1/shared/runs/{run}/entries"
        _, page = await face.get(f"{path}?limit=3")
        assert [each["id"] for each in page["entries"]] == [f"{run}.e{number}" for number in (2, 3, 4)]
        assert page["next"] == f"{run}.e2"
        _, page = await face.get(f"{path}?limit=3&before={page['next']}")
        assert ([each["id"] for each in page["entries"]], page["next"]) == ([f"{run}.e1"], None)
        for query in ("before=1", f"before={run}.e9", "before=other.e1", "limit=1001", "after=1"):
            assert (await face.get(f"{path}?{query}"))[0] == 400, query
        assert (await face.get("/v1/shared/runs/none/entries"))[0] == 404


def test_the_view_of_a_long_run_has_its_newest_entries() -> None:
    run = a_run("r", *map(str, range(300)))
    draft = RejectedDraft(number=301, id="r.p1", text="no", turn=1, at_ms=1)
    run = replace(run, rejected=(draft,), entries=301)
    shown = view(run, Surroundings(now_ms=0))
    assert (shown.earlier, len(shown.timeline), len(shown.rejected)) == (301 - MOST_SHOWN, MOST_SHOWN - 1, 1)
    assert shown.timeline[-1].text == "299"
    earlier, left = entries_of(run, 50, 103)
    assert ([earlier[0].text, earlier[-1].text], left) == (["52", "101"], 52)


# ── unread ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_unread_is_counted_until_it_is_read_and_kept_over_a_restart(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "2", mode="full_auto") as face:
        one, two = await ended(face, "review the API", "count the costs")
        bob = face.sides.bob.device.id
        assert await face.get("/v1/shared/unread") == (
            200,
            {"total": 8, "devices": {bob: 8}, "runs": {one: 4, two: 4}},
        )
        before = len(face.sides.noted)
        status, shown = await face.post(f"/v1/shared/runs/{one}/read", {"entry": f"{one}.e3"})
        assert (status, shown["unread"]) == (200, 1)
        # A mark does not go back.
        assert (await face.post(f"/v1/shared/runs/{one}/read", {"entry": f"{one}.e1"}))[1]["unread"] == 1
        _, page = await face.get("/v1/shared/runs")
        assert [(each["id"], each["unread"]) for each in page["runs"]] == [(two, 4), (one, 1)]
        assert (await face.get("/v1/shared/unread"))[1]["total"] == 5
        assert len(face.sides.noted) == before
        marks = ReadMarks(face.sides.anna.device.state)
        marks.load()
        assert [marks.unread(each) for each in face.sides.host.runs] == [1, 4]


async def test_what_a_person_released_is_not_unread(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1") as face, face.events() as events:
        run = (await face.start())["id"]
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]
        await face.act(run, "approve", draft=draft["id"])
        assert (await events.until(SessionState.COMPLETED)).record["unread"] == 1


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_says_what_is_used_of_each_limit(tmp_path: Path) -> None:
    holding = asyncio.Event()

    async def answer(_: Any) -> str:
        await holding.wait()
        return "done"

    async with faced(tmp_path, "talk", "2", mode="full_auto", answer=answer) as face, face.events() as events:
        await face.start("the first")
        await events.until(SessionState.WAITING_REMOTE)
        run = (await face.start("the second"))["id"]
        await face.sides.until(face.sides.host.runs[1], SessionState.WAITING_REMOTE)
        _, shown = await face.get(f"/v1/shared/runs/{run}")
        limits = shown["limits"]
        assert limits["turns"] == {"used": 1, "most": 8}
        assert limits["failures"] == {"used": 0, "most": 3}
        assert limits["calls"] == {"used": 2, "most": 3}
        assert (limits["tokens"]["used"], limits["tokens"]["most"]) == (shown["tokens"], None)
        assert limits["active_ms"]["most"] == 600_000
        rate = limits["rate"]
        assert (rate["used"], rate["most"], rate["window_ms"], rate["ends_ms"] > 0) == (2, 30, 60_000, True)
        holding.set()
        await face.sides.until(face.sides.host.runs[1], SessionState.COMPLETED)


def test_a_window_that_is_over_counts_nothing() -> None:
    profile = Profile(id="p", rate=Rate(calls=2, seconds=1))
    for now_ms, used, ends_ms in ((10_500, 2, 11_000), (11_500, 0, None)):
        around = Surroundings(now_ms=now_ms, profile=profile, activity=ProfileActivity(window=Window(10.0, 2)))
        limits = view(a_run(), around).limits
        assert limits is not None
        assert (limits.rate.used, limits.rate.ends_ms) == (used, ends_ms)
