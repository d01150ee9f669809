"""Whatever is done to the record shows, and the verdict says where."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commands import popen
from remit.ports import StoreError
from remit.runtime.audit import GENESIS, AuditFinding, AuditVerdict, ChainRow, Tampering, leaf, link, verify
from remit.runtime.signing import (
    Checkpoint,
    CheckpointKey,
    decode_checkpoints,
    encode_checkpoint,
    open_key,
    read_key,
    sign,
)

KEY = CheckpointKey(bytes(range(32)))
OTHER_KEY = CheckpointKey(bytes(32))


def chain(length: int) -> list[ChainRow]:
    rows: list[ChainRow] = []
    previous = GENESIS
    for seq in range(1, length + 1):
        content = ("progress", 1_000 + seq, f"run-{seq % 3}", "session", b'{"text":"step %d"}' % seq)
        previous = link(previous, seq, leaf(*content))
        rows.append(ChainRow(seq, *content, previous))
    return rows


def sealed(rows: list[ChainRow], *places: int, key: CheckpointKey = KEY) -> list[Checkpoint | None]:
    return [
        sign(key, number=number, seq=seq, digest=rows[seq - 1].digest, at_ms=5)
        for number, seq in enumerate(places, start=1)
    ]


def rehashed(rows: list[ChainRow]) -> list[ChainRow]:
    """Return the rows as someone would leave them who knows how the chain is made, but has no key."""
    previous, done = GENESIS, list[ChainRow]()
    for seq, row in enumerate(rows, start=1):
        previous = link(previous, seq, leaf(*row[1:6]))
        done.append(row._replace(seq=seq, digest=previous))
    return done


def renumbered(rows: list[ChainRow]) -> list[ChainRow]:
    return [row._replace(seq=seq) for seq, row in enumerate(rows, start=1)]


def places(verdict: AuditVerdict) -> list[tuple[Tampering, int, int]]:
    return [(finding.tampering, finding.first, finding.last) for finding in verdict.findings]


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_untouched_record_is_whole_and_its_unprotected_rows_are_counted() -> None:
    rows = chain(10)
    verdict = verify(rows, sealed(rows, 4, 7), remembered=2, referenced=10, public_key=KEY.public)
    assert verdict == AuditVerdict(rows=10, checkpoints=2, unprotected=3, keys=(KEY.public.hex(),))
    assert verdict.ok


def test_an_empty_record_is_whole() -> None:
    assert verify([], []) == AuditVerdict(rows=0, checkpoints=0, unprotected=0)


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"text":"forged"}'},
        {"run": "run-x"},
        {"session": "another"},
        {"at_ms": 0},
        {"kind": "notice"},
        {"digest": bytes(32)},
        {"body": "text, where bytes belong"},
        {"run": "\udcff"},
        {"at_ms": None},
    ],
)
@pytest.mark.parametrize("seq", [1, 5, 10])
def test_an_edited_row_is_named(change: dict[str, object], seq: int) -> None:
    rows = chain(10)
    rows[seq - 1] = rows[seq - 1]._replace(**change)  # pyright: ignore[reportArgumentType]
    assert places(verify(rows, sealed(chain(10), 4))) == [(Tampering.EDITED, seq, seq)]


def test_several_edited_rows_are_named_one_by_one() -> None:
    rows = chain(10)
    for seq in (3, 4, 8):
        rows[seq - 1] = rows[seq - 1]._replace(body=b"{}")
    assert places(verify(rows, [])) == [(Tampering.EDITED, seq, seq) for seq in (3, 4, 8)]


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 3), (5, 5), (4, 8)])
def test_deleted_rows_are_named(first: int, last: int) -> None:
    rows = chain(10)
    del rows[first - 1 : last]
    assert places(verify(rows, [])) == [(Tampering.DELETED, first, last)]


def test_deleted_rows_are_named_though_the_rest_was_renumbered_to_hide_it() -> None:
    rows = chain(10)
    del rows[3:6]
    assert places(verify(renumbered(rows), [])) == [(Tampering.DELETED, 4, 6)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seq", [1, 5])
def test_inserted_rows_are_named_though_the_rest_was_renumbered_to_make_room(seq: int, count: int) -> None:
    rows = chain(10)
    forged = ChainRow(0, "notice", 5, "run-x", "session", b"{}", bytes(32))
    rows[seq - 1 : seq - 1] = [forged] * count
    verdict = verify(renumbered(rows), sealed(chain(10), 10))
    assert places(verdict) == [(Tampering.INSERTED, seq, seq + count - 1)]


def test_a_row_before_the_first_is_named() -> None:
    rows = [ChainRow(-3, "notice", 5, "run-x", "session", b"{}", bytes(32)), *chain(3)]
    assert places(verify(rows, [])) == [(Tampering.INSERTED, -3, -3)]


@pytest.mark.parametrize(("one", "other"), [(3, 4), (2, 8), (1, 10)])
@pytest.mark.parametrize("with_digests", [True, False])
def test_rows_that_changed_places_are_named(one: int, other: int, with_digests: bool) -> None:
    rows = chain(10)
    first, second = rows[one - 1], rows[other - 1]
    rows[one - 1] = second._replace(seq=one, digest=second.digest if with_digests else first.digest)
    rows[other - 1] = first._replace(seq=other, digest=first.digest if with_digests else second.digest)
    assert places(verify(rows, [])) == [(Tampering.REORDERED, seq, seq) for seq in (one, other)]


def test_rows_cut_off_the_end_are_named_as_far_as_a_checkpoint_reaches() -> None:
    rows = chain(10)
    verdict = verify(rows[:5], sealed(rows, 3, 8), remembered=2)
    assert places(verdict) == [(Tampering.TRUNCATED, 6, 8)]


def test_rows_cut_off_the_end_are_named_if_a_request_still_points_at_them() -> None:
    assert places(verify(chain(10)[:5], [], referenced=7)) == [(Tampering.TRUNCATED, 6, 7)]


def edited(rows: list[ChainRow]) -> list[ChainRow]:
    return [*rows[:4], rows[4]._replace(body=b"{}"), *rows[5:]]


def reordered(rows: list[ChainRow]) -> list[ChainRow]:
    return [*rows[:4], *rows[5:], rows[4]]


def inserted(rows: list[ChainRow]) -> list[ChainRow]:
    return [*rows[:4], rows[0], *rows[4:]]


@pytest.mark.parametrize("tamper", [edited, reordered, inserted])
def test_a_chain_that_was_hashed_anew_does_not_lead_to_its_checkpoints(
    tamper: Callable[[list[ChainRow]], list[ChainRow]],
) -> None:
    rows = chain(10)
    verdict = verify(rehashed(tamper(rows)), sealed(rows, 3, 8, 9), remembered=3)
    assert places(verdict) == [(Tampering.REWRITTEN, 4, 8)]


def test_a_chain_that_is_broken_everywhere_is_judged_in_bounded_time_and_words() -> None:
    rows = [row._replace(digest=bytes(32)) for row in chain(5_000)]
    verdict = verify(rows, [])
    assert not verdict.ok
    assert len(verdict.findings) <= 100


@given(st.data())
def test_no_change_to_a_sealed_row_goes_unseen(data: st.DataObject) -> None:
    rows = chain(8)
    seq = data.draw(st.integers(1, 8))
    field = data.draw(st.sampled_from(["kind", "run", "session", "body", "at_ms", "digest"]))
    value = data.draw(
        st.binary()
        if field in ("body", "digest")
        else st.integers(-(2**63), 2**63 - 1)
        if field == "at_ms"
        else st.text()
    )
    changed = rows[seq - 1]._replace(**{field: value})
    forged = [changed if row.seq == seq else row for row in rows]
    for hidden in (forged, rehashed(forged)):
        verdict = verify(hidden, sealed(rows, 8))
        assert verdict.ok == (hidden == rows)


@given(st.lists(st.integers(0, 5), unique=True, min_size=6, max_size=6))
def test_no_order_but_the_written_one_is_whole(order: list[int]) -> None:
    rows = chain(6)
    assert verify(renumbered([rows[place] for place in order]), []).ok == (order == sorted(order))


def test_no_two_rows_are_hashed_as_the_same_bytes() -> None:
    assert leaf("a", 1, "bc", "d", b"") != leaf("a", 1, "b", "cd", b"")
    assert leaf("a", 1, "b", "c", b"d") != leaf("a", 1, "b", "cd", b"")


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_whose_content_was_changed_is_forged() -> None:
    rows = chain(10)
    seals = sealed(rows, 3, 8)
    assert seals[1] is not None
    seals[1] = replace(seals[1], seq=7)
    verdict = verify(rows, seals, remembered=2)
    assert places(verdict) == [(Tampering.CHECKPOINT_FORGED, 2, 2)]
    assert verdict.unprotected == 7


def test_a_checkpoint_signed_by_another_key_is_forged() -> None:
    rows = chain(10)
    mixed = [*sealed(rows, 3), *sealed(rows, 3, 8, key=OTHER_KEY)[1:]]
    assert places(verify(rows, mixed)) == [(Tampering.CHECKPOINT_FORGED, 2, 2)]


def test_checkpoints_that_are_all_signed_by_another_key_are_forged_if_the_key_is_known() -> None:
    rows = rehashed([row._replace(body=b"{}") for row in chain(10)])
    verdict = verify(rows, sealed(rows, 3, 8, key=OTHER_KEY), remembered=2, public_key=KEY.public)
    assert places(verdict) == [(Tampering.CHECKPOINT_FORGED, 1, 1), (Tampering.CHECKPOINT_FORGED, 2, 2)]


def test_a_checkpoint_that_was_taken_out_is_missed() -> None:
    rows = chain(10)
    seals = sealed(rows, 3, 5, 8)
    del seals[1]
    assert places(verify(rows, seals, remembered=3)) == [(Tampering.CHECKPOINT_MISSING, 2, 2)]


@pytest.mark.parametrize("left", [0, 1])
def test_checkpoints_that_were_cut_off_are_missed_because_the_database_remembers_them(left: int) -> None:
    rows = chain(10)
    verdict = verify(rows, sealed(rows, 3, 5, 8)[:left], remembered=3)
    assert places(verdict) == [(Tampering.CHECKPOINT_MISSING, left + 1, 3)]


def test_a_line_that_is_no_checkpoint_is_named() -> None:
    rows = chain(10)
    raw = [encode_checkpoint(seal) for seal in sealed(rows, 3, 5, 8) if seal]
    verdict = verify(rows, decode_checkpoints(raw[0] + b"\xff{}\n" + raw[2]), remembered=3)
    assert places(verdict) == [(Tampering.CHECKPOINT_FORGED, 2, 2)]


def test_a_last_line_that_a_crash_tore_off_is_no_tampering() -> None:
    rows = chain(10)
    raw = [encode_checkpoint(seal) for seal in sealed(rows, 3, 5) if seal]
    verdict = verify(rows, decode_checkpoints(raw[0] + raw[1][:40]), remembered=1)
    assert (verdict.ok, verdict.checkpoints) == (True, 1)


def test_a_verdict_reads_as_a_report() -> None:
    findings = (AuditFinding(tampering=Tampering.DELETED, first=4, last=6, message="the rows are gone"),)
    verdict = AuditVerdict(rows=7, checkpoints=1, unprotected=0, findings=findings, keys=("ab",))
    assert str(verdict) == (
        "the record was tampered with (1 finding): 7 rows, 1 checkpoint, 0 rows after the last\n"
        "  deleted: row 4 to 6: the rows are gone\n"
        "  signed by ab"
    )


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "hub.db.key"
    key = open_key(path)
    assert open_key(path) == key == read_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["hub.db.key"]


@pytest.mark.parametrize("content", [b"", b"remit-ed25519 0123\n", b"\x00\xff" * 40, b"-----BEGIN PRIVATE KEY-----"])
def test_a_damaged_key_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hub.db.key"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="does not hold an audit key") as caught:
        open_key(path)
    assert str(path) in caught.value.fault.message
    assert path.read_bytes() == content


_MAKE_KEYS = """
import sys
from pathlib import Path
from remit.runtime.signing import open_key
sys.stdin.readline()
print(*(open_key(Path(path)).seed.hex() for path in sys.argv[1:]))
"""


@pytest.mark.processes
def test_processes_that_make_the_key_at_once_end_with_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.key" for number in range(50)]
    command = [sys.executable, "-c", _MAKE_KEYS, *map(str, paths)]
    makers = [popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for maker in makers:
        assert maker.stdin
        maker.stdin.write("go\n")
        maker.stdin.flush()
    made = [maker.communicate()[0].split() for maker in makers]
    assert made == [[read_key(path).seed.hex() for path in paths]] * 4
