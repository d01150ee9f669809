"""Steps of runs with shared agents on the hub's own record: none is missing, none is there twice, nobody is quoted."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from checkout import TESTS
from devices import introduce, sealer
from pairs import Pair, together
from recorded import recorded, steps
from remit.ports import NumberedRecord, StoreError
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Kind, Record, SharedStep
from remit.runtime.audit import Tampering
from remit.stores.sqlite import SqliteStore, verify_file
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.ports import Draft, DraftFailure, PromptRequest
from remit_relay.device.state import DeviceFile
from remit_relay.messages import audit, types
from remit_relay.messages.audit import AuditEntry, Recording
from remit_relay.messages.questions import decline
from remit_relay.messages.types import DeclineMessage, QuestionMessage
from remit_relay.serve_shared import NOTHING_SHARED
from remit_relay.session import moves, repository
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import ControlEnvelope
from remit_relay.session.repository import RemoteCommand
from remit_relay.session.run import Person
from remit_testing import MemoryStore
from remit_testing.samples import a_step
from sealed_devices import carry, prekey_of
from waiting import eventually

CANARY = "what nobody may find in the record"
ANNA = Person("anna", "chat")


async def in_turn(pair: Pair, *answers: Callable[[str], moves.Event]) -> str:
    """Have a run's drafts answered by Anna, and return its id once it has ended."""
    run = await pair.host.start("mine", pair.bob.device.id, CANARY, by=ANNA)
    for answer in answers:
        run = await pair.until(run, SessionState.READY_TO_SEND)
        assert run.pending is not None
        await pair.host.act(run.id, answer(run.pending.id), by=ANNA)
    await pair.until(run, SessionState.COMPLETED, SessionState.STOPPED)
    return run.id


def canaries(request: PromptRequest) -> Draft:
    done = request.turn_index > 2
    return Draft(text=f"draft of {CANARY}", confidence=0.9, done=done, tokens=7)


# ── what is on record ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_both_sides_have_each_step_on_record_and_who_answered(tmp_path: Path) -> None:
    """S13, S14 (8): profile, device, requester, turn, mode, status; who approved, edited or rejected a draft."""
    async with together(tmp_path, canaries) as pair:
        run = await in_turn(
            pair,
            lambda draft: moves.Reject(draft, f"not {CANARY}"),
            moves.Approve,
            lambda draft: moves.Approve(draft, f"rather {CANARY}"),
        )
        asking = await recorded(pair.anna, tmp_path / "annas.db")
        sharing = await recorded(pair.bob, tmp_path / "bobs.db")
        questions = await pair.hub.store.runs(limit=10)
    anna, bob = pair.anna.device.id, pair.bob.device.id
    assert {(each.kind, each.run) for each in asking} == {(Kind.SHARED, run)}
    own = steps(asking)
    assert own == pair.notes
    assert {(each.side, each.profile, each.device, each.requester, each.mode) for each in own} == {
        ("asks", "mine", bob, "anna@example.org", "manual")
    }
    assert [(each.event, each.turn, each.state, each.label, each.by, each.via) for each in own if each.by] == [
        ("Start", 0, SessionState.PLANNING, "", "anna", "chat"),
        ("Reject", 0, SessionState.PLANNING, "", "anna", "chat"),
        ("Approve", 1, SessionState.READY_TO_SEND, "approved", "anna", "chat"),
        ("Approve", 2, SessionState.READY_TO_SEND, "edited", "anna", "chat"),
    ]
    assert [(each.event, each.turn) for each in own if not each.by] == [
        *(("Prompted", 0), ("Drafted", 0)) * 2,
        *(("Sent", 1), ("Arrived", 1), ("Prompted", 1), ("Drafted", 1)),
        *(("Sent", 2), ("Arrived", 2), ("Prompted", 2), ("Drafted", 2)),
    ]
    assert [each.rules for each in own if each.event == "Drafted"] == [
        *(("manual", "first_contact"),) * 2,
        ("manual",),
        (),
    ]
    theirs = steps(sharing)
    assert [(each.event, each.code) for each in theirs] == [("asked", ""), ("answered", "")] * 2
    assert {(each.side, each.profile, each.device, each.requester, each.origin, each.hops) for each in theirs} == {
        ("shares", "helper", anna, "anna@example.org", anna, 1)
    }
    assert [each.task for each in theirs if each.task] == [each.run for each in reversed(questions)]
    assert {each.run for each in sharing} == {f"{anna}/{run}"}
    for file in ("annas.db", "bobs.db"):
        assert verify_file(tmp_path / file).ok
        assert CANARY.encode() not in b"".join(each.read_bytes() for each in tmp_path.glob(f"{file}*"))
    assert CANARY not in encode([*asking, *sharing]).decode()


async def test_what_is_not_allowed_is_on_record_on_either_side(tmp_path: Path) -> None:
    """S10, S13."""
    async with together(tmp_path, allow_shared_agent_calls=False) as pair:
        with pytest.raises(RemitError):
            await pair.host.start("mine", pair.bob.device.id, CANARY, by=Person("api", "api"))
        (step,) = steps(await recorded(pair.anna, tmp_path / "annas.db"))
    assert (step.event, step.state, step.code, step.by, step.via) == (
        "Start",
        "idle",
        "PERMISSION_DENIED",
        "api",
        "api",
    )
    async with together(tmp_path, mode="full_auto") as pair:
        pair.anna.peers.allow(pair.bob.device.id, allowed=False)
        with pytest.raises(RemitError):
            await pair.start()
        pair.anna.peers.allow(pair.bob.device.id)
        _, step = steps(await recorded(pair.anna, tmp_path / "annas.db"))
        assert (step.event, step.code) == ("Start", "PERMISSION_DENIED")


async def test_what_is_wished_from_another_process_is_on_record_with_who_wished_it(tmp_path: Path) -> None:
    """S13: `remit pending` leaves a wish; whoever left none of a name had none."""
    async with together(tmp_path, canaries) as pair:
        run = await pair.until(await pair.start(), SessionState.READY_TO_SEND)
        assert run.pending is not None
        file = pair.anna.device.state
        repository.leave(file, RemoteCommand(run=run.id, event=moves.Reject(run.pending.id, CANARY), by="eve"))
        await eventually(lambda: any(each.event == "Reject" for each in pair.notes))
        repository.leave(file, RemoteCommand(run=run.id, event=moves.Stop()))
        await pair.until(run, SessionState.STOPPED)
        shared_steps = steps(await recorded(pair.anna, tmp_path / "annas.db"))
    assert [(each.event, each.by, each.via) for each in shared_steps if each.via] == [
        ("Reject", "eve", "pending"),
        ("Stop", "", "pending"),
    ]
    assert CANARY not in encode(shared_steps).decode()


async def test_why_something_failed_is_on_record_without_what_is_secret(tmp_path: Path) -> None:
    """S13: what the detector finds is struck out, and a reason is no place for a speech."""

    def fails(_: PromptRequest) -> DraftFailure:
        return DraftFailure(reason=f"cannot write to eve@example.org today {'x' * 1_000}", hard=True)

    async with together(tmp_path, fails) as pair:
        await pair.until(await pair.start(), SessionState.ERROR)
        shared_steps = steps(await recorded(pair.anna, tmp_path / "annas.db"))
    (failure,) = {each.failure for each in shared_steps if each.failure}
    assert failure.startswith("cannot write to [EMAIL] today xxx")
    assert len(failure) <= audit.LONGEST_REASON


def test_a_name_that_is_no_text_can_be_recorded_all_the_same() -> None:
    name = os.fsdecode(b"ann\xff")
    assert encode(audit.printable(name)) == b'"ann?"'
    assert audit.struck("", detector_pipeline()) == ""


async def test_a_question_that_was_under_way_at_a_restart_is_on_record_as_asked_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with together(tmp_path, canaries, mode="full_auto", answers_after=gate) as pair:
        run = await pair.until(await pair.start(), SessionState.WAITING_REMOTE)
        await eventually(lambda: recorded(pair.bob, tmp_path / "bobs.db"), when=steps)
    async with together(tmp_path, canaries, mode="full_auto") as pair:
        await pair.host.act(run.id, moves.Resume())
        await pair.until(run, SessionState.COMPLETED)
        shared_steps = steps(await recorded(pair.bob, tmp_path / "bobs.db"))
    assert [each.event for each in shared_steps] == ["asked", "answered"] * 2
    with pair.bob.device.state.writing():
        assert not pair.bob.device.state.rows("SELECT name FROM facts WHERE name LIKE 'asked/%'")


async def test_starts_do_not_fill_the_record_with_runs_that_stand_still(tmp_path: Path) -> None:
    async with together(tmp_path, canaries, mode="full_auto", answers_after=asyncio.Event()) as pair:
        run = await pair.until(await pair.start(), SessionState.WAITING_REMOTE)
    for _ in range(3):
        async with together(tmp_path, canaries, mode="full_auto") as pair:
            await pair.until(run, SessionState.PAUSED)
    shared_steps = steps(await recorded(pair.anna, tmp_path / "annas.db"))
    assert [each.event for each in shared_steps].count("Restarted") == 1


async def test_words_of_the_local_agent_are_shown_and_not_recorded(tmp_path: Path) -> None:
    """S13: stderr of an agent may hold what it was asked; the record says how the process ended, and no more."""

    def failing(request: PromptRequest) -> DraftFailure:
        return DraftFailure(reason=f"it ended: {request.objective}", recorded="it ended", hard=True)

    async with together(tmp_path, failing, mode="full_auto") as pair:
        run = await pair.host.start("mine", pair.bob.device.id, CANARY)
        run = await pair.until(run, SessionState.ERROR)
        records = await recorded(pair.anna, tmp_path / "annas.db")
    assert run.failure == f"it ended: {CANARY}"
    assert [each.failure for each in steps(records) if each.event == "LocalFailed"] == ["it ended"]
    assert CANARY not in encode(records).decode()


def test_what_another_device_gives_as_a_code_is_not_on_record() -> None:
    known = DeclineMessage(to="q", session="s", code="RATE_LIMITED", reason=CANARY)
    assert known.recorded == "RATE_LIMITED"
    assert DeclineMessage(to="q", session="s", code=CANARY).recorded == (
        "the other device declined it with an unknown code"
    )


async def test_what_another_device_writes_into_names_and_ids_is_not_on_record(tmp_path: Path) -> None:
    control = ControlEnvelope(
        origin_agent_device_id=CANARY,
        trace_id=f"{CANARY}\x1b[2J",
        hop_count=2,
        orchestrator_profile_id=CANARY,
    )
    question = QuestionMessage(id=CANARY, session=CANARY, text=CANARY, agent=CANARY, control=control)
    async with together(tmp_path) as pair:
        await asyncio.to_thread(pair.anna.seal, pair.bob.device.id, types.write(question), requester="anna")
        records = await eventually(lambda: recorded(pair.bob, tmp_path / "bobs.db"), when=lambda rows: len(rows) >= 2)
    assert [(each.event, each.profile, each.requester, each.hops, each.code) for each in steps(records)] == [
        ("asked", "", "anna", 2, ""),
        ("declined", "", "anna", 2, "AGENT_NOT_FOUND"),
    ]
    assert CANARY not in encode(records).decode()


async def test_what_is_asked_of_a_device_that_shares_nothing_is_on_record(tmp_path: Path) -> None:
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    control = ControlEnvelope(
        origin_agent_device_id=anna.device.id, trace_id="t", hop_count=1, orchestrator_profile_id="mine"
    )
    asks = QuestionMessage(id="q", session="s", text=CANARY, control=control)
    anna.seal(bob.device.id, types.write(asks))
    anna.begin(bob.device.id, prekey_of(bob))
    carry(anna, bob)
    (opened,) = bob.inbox()
    decline(bob, opened, asks, NOTHING_SHARED, 1_000)
    (record,) = await recorded(bob, tmp_path / "bobs.db")
    assert isinstance(record.body, SharedStep)
    assert (record.run, record.body.event, record.body.code) == (f"{anna.device.id}/t", "declined", "AGENT_NOT_FOUND")
    assert record.at_ms == 1_000
    for each in (anna, bob):
        each.device.state.close()


# ── tampering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("statement", "tampering"),
    [
        ("""UPDATE record SET body = replace(body, '"by":"anna"', '"by":"eve"') WHERE seq = 1""", Tampering.EDITED),
        ("DELETE FROM record WHERE seq = 2", Tampering.DELETED),
        ("DELETE FROM record WHERE seq = (SELECT max(seq) FROM record)", Tampering.TRUNCATED),
    ],
)
async def test_a_step_that_somebody_changes_or_takes_out_is_found(
    tmp_path: Path, statement: str, tampering: Tampering
) -> None:
    """S13: on the chain like everything else."""
    file = tmp_path / "annas.db"
    async with together(tmp_path, canaries, mode="full_auto") as pair:
        await in_turn(pair)
        await recorded(pair.anna, file)
    assert verify_file(file).ok
    with closing(sqlite3.connect(file)) as database, database:
        assert database.execute(statement).rowcount == 1
    assert tampering in {finding.tampering for finding in verify_file(file).findings}


# ── from the device to the record ─────────────────────────────────────────────────────────────────────────────────────


def note(file: DeviceFile, turn: int) -> None:
    audit.keep(file, AuditEntry(at_ms=turn, run="run", session="session", step=a_step(turn=turn)))


def turns(records: Sequence[Record]) -> list[int]:
    return [step.turn for step in steps(records)]


async def test_what_was_brought_to_the_record_is_taken_out_of_the_device(tmp_path: Path) -> None:
    anna = sealer(tmp_path, "anna")
    file = anna.device.state
    for turn in range(1, audit.TOGETHER + 3):
        note(file, turn)
    records = await recorded(anna, tmp_path / "hub.db")
    assert turns(records) == list(range(1, audit.TOGETHER + 3))
    assert audit.left(file, 0) == []
    note(file, 500)
    assert turns(await recorded(anna, tmp_path / "hub.db"))[-1] == 500
    file.close()


async def test_what_is_noted_while_it_is_open_is_brought_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LOOK_S", 0.01)
    anna, store = sealer(tmp_path, "anna"), MemoryStore()
    await store.open()
    async with Recording(anna.device.state, store, device=anna.device.id):
        note(anna.device.state, 1)
        await eventually(store.records, when=lambda rows: turns(rows) == [1])
    anna.device.state.close()


async def test_a_device_that_is_put_back_from_a_backup_goes_on_behind_what_is_recorded(tmp_path: Path) -> None:
    anna, copy = sealer(tmp_path, "anna"), tmp_path / "copy.db"
    for turn in (1, 2):
        note(anna.device.state, turn)
    with closing(sqlite3.connect(tmp_path / "anna.db")) as database, closing(sqlite3.connect(copy)) as other:
        database.backup(other)
    await recorded(anna, tmp_path / "hub.db")
    for turn in (3, 4, 5):
        note(anna.device.state, turn)
    await recorded(anna, tmp_path / "hub.db")
    anna.device.state.close()
    shutil.copy(copy, tmp_path / "anna.db")
    anna = sealer(tmp_path, "anna")
    await recorded(anna, tmp_path / "hub.db")
    note(anna.device.state, 6)
    assert turns(await recorded(anna, tmp_path / "hub.db")) == [1, 2, 3, 4, 5, 6]
    anna.device.state.close()


class Troubled(MemoryStore):
    """A store that cannot be written to for a while."""

    troubles = 0

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        if entries and self.troubles:
            self.troubles -= 1
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is full"))
        return await super().transfer(source, entries)


async def test_a_record_that_cannot_be_written_holds_up_no_run_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "AGAIN_S", 0.01)
    anna, store = sealer(tmp_path, "anna"), Troubled()
    await store.open()
    store.troubles = 2
    async with Recording(anna.device.state, store, device=anna.device.id) as recording:
        note(anna.device.state, 1)
        recording.wake()
        await eventually(store.records, when=lambda rows: turns(rows) == [1])
    assert caplog.text.count("audit entries of shared work cannot be recorded yet: the disk is full") == 1
    note(anna.device.state, 2)
    store.troubles = 2
    async with Recording(anna.device.state, store, device=anna.device.id):
        pass
    assert "audit entries of shared work will be recorded at the next start: the disk is full" in caplog.text
    assert turns(await store.records()) == [1]
    store.troubles = 0
    async with Recording(anna.device.state, store, device=anna.device.id):
        pass
    assert turns(await store.records()) == [1, 2]
    anna.device.state.close()


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def victim(home: Path, side: str) -> Generator[Callable[[int], int]]:
    """Yield what has a device work in a process of its own, killed at a statement, and returns how it ended."""
    command = [sys.executable, str(Path(__file__).with_name("audit_victim.py"))]
    path = (str(TESTS), os.environ.get("PYTHONPATH"))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def work(die_at: int) -> int:
            order = {"side": side, "home": str(home), "objective": CANARY, "die_at": die_at, "log": str(home / "log")}
            print(json.dumps(order), file=process.stdin, flush=True)
            return int(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]

        yield work
        process.stdin.close()


async def proven(home: Path, name: str) -> list[Record]:
    """Return what a team has on record of a device that was killed, after what holds of it whatever it did."""
    state = sealer(home, name).device.state
    assert audit.left(state, 0) == []
    noted = state.fact("notes", int)
    state.close()
    file = home / f"{name}s-hub.db"
    store = SqliteStore(file)
    await store.open()
    records = await store.records(limit=100_000)
    await store.close()
    assert verify_file(file).ok
    assert len(records) == noted, "each number of the device once"
    assert CANARY not in encode(records).decode()
    return records


async def test_killed_between_a_step_and_its_record_nothing_is_missing_and_nothing_is_there_twice(
    tmp_path: Path,
) -> None:
    """S13: before each of their statements, those that commit included, of the device's file and of the store."""
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    for each in (anna, bob):
        each.device.state.close()
    with victim(tmp_path, "asks") as work:
        ends = [work(die_at) for die_at in range(1, 160, 4)]
        assert work(0) == 0
    assert ends.count(-9) > 20
    records = await proven(tmp_path, "anna")
    # What was told to be done is there, in order; what was done and could not be told any more, besides.
    record = iter([[step.event, step.state] for step in steps(records)])
    assert all(each in record for each in map(json.loads, (tmp_path / "log").read_text().splitlines()))
    state = sealer(tmp_path, "anna").device.state
    runs = {run.id: run.state for run in repository.kept_runs(state)}
    state.close()
    last = {each.run: step.state for each, step in zip(records, steps(records), strict=True)}
    assert last == runs, "each run ends on record where it is"


async def test_killed_while_it_answers_a_device_has_each_question_on_record_as_asked_and_answered_once(
    tmp_path: Path,
) -> None:
    """S13: the same for the side that shares."""
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    names = [f"{number:02}" for number in range(30)]
    for name in names:
        control = ControlEnvelope(
            origin_agent_device_id=anna.device.id, trace_id=name, hop_count=1, orchestrator_profile_id="mine"
        )
        anna.seal(bob.device.id, types.write(QuestionMessage(id=name, session="s", text=CANARY, control=control)))
    anna.begin(bob.device.id, prekey_of(bob))
    carry(anna, bob)
    assert len(bob.inbox()) == len(names)
    for each in (anna, bob):
        each.device.state.close()
    with victim(tmp_path, "shares") as work:
        ends = [work(die_at) for die_at in range(3, 120, 4)]
        assert work(0) == 0
    assert ends.count(-9) > 10
    records = await proven(tmp_path, "bob")
    for event in ("asked", "answered"):
        these = [each.run for each in records if isinstance(each.body, SharedStep) and each.body.event == event]
        assert sorted(these) == [f"{anna.device.id}/{name}" for name in names]
    assert len(records) == 2 * len(names)
