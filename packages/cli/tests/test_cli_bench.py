"""`remit bench`: figures of this machine."""

from pathlib import Path

from command_line import document, remit

OPERATIONS = ["delegation in one process", "request with a durable answer", "delegation over HTTP", "remit run"]


def test_every_operation_is_measured_beside_its_floor_and_nothing_is_left_behind(tmp_path: Path) -> None:
    figures = document("bench", "--seconds", "0.1", folder=tmp_path)["figures"]
    assert [each["operation"] for each in figures] == OPERATIONS
    assert all(each["us"] > 0 and each["floor_us"] > 0 and each["ratio"] > 0 for each in figures)
    assert len({each["floor"] for each in figures}) == len(figures)
    assert list(tmp_path.iterdir()) == []


def test_it_prints_a_table_that_fits(tmp_path: Path) -> None:
    done = remit("bench", "--seconds", "0.1", folder=tmp_path, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(each in done.stdout for each in OPERATIONS)
    assert max(map(len, done.stdout.splitlines())) <= 80
