"""Files with the messages of a run: sealed, checked where they leave and where they arrive, kept, and deleted."""

import asyncio
import base64
import io
import stat
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from recorded import recorded, steps
from remit import Answer, Brief
from remit.protocol.envelope import Artifact
from remit.protocol.errors import Code, RemitError
from remit.protocol.files import File
from remit.protocol.submission import Submission
from remit_relay.commands.shared.client import DeviceClient
from remit_relay.commands.shared.commands import OnFile, Tell, understood
from remit_relay.commands.shared.conversation import work_on_file
from remit_relay.e2e.inbox import Opened
from remit_relay.local_api.serving import Changes, serve_shared
from remit_relay.local_api.views import Surroundings, view
from remit_relay.messages.questions import answered, files_in, submission
from remit_relay.messages.types import AgentOffer, AnswerMessage, DeclineMessage, QuestionMessage
from remit_relay.run_files import store_contents
from remit_relay.serve_shared import FOLDER
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import AttachedFile, ControlEnvelope, FileRules
from remit_relay.session.run import Overlay, Person
from remit_relay.team.device_process import DeviceProcess
from remit_server.console.hosts import TOKEN_FILE
from samples import a_response
from two_sides import Sides, Stranger, Tap, stranger, two_sides
from waiting import eventually

RULES = FileRules(types=("text/*", "image/png"), max_size=6_000_000, max_count=2)
SECRET = "the blue heron nests in march"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


class Reader:
    """Bob's agent, which reads the files that it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.modes: list[int] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, brief: Brief) -> str:
        await self.go.wait()
        brief_input: Any = brief.input  # pyright: ignore[reportUnknownMemberType]
        given = cast("dict[str, Any]", brief_input if isinstance(brief_input, dict) else {})
        self.given.append(given)
        texts: list[str] = []
        for each in given.get("attachments", ()):
            path = Path(each["path"])
            self.modes += [stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)]
            texts.append(path.read_bytes().decode(errors="replace")[:100])
        return " | ".join([f"heard: {given.get('message', brief.text)}", *texts])


async def drafted(sides: Sides, **more: Any) -> Overlay:
    return await sides.until(await sides.start(**more), SessionState.READY_TO_SEND, when=lambda run: run.waits)


async def approved(sides: Sides, run: Overlay) -> Overlay:
    assert run.pending is not None
    return await sides.host.act(run.id, moves.Approve(run.pending.id))


def stored(sides: Sides) -> int:
    return sides.anna.device.state.rows("SELECT count(*) FROM facts WHERE name >= 'file/' AND name < 'file0'")[0][0]


async def test_an_approved_draft_carries_the_attached_files(tmp_path: Path) -> None:
    reader = Reader()
    async with (
        Tap() as tap,
        two_sides(tmp_path, answer=reader, shared={"files": RULES}, files=RULES, url=tap.before) as sides,
    ):
        run = await drafted(sides)
        await sides.host.files.attach(run.id, "notes.txt", SECRET.encode())
        run = await sides.host.files.attach(run.id, "a.png", PNG)
        assert [(each.name, each.media_type, each.size) for each in run.attached] == [
            ("notes.txt", "text/plain", len(SECRET)),
            ("a.png", "image/png", len(PNG)),
        ]
        await approved(sides, run)
        run = await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.turn == 1 and now.waits)
        sent, reply = run.timeline
        assert [each.name for each in sent.files] == ["notes.txt", "a.png"]
        assert run.attached == ()
        assert SECRET in reply.text
        (given,) = [each for each in reader.given if each]
        assert [(each["name"], each["media_type"], each["size"]) for each in given["attachments"]] == [
            ("notes.txt", "text/plain", len(SECRET)),
            ("a.png", "image/png", len(PNG)),
        ]
        assert set(reader.modes) == {0o600, 0o700}, "readable by their owner only"
        assert not list((tmp_path / FOLDER).glob("*")), "gone once the agent has answered"
        assert not any(SECRET.encode() in each for each in tap.seen), "sealed"
        history = str(sides.requests[-1]["history"])
        assert "notes.txt (text/plain, 29 bytes)" in history, "the local agent knows of it"
        assert (await sides.host.files.content(run.id, sent.files[0].id))[1] == SECRET.encode()
    for side in ("anna", "bob"):
        for each in tmp_path.glob(f"{side}*"):
            assert SECRET.encode() not in each.read_bytes(), "encrypted at rest"
    for device, event in ((sides.anna, "Approve"), (sides.bob, "asked")):
        (step,) = [each for each in steps(await recorded(device, tmp_path / f"{event}.db")) if each.event == event]
        assert [(each.media_type, each.size) for each in step.files] == [
            ("text/plain", len(SECRET)),
            ("image/png", len(PNG)),
        ]
        assert "notes" not in str(step)
        assert SECRET not in str(step)


async def test_what_a_person_types_carries_the_attached_files(tmp_path: Path) -> None:
    reader = Reader()
    async with two_sides(tmp_path, answer=reader, shared={"files": RULES}, files=RULES) as sides:
        run = await drafted(sides)
        await sides.host.act(run.id, moves.TakeOver())
        await sides.host.files.attach(run.id, "notes.txt", b"first")
        await sides.host.files.detach(run.id, "notes.txt")
        assert stored(sides) == 0
        await sides.host.files.attach(run.id, "notes.txt", b"second")
        await sides.host.act(run.id, moves.Say("look at this"))
        run = await sides.until(run, SessionState.PROCESSING_REMOTE)
        assert run.timeline[-1].text == "heard: look at this | second"


@pytest.mark.parametrize(
    ("ours", "theirs", "code", "says"),
    [
        (FileRules(), RULES, Code.PERMISSION_DENIED, "the profile mine allows no attachments"),
        (RULES, None, Code.PERMISSION_DENIED, "the shared agent helper allows no attachments"),
        (replace(RULES, max_size=3), RULES, Code.TOO_LARGE, "the profile mine allows at most 3"),
        (RULES, replace(RULES, max_size=3), Code.TOO_LARGE, "the shared agent helper allows at most 3"),
        (RULES, replace(RULES, types=("image/*",)), Code.PERMISSION_DENIED, "the shared agent helper allows image/*"),
    ],
)
async def test_a_file_that_either_side_does_not_allow_is_refused_before_anything_is_sent(
    tmp_path: Path, ours: FileRules, theirs: FileRules | None, code: Code, says: str
) -> None:
    async with two_sides(tmp_path, files=ours) as sides:
        row, _ = sides.anna.peers.row(sides.bob.device.id)
        sides.anna.device.state.keep(f"heard/{row}", (AgentOffer(name="helper", files=theirs),))
        run = await drafted(sides)
        with pytest.raises(RemitError, match=r"the file .notes.txt. is refused") as refused:
            await sides.host.files.attach(run.id, "notes.txt", b"hello")
        assert refused.value.fault.code is code
        assert says in refused.value.fault.message
        assert sides.now(run).attached == ()
        assert stored(sides) == 0


async def test_a_question_whose_files_the_shared_agent_does_not_take_is_declined_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """The device sent no list yet, so the sender cannot know."""
    reader = Reader()
    async with two_sides(tmp_path, answer=reader, files=RULES) as sides:
        run = await drafted(sides)
        await sides.host.files.attach(run.id, "notes.txt", b"hello")
        await approved(sides, run)
        run = await sides.until(run, SessionState.ERROR)
        assert "the shared agent helper allows no attachments" in run.failure
        assert [each.name for each in run.attached] == ["notes.txt"], "to be sent once more, or removed"
        await sides.host.act(run.id, moves.Resume())
        await sides.host.files.detach(run.id, "notes.txt")
        assert stored(sides) == 1, "the message that was lost names it still"
        await approved(sides, sides.now(run))
        run = await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.waits)
        assert run.timeline[-1].role == "remote_agent"
        assert reader.given == [{}]


async def test_a_rule_that_was_narrowed_after_a_file_was_attached_holds_when_it_is_sent(tmp_path: Path) -> None:
    profiles: dict[str, Any] = {}
    async with two_sides(tmp_path, shared={"files": RULES}, files=RULES) as sides:
        run = await drafted(sides)
        await sides.host.files.attach(run.id, "notes.txt", b"hello")
        profiles = sides.host.profiles  # pyright: ignore[reportAssignmentType]
        profiles["mine"] = replace(profiles["mine"], files=FileRules())
        await approved(sides, run)
        run = await sides.until(run, SessionState.ERROR)
        assert "the profile mine allows no attachments" in run.failure
        assert [each.name for each in run.attached] == ["notes.txt"]
        assert run.turn == 0
        assert await sides.carried_out() == 0


async def test_in_semi_auto_a_message_with_files_waits_for_a_person(tmp_path: Path) -> None:
    async with two_sides(tmp_path, "silent-at", "2", shared={"files": RULES}, files=RULES, mode="full_auto") as sides:
        run = await sides.start()
        await sides.silent()
        await sides.host.act(run.id, moves.SetMode("semi_auto"))
        await sides.host.files.attach(run.id, "notes.txt", b"hello")
        await sides.host.act(run.id, moves.SetObjective("review this API again"))
        run = await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.waits)
        assert run.pending is not None
        assert [each.rule for each in run.pending.reviews] == ["attachments"]
        await approved(sides, run)
        await sides.until(run, SessionState.COMPLETED)
        (carries,) = [each for each in sides.now(run).timeline if each.files]
        assert carries.label == "approved"


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def report(brief: Brief) -> Answer:
    def artifact(name: str, data: str, media_type: str = "text/plain") -> Artifact:
        return Artifact(type="file", value={"raw": data, "mediaType": media_type, "filename": name})

    return Answer(
        f"heard: {brief.text}",
        artifacts=(
            artifact("report.txt", "aGVyb24="),
            artifact("run.sh", "aGVyb24=", "application/x-sh"),
            Artifact(type="file", value="no bytes", label="x"),
        ),
    )


async def test_an_answer_carries_files_that_both_sides_allow(tmp_path: Path) -> None:
    async with two_sides(tmp_path, answer=report, shared={"files": RULES}, files=RULES, mode="full_auto") as sides:
        run = await sides.until(await sides.start(), SessionState.COMPLETED)
        reply = run.timeline[1]
        assert [(each.name, each.refused) for each in reply.files] == [("report.txt", "")]
        assert "[Not sent: the file 'run.sh' is refused: it is application/x-sh" in reply.text
        assert (await sides.host.files.content(run.id, "report.txt"))[1] == b"heron"


async def test_a_file_of_an_answer_that_the_profile_does_not_allow_is_not_stored(tmp_path: Path) -> None:
    async with two_sides(tmp_path, answer=report, shared={"files": RULES}, mode="full_auto") as sides:
        run = await sides.until(await sides.start(), SessionState.COMPLETED)
        (refused,) = run.timeline[1].files
        assert refused.refused == "the file 'report.txt' is refused: the profile mine allows no attachments"
        assert stored(sides) == 0
        with pytest.raises(RemitError, match="allows no attachments"):
            await sides.host.files.content(run.id, "report.txt")


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def asking(anna: Stranger, name: str, *files: AttachedFile, **more: Any) -> QuestionMessage:
    control = ControlEnvelope(
        origin_agent_device_id=anna.sealer.device.id, trace_id=name, hop_count=1, orchestrator_profile_id="mine"
    )
    return QuestionMessage(id=name, session="s", text="hello", control=control, files=files, **more)


HOSTILE = {
    "a path": [AttachedFile(name="../../.ssh/authorized_keys", media_type="text/plain", data=b"key")],
    "an absolute path": [AttachedFile(name="/etc/passwd", media_type="text/plain", data=b"key")],
    "a control character": [AttachedFile(name="a\x1b[2J.txt", media_type="text/plain", data=b"key")],
    "dots": [AttachedFile(name="..", media_type="text/plain", data=b"key")],
    "too large": [AttachedFile(name="a.txt", media_type="text/plain", data=b"x" * 6_000_001)],
    "another type": [AttachedFile(name="a.txt", media_type="text/plain", data=b"\x7fELF\x02\x01")],
    "a type that is not allowed": [AttachedFile(name="a.sh", media_type="application/x-sh", data=b"rm")],
    "no type": [AttachedFile(name="a.txt", media_type="", data=b"hello")],
    "too many": [AttachedFile(name=f"{each}.txt", media_type="text/plain", data=b"") for each in range(3)],
    "very many": [AttachedFile(name=f"{each}.txt", media_type="text/plain", data=b"") for each in range(5_000)],
    "the same name twice": [AttachedFile(name=each, media_type="text/plain", data=b"") for each in ("a", "A")],
}


async def test_files_that_break_a_rule_are_refused_on_arrival_and_nothing_is_written(tmp_path: Path) -> None:
    async with stranger(tmp_path, files=RULES) as anna:
        for what, files in HOSTILE.items():
            reply = await anna.ask(asking(anna, what, *files))
            assert isinstance(reply, DeclineMessage), what
            assert reply.code in ("INPUT_VALIDATION_FAILED", "TOO_LARGE", "PERMISSION_DENIED"), what
        assert not list(tmp_path.rglob(FOLDER)), "not even a folder"
        allowed = AttachedFile(name="a.txt", media_type="text/plain", data=b"x" * 6_000_000)
        assert isinstance(await anna.ask(asking(anna, "good", allowed)), AnswerMessage)


# ── crashes and the end ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_files_that_no_run_names_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    async with two_sides(tmp_path, files=RULES) as sides:
        run = await drafted(sides)
        await sides.host.files.attach(run.id, "notes.txt", b"hello")
        store_contents(sides.anna.device.state, run.id, [b"a crash came before the run named it"])
        await sides.host.files.sweep()
        assert stored(sides) == 2, "it may be on its way"
        await sides.host.files.sweep(orphans=True)
        assert stored(sides) == 1
        assert (await sides.host.files.content(run.id, "notes.txt"))[1] == b"hello"


async def test_files_of_an_ended_run_are_deleted_after_their_time(tmp_path: Path) -> None:
    async with two_sides(tmp_path, files=RULES, keep_files_ms=0) as sides:
        run = await drafted(sides)
        await sides.host.files.attach(run.id, "notes.txt", b"hello")
        await sides.host.files.sweep(orphans=True)
        assert stored(sides) == 1, "the run goes on"
        await sides.host.act(run.id, moves.Stop())
        await sides.host.files.sweep(orphans=True)
        assert stored(sides) == 0
        with pytest.raises(RemitError, match="it is not kept any more"):
            await sides.host.files.content(run.id, "notes.txt")


async def test_no_file_can_be_attached_to_a_run_that_has_ended(tmp_path: Path) -> None:
    async with two_sides(tmp_path, files=RULES) as sides:
        run = await drafted(sides)
        await sides.host.act(run.id, moves.Stop())
        with pytest.raises(RemitError) as refused:
            await sides.host.files.attach(run.id, "notes.txt", b"hello")
        assert refused.value.fault.code is Code.STATE_CONFLICT
        assert stored(sides) == 0


async def test_a_large_file_arrives_whole_although_the_way_breaks_in_the_middle(tmp_path: Path) -> None:
    reader = Reader()
    async with (
        Tap() as tap,
        two_sides(tmp_path, answer=reader, shared={"files": RULES}, files=RULES, url=tap.before) as sides,
    ):
        run = await drafted(sides)
        data = b"0123456789abcdef" * 300_000
        await sides.host.files.attach(run.id, "large.txt", data)
        tap.flowing.clear()
        await approved(sides, run)
        await eventually(lambda: len(tap.put) > 5)
        assert reader.given == [], "nothing half"
        tap.flowing.set()
        run = await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.turn == 1 and now.waits)
        assert [each["attachments"][0]["size"] for each in reader.given] == [len(data)]


# ── over the local API and in a chat ──────────────────────────────────────────────────────────────────────────────────


async def test_a_program_uploads_lists_downloads_and_removes_files(tmp_path: Path) -> None:
    reader, changes, token = Reader(), Changes(), tmp_path / "shared.token"
    async with (
        two_sides(tmp_path, answer=reader, shared={"files": RULES}, files=RULES, changed=changes.changed) as sides,
        serve_shared(sides.host, changes, token=token) as address,
        ClientSession(address, headers={"authorization": f"Bearer {token.read_text().strip()}"}) as http,
    ):
        run = await drafted(sides)
        place = f"/v1/shared/runs/{run.id}/files"
        async with http.post(place, params={"name": "Größe 1.txt"}, data=SECRET.encode()) as reply:
            assert reply.status == 201
            file = await reply.json()
            assert (file["name"], file["media_type"], file["size"]) == ("Größe 1.txt", "text/plain", len(SECRET))
        async with http.get(f"{place}/{file['id']}") as reply:
            assert await reply.read() == SECRET.encode()
            assert reply.headers["content-type"] == "application/octet-stream"
            assert reply.headers["content-disposition"].startswith("attachment; filename*=UTF-8''Gr%C3%B6")
            assert "sandbox" in reply.headers["content-security-policy"]
        for name, data, kind, status in (
            ("../x.txt", b"hello", "text/plain", 400),
            ("x.png", b"hello", "image/png", 400),
            ("x.pdf", b"%PDF-1.7", "application/pdf", 403),
            ("x.txt", b"x" * 6_000_001, "text/plain", 413),
            ("x.txt", b"x" * 9_000_000, "text/plain", 413),
        ):
            async with http.post(
                place, params={"name": name}, data=io.BytesIO(data), headers={"content-type": kind}
            ) as reply:
                assert reply.status == status, (name, await reply.text())
        async with http.post(place, data=b"hello") as reply:
            assert reply.status == 400
        async with http.post(place, params={"name": "b.txt"}, data=b"hello") as reply:
            other = await reply.json()
        async with http.delete(f"{place}/{other['id']}") as reply:
            assert [each["name"] for each in (await reply.json())["attached"]] == ["Größe 1.txt"]
        async with http.get(f"/v1/shared/runs/{run.id}") as reply:
            assert [each["name"] for each in (await reply.json())["attached"]] == ["Größe 1.txt"]
        await approved(sides, sides.now(run))
        await sides.until(run, SessionState.READY_TO_SEND, when=lambda now: now.turn == 1 and now.waits)
        async with http.get(place) as reply:
            listed = await reply.json()
            assert [len(listed[each]) for each in ("attached", "sent", "received")] == [0, 1, 0]
        async with http.get(f"{place}/unknown") as reply:
            assert reply.status == 404
        async with ClientSession(address) as stranger, stranger.get(f"{place}/{file['id']}") as reply:
            assert reply.status == 401


def process_at(address: str) -> DeviceProcess:
    return DeviceProcess(pid=0, address=address, version="", command="up", since_ms=0, team="", digest="", overrides=())


async def test_the_commands_of_a_chat_attach_list_save_and_remove_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = Person("anna", "chat")
    (tmp_path / "notes.txt").write_text(SECRET)
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    changes = Changes()
    rules: dict[str, Any] = {"shared": {"files": RULES}, "files": RULES, "mode": "full_auto"}
    async with (
        two_sides(tmp_path, answer=report, **rules) as sides,
        serve_shared(sides.host, changes, token=tmp_path / TOKEN_FILE) as address,
        DeviceClient(tmp_path, process_at(address)) as client,
    ):
        run = await sides.until(await sides.start(), SessionState.COMPLETED)

        async def typed(line: str) -> list[str]:
            shown = view(sides.now(run), Surroundings(now_ms=0))
            wanted = understood(line, shown)
            assert isinstance(wanted, OnFile), wanted
            return await work_on_file(client, shown, wanted, me)

        assert "File report.txt (text/plain, 5 bytes)" in await typed("/files")
        assert await typed("/save report.txt") == ["Saved File report.txt (text/plain, 5 bytes) as report.txt."]
        assert (out / "report.txt").read_bytes() == b"heron"
        assert stat.S_IMODE((out / "report.txt").stat().st_mode) == 0o600
        for line, says in (
            ("/save report.txt", "cannot be written: File exists"),
            ("/save nothing", "no file `nothing`"),
            ("/attach missing.txt", "missing.txt cannot be read: No such file"),
            (f"/attach {tmp_path}", "cannot be read: Is a directory"),
        ):
            with pytest.raises(RemitError, match=says):
                await typed(line)
        run = await sides.start(mode="manual")
        (carries,) = await typed(f"/attach {tmp_path}/notes.txt")
        assert "notes.txt (text/plain, 29 bytes)" in carries
        assert isinstance(understood("/attach", view(run, Surroundings(now_ms=0))), Tell)
        assert isinstance(understood("/files x", view(run, Surroundings(now_ms=0))), Tell)


# ── files of a hub's envelopes ────────────────────────────────────────────────────────────────────────────────────────


PICTURE = File(name="a.png", media_type="image/png", data=b"\x89PNG")
LINK = File(name="b.pdf", url="https://example.org/b.pdf")

CONTROL = ControlEnvelope(origin_agent_device_id="d", trace_id="t", hop_count=1, orchestrator_profile_id="p")
BY_HUB = QuestionMessage(
    id="q", session="s", text="Look", control=CONTROL, request=Submission(target="-", objective="x", files=(PICTURE,))
)


def test_files_and_old_artifacts_of_an_answer_are_attached() -> None:
    old = {"raw": base64.b64encode(b"hi").decode(), "mediaType": "text/plain", "filename": "hi.txt"}
    response = a_response(files=(PICTURE, LINK), artifacts=(Artifact(type="file", value=old),))
    assert files_in(response) == (
        AttachedFile(name="a.png", media_type="image/png", data=b"\x89PNG"),
        AttachedFile(name="hi.txt", media_type="text/plain", data=b"hi"),
    )


def test_a_request_of_a_hub_brings_no_files_past_the_rules() -> None:
    opened = Opened(id=1, sender="device", message="m", requester="ann", body=b"")
    taken = submission(opened, BY_HUB, "helper")
    assert (taken.objective, taken.files) == ("x", ())


def test_a_hub_is_told_that_files_are_not_sent() -> None:
    message = answered(BY_HUB, a_response(files=(PICTURE,)))
    assert message.answer is not None
    assert message.answer.files == ()
    assert message.answer.warnings == ("The files of the answer are not sent: hubs that ask a shared agent get none.",)
    plain = answered(BY_HUB, a_response()).answer
    assert plain is not None
    assert plain.warnings == ()
