"""`remit audit`: reading along, and a record that others can check."""

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from command_line import REMIT, document, environment, remit
from forged_records import rehash, sql
from remit import Brief, Hub
from remit.ports import NumberedRecord
from remit.protocol.records import Kind, SharedStep
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import a_step, progress
from waiting import PATIENCE_S


def make_hub(folder: Path) -> Hub:
    hub = Hub(store=folder / ".remit" / "hub.db", redaction=False)

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return brief.text

    return hub


async def record(folder: Path, *texts: str) -> list[str]:
    """Ask for each text in a run of its own, and return the runs."""
    async with make_hub(folder) as hub:
        return [(await hub.ask("echo", text, user="ann")).run for text in texts]


# ── tail ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_newest_records_are_shown_one_line_each(tmp_path: Path) -> None:
    await record(tmp_path, "one", "two")
    done = remit("audit", "tail", "-n", "3", folder=tmp_path)
    kinds = [line.split()[2] for line in done.stdout.splitlines()]
    assert (done.returncode, kinds) == (0, ["result", "started", "result"])
    assert "ann asks echo: two" in done.stdout
    assert remit("audit", "tail", "-n", "0", folder=tmp_path).stdout == ""


async def test_those_of_one_run_are_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    first, _ = await record(tmp_path, "one", "two")
    lines = remit("audit", "tail", "--run", first[:20], "--jsonl", folder=tmp_path).stdout.splitlines()
    assert {json.loads(line)["run"] for line in lines} == {first}
    unknown = remit("audit", "tail", "--run", "zzz", folder=tmp_path)
    assert unknown.returncode == 2
    assert "→" in unknown.stderr


async def test_what_agents_say_cannot_steer_the_terminal(tmp_path: Path) -> None:
    await record(tmp_path, "\x1b]0;owned\x07 \x9b2J \u202ebackwards")
    for form in (["tail"], ["tail", "--jsonl"], ["export"]):
        printed = remit("audit", *form, folder=tmp_path).stdout
        assert "backwards" in printed
        assert not any(letter in printed for letter in "\x1b\x07\x9b\u202e")


async def test_whoever_follows_sees_what_another_process_writes(tmp_path: Path) -> None:
    await record(tmp_path, "before")
    process = await asyncio.create_subprocess_exec(
        *(REMIT, "audit", "tail", "--follow", "-n", "1", "--jsonl"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["seq"] == 2
    (run,) = await record(tmp_path, "after")
    followed = [json.loads(await process.stdout.readline()) for _ in range(2)]
    assert [(each["seq"], each["run"]) for each in followed] == [(3, run), (4, run)]
    process.send_signal(signal.SIGINT)
    _, complaint = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in complaint


# ── export: checked with nothing of ours ──────────────────────────────────────────────────────────────────────────────


def packed(value: int | str) -> bytes:
    """Return a value in MessagePack."""
    if isinstance(value, int):
        for first, size in ((None, 128), (b"\xcc", 2**8), (b"\xcd", 2**16), (b"\xce", 2**32), (b"\xcf", 2**64)):
            if value < size:
                return bytes([value]) if first is None else first + value.to_bytes((size.bit_length() - 1) // 8, "big")
    text = str(value).encode()
    return (bytes([0xA0 + len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text


def is_linked(row: dict[str, Any]) -> bool:
    """Say whether a row's digest follows from the row and the digest before."""
    head = b"\x94" + b"".join(packed(row[name]) for name in ("kind", "at_ms", "run", "session"))
    content = hashlib.sha256(head + row["body"].encode()).digest()
    linked = bytes.fromhex(row["previous"]) + row["seq"].to_bytes(8, "big") + content
    return hashlib.sha256(linked).hexdigest() == row["digest"]


def is_signed(checkpoint: dict[str, Any]) -> bool:
    signed = [checkpoint[name] for name in ("number", "seq", "digest", "at_ms", "key")]
    message = b"remit audit checkpoint\n" + json.dumps(signed, separators=(",", ":")).encode()
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(checkpoint["key"]))
        key.verify(bytes.fromhex(checkpoint["signature"]), message)
    except InvalidSignature:
        return False
    return True


def is_whole(export: str) -> bool:
    """Say whether an export is a chain from its first row on that its checkpoints confirm."""
    digests = {0: "0" * 64}
    for line in export.splitlines():
        each = json.loads(line)
        if each["schema"] == "remit.audit-checkpoint/1":
            if not is_signed(each) or digests.get(each["seq"]) != each["digest"]:
                return False
        elif not is_linked(each) or digests.get(each["seq"] - 1) != each["previous"]:
            return False
        else:
            digests[each["seq"]] = each["digest"]
    return len(digests) > 1


async def test_anyone_can_check_an_export_by_itself(tmp_path: Path) -> None:
    await record(tmp_path, "one", "Grüße, 世界 \U0001f600 \x1b \u2028", "x" * 70_000)
    await record(tmp_path, "a second checkpoint")
    export = remit("audit", "export", folder=tmp_path).stdout
    kinds = [json.loads(line)["schema"] for line in export.splitlines()]
    assert (kinds.count("remit.audit-row/1"), kinds.count("remit.audit-checkpoint/1")) == (8, 2)
    assert is_whole(export)


async def test_an_export_of_a_record_that_was_tampered_with_is_not_whole(tmp_path: Path) -> None:
    await record(tmp_path, "one", "two", "three")
    database = sqlite3.connect(tmp_path / ".remit" / "hub.db")
    database.execute("UPDATE record SET body = replace(body, 'two', 'too') WHERE seq = 3")
    database.commit()
    database.close()
    assert not is_whole(remit("audit", "export", folder=tmp_path).stdout)


async def test_an_export_from_which_something_was_taken_is_not_whole(tmp_path: Path) -> None:
    await record(tmp_path, "one", "two")
    lines = remit("audit", "export", folder=tmp_path).stdout.splitlines()
    assert is_whole("\n".join(lines))
    for place in range(len(lines) - 1):
        assert not is_whole("\n".join(lines[:place] + lines[place + 1 :])), lines[place]


async def test_each_row_of_a_run_can_be_checked_by_itself(tmp_path: Path) -> None:
    _, second = await record(tmp_path, "one", "two")
    rows = [json.loads(line) for line in remit("audit", "export", "--run", second, folder=tmp_path).stdout.splitlines()]
    assert [(row["run"], is_linked(row)) for row in rows] == [(second, True)] * 2


async def test_the_steps_of_one_profile_are_shown_and_exported_by_themselves(tmp_path: Path) -> None:
    """S13: scoped to the profile; each row can be checked by itself."""
    path = tmp_path / ".remit" / "hub.db"
    (run,) = await record(tmp_path, "one")
    bodies = [
        a_step(turn=1),
        a_step(profile="other", turn=2),
        replace(a_step(turn=3), by="\x1b]0;owned\x07eve", failure="[EMAIL] is full", label="", rules=("links",)),
        SharedStep(side="shares", profile="helper", device="device-two", event="declined", code="RATE_LIMITED"),
    ]
    store = SqliteStore(path)
    await store.open()
    await store.transfer(
        "device/here",
        [
            NumberedRecord(
                number, Kind.SHARED, time.time_ns() // 1_000_000, f"{body.profile}-0{number}", "session", body
            )
            for number, body in enumerate(bodies, start=1)
        ],
    )
    await store.close()
    shown = remit("audit", "tail", "--profile", "reviewer", folder=tmp_path).stdout.splitlines()
    assert [line.split(maxsplit=3)[1:] for line in shown] == [
        [
            "reviewer-01",
            "shared",
            "reviewer with device device-two, turn 1, manual: Approve by ann (pending), edited, now ready_to_send",
        ],
        [
            "reviewer-03",
            "shared",
            "reviewer with device device-two, turn 3, manual: Approve by eve (pending), because of links, now"
            " ready_to_send, [EMAIL] is full",
        ],
    ]
    assert [
        line.split(maxsplit=3)[3] for line in remit("audit", "tail", "-n", "1", folder=tmp_path).stdout.splitlines()
    ] == ["helper for device device-two: declined, RATE_LIMITED"]
    (tmp_path / "remit.toml").write_text('[relay]\ngateway = "ws://127.0.0.1:9"\n[profiles.reviewer]\nrun = ["x"]\n')
    mistyped = remit("audit", "tail", "--profile", "reviewr", folder=tmp_path)
    assert mistyped.stderr == "There are no records of a profile `reviewr`; did you mean `reviewer`?\n"
    newest = remit("audit", "tail", "--profile", "reviewer", "-n", "1", "--jsonl", folder=tmp_path).stdout
    assert json.loads(newest)["body"]["turn"] == 3
    for options, expected in (
        (["--profile", "reviewer"], [1, 3]),
        (["--profile", "other"], [2]),
        (["--run", "reviewer-03", "--profile", "reviewer"], [3]),
        (["--run", "other"], [2]),
        (["--profile", "nobody"], []),
    ):
        rows = list(map(json.loads, remit("audit", "export", *options, folder=tmp_path).stdout.splitlines()))
        assert [json.loads(row["body"])["turn"] for row in rows] == expected
        assert all(map(is_linked, rows))
    unclear = remit("audit", "export", "--run", "reviewer-0", folder=tmp_path)
    assert "ambiguous id `reviewer-0`:\n  reviewer-01\n  reviewer-03\n" in unclear.stderr
    for name in ("other", "other-02"):
        no_run = remit("runs", "show", name, folder=tmp_path)
        assert no_run.returncode == 2
        assert "other-02 is a run with an agent of another device, not a run of the hub\n" in no_run.stderr
        assert "→ See its steps: remit audit tail --run other-02\n" in no_run.stderr
    assert run in remit("runs", "list", "--json", folder=tmp_path).stdout
    assert document("audit", "verify", folder=tmp_path)["ok"]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE record SET body = '{}' || body WHERE seq = 3")
    database.close()
    assert remit("audit", "verify", folder=tmp_path).returncode == 1
    assert "[EMAIL] is full" in remit("audit", "tail", "--profile", "reviewer", folder=tmp_path).stdout


async def test_an_export_goes_to_a_file_if_asked_and_an_error_leaves_none(tmp_path: Path) -> None:
    await record(tmp_path, "one")
    done = remit("audit", "export", "-o", "audit.jsonl", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert is_whole((tmp_path / "audit.jsonl").read_text(encoding="utf-8"))
    lost = remit("audit", "export", "-o", "more.jsonl", "--store", "nowhere.db", folder=tmp_path)
    assert lost.returncode == 7
    assert not (tmp_path / "more.jsonl").exists()


async def test_a_reader_that_has_had_enough_causes_no_complaint(tmp_path: Path) -> None:
    await record(tmp_path, *("x" * 70_000 for _ in range(4)))
    done = subprocess.run(
        f"{REMIT} audit export | head -c 100",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (len(done.stdout), done.stderr) == (100, b"")


# ── verify ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_team_says_which_record_is_verified(tmp_path: Path) -> None:
    await record(tmp_path / "elsewhere", "one")
    (tmp_path / "remit.toml").write_text('[store]\npath = "elsewhere/.remit/hub.db"\n', encoding="utf-8")
    (tmp_path / "below").mkdir()
    output = document("audit", "verify", folder=tmp_path / "below")
    assert (output["schema"], output["ok"], output["rows"]) == ("remit.verification/1", True, 2)


@pytest.mark.parametrize(("dated_ms", "name"), [(0, "key signed nothing"), (365 * 86_400_000, "dated ahead")])
async def test_a_record_that_was_replaced_as_a_whole_is_found_however_its_rows_are_dated(
    tmp_path: Path, dated_ms: int, name: str
) -> None:
    await record(tmp_path, "paid 5", "paid 6")
    folder = tmp_path / ".remit"
    assert document("audit", "verify", folder=tmp_path)["ok"]
    # An hour later, somebody who has not the key makes all rows anew, and takes the checkpoints away.
    key, hour_ago = folder / "hub.db.key", time.time() - 3_600
    os.utime(key, (hour_ago, hour_ago))
    rehash(folder / "hub.db", at_ms=time.time_ns() // 1_000_000 + dated_ms)
    sql(folder / "hub.db", "UPDATE checkpoint SET number = 0, seq = 0, since_ms = 0")
    (folder / "hub.db.checkpoints").unlink()
    output = document("audit", "verify", folder=tmp_path)
    assert name in {each["tampering"] for each in output["findings"]}
    assert not output["ok"]


async def test_the_verification_says_how_many_rows_no_signature_covers_and_since_when(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / ".remit" / "hub.db", durability="process")
    await store.open()
    key = tmp_path / ".remit" / "hub.db.key"
    long_ago = time.time() - 86_400  # a hub that waited for its first request since yesterday
    os.utime(key, (long_ago, long_ago))
    at_ms = time.time_ns() // 1_000_000
    for number in range(3):
        store.append(Kind.PROGRESS, at_ms + number, "run", "session", progress(str(number)))
        await store.flush()
    output = document("audit", "verify", folder=tmp_path)
    assert (output["ok"], output["unprotected"], output["checkpoints"]) == (True, 3, 0), output
    assert output["unprotected_since_ms"] >= at_ms
    shown = remit("audit", "verify", folder=tmp_path).stdout
    assert "no signature covers the last 3 rows, since 20" in shown
    await store.close()
    output = document("audit", "verify", folder=tmp_path)
    assert (output["ok"], output["unprotected"], output["checkpoints"]) == (True, 0, 1)


@pytest.mark.parametrize("command", [["tail"], ["verify"], ["export"]])
def test_a_record_that_is_not_there_is_not_made(tmp_path: Path, command: list[str]) -> None:
    done = remit("audit", *command, folder=tmp_path)
    assert (done.returncode, done.stdout) == (7, "")
    assert "→" in done.stderr
    assert list(tmp_path.iterdir()) == []
