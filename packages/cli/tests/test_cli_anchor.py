"""`remit audit anchor`, and `remit audit verify` against what was kept elsewhere."""

import asyncio
import json
import shutil
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from command_line import remit
from remit.protocol.records import Kind
from remit.runtime.signing import read_key
from remit.stores.sqlite import SqliteStore
from remit_cli.audit import audit
from remit_cli.doctor_checks import store
from remit_testing.samples import progress

FILES = ("hub.db", "hub.db.checkpoints", "hub.db.key")


async def write(path: Path, records: int = 5) -> None:
    store = SqliteStore(path, durability="process")
    await store.open()
    for number in range(records):
        store.append(Kind.PROGRESS, 1, "run", "session", progress(str(number)))
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    asyncio.run(write(tmp_path / "hub.db"))
    return tmp_path / "hub.db"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit, arguments)


def tamperings(result: Result) -> list[str]:
    return [each["tampering"] for each in json.loads(result.stdout)["findings"]]


def test_an_anchor_is_one_line_of_json_and_says_what_it_does_not_cover(path: Path) -> None:
    done = run("anchor", "--store", str(path))
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    line = json.loads(done.stdout)
    assert (line["schema"], line["number"], line["seq"]) == ("remit.audit-checkpoint/1", 1, 5)
    assert done.stderr == "0 rows after it are not covered.\n"


@pytest.mark.parametrize("form", ["line", "file", "log", "export", "checkpoints"])
def test_a_rollback_of_all_files_is_found_by_an_anchor_in_any_form(path: Path, form: str) -> None:
    older = path.parent / "older"
    older.mkdir()
    for name in FILES:
        shutil.copy2(path.parent / name, older / name)
    asyncio.run(write(path))
    line = run("anchor", "--store", str(path)).stdout
    kept = path.parent / "kept"
    if form == "export":
        assert run("export", "--store", str(path), "-o", str(kept)).exit_code == 0
    elif form == "checkpoints":
        shutil.copy(path.with_name("hub.db.checkpoints"), kept)
    else:
        kept.write_text(f"Nov 16 10:00:00 host remit[7]: started\nNov 16 10:00:01 host remit[7]: {line}")
    given = line if form == "line" else str(kept)
    whole = run("verify", str(path), "--anchor", given, "--json")
    assert (whole.exit_code, tamperings(whole)) == (0, [])
    assert json.loads(whole.stdout)["anchors"] == (2 if form in ("export", "checkpoints") else 1)
    for name in FILES:
        shutil.copy2(older / name, path.parent / name)
    assert run("verify", str(path)).exit_code == 0
    rolled_back = run("verify", str(path), "--anchor", given, "--json")
    assert (rolled_back.exit_code, tamperings(rolled_back)) == (1, ["checkpoint missing", "rolled back"])


def test_anchors_are_appended_to_a_file(path: Path) -> None:
    kept = path.parent / "anchors.jsonl"
    for _ in range(2):
        assert run("anchor", "--store", str(path), "-o", str(kept)).exit_code == 0
        asyncio.run(write(path))
    assert [json.loads(line)["number"] for line in kept.read_text().splitlines()] == [1, 2]
    checked = run("verify", str(path), "--anchor", str(kept))
    assert (checked.exit_code, "agrees with 2 anchors" in checked.stdout) == (0, True)


@pytest.mark.parametrize("form", ["text", "file", "pem"])
def test_a_key_is_pinned_as_text_or_as_a_file(path: Path, form: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = read_key(path.with_name("hub.db.key")).public
    file = path.parent / "hub.pub"
    file.write_text(public.hex() + "\n")
    if form == "pem":
        key = Ed25519PublicKey.from_public_bytes(public)
        file.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert run("verify", str(path), "--public-key", public.hex() if form == "text" else str(file)).exit_code == 0
    other = run("verify", str(path), "--public-key", "00" * 32, "--json")
    assert (other.exit_code, tamperings(other)) == (1, ["checkpoint forged", "key signed nothing", "unsigned"])


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--public-key", "hub.pub", "`hub.pub` is not a file and not a public key"),
        ("--public-key", "hub.db.key", "it is the secret key of a store"),
        ("--anchor", "nowhere.jsonl", "`nowhere.jsonl`: no such file, and not an anchor"),
        ("--anchor", "empty", "contains no anchor"),
        ("--anchor", '{"number":1,"seq":"x"}', "line 1 holds a damaged anchor"),
    ],
)
def test_what_is_neither_a_key_nor_an_anchor_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, option: str, given: str, says: str
) -> None:
    monkeypatch.chdir(path.parent)
    Path("empty").touch()
    done = run("verify", "hub.db", option, given)
    assert done.exit_code == 2
    assert says in done.stderr
    assert option in done.stderr


def test_doctor_tells_an_announced_break_from_tampering(path: Path) -> None:
    path.with_name("hub.db.key").unlink()
    asyncio.run(write(path))
    (announced,) = [check for check in store(path) if check.about == "audit"]
    assert (announced.state, "a hub reported a break in the record: key changed" in announced.says) == (
        "warning",
        True,
    )
    path.with_name("hub.db.checkpoints").unlink()
    (tampered,) = [check for check in store(path) if check.about == "audit"]
    assert tampered.state == "problem"


# ── a service that keeps anchors ──────────────────────────────────────────────────────────────────────────────────────


class Notary(BaseHTTPRequestHandler):
    """Takes notes, unless it is asked at `/full`."""

    taken: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/full":
            self.send_response(507)
        else:
            self.taken.append(body)
            self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def notary() -> Generator[str]:
    Notary.taken = []
    server = HTTPServer(("127.0.0.1", 0), Notary)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_anchor_is_posted_to_an_address(path: Path, notary: str) -> None:
    done = run("anchor", "--store", str(path), "--post", f"{notary}/anchors", "--private")
    assert (done.exit_code, done.stdout) == (0, "")
    (posted,) = Notary.taken
    assert json.loads(posted)["seq"] == 5
    assert run("verify", str(path), "--anchor", posted.decode()).exit_code == 0


def test_nothing_is_posted_into_a_private_network_unless_allowed(path: Path, notary: str) -> None:
    done = remit("audit", "anchor", "--store", "hub.db", "--post", notary, folder=path.parent)
    assert (done.returncode, Notary.taken) == (4, [])
    assert "→ Use a public address, or allow this one with --private." in done.stderr


def test_a_service_that_does_not_take_it_is_an_error(path: Path, notary: str) -> None:
    done = remit("audit", "anchor", "--store", "hub.db", "--post", f"{notary}/full", "--private", folder=path.parent)
    assert done.returncode == 7
    assert "status 507" in done.stderr


def test_a_record_without_a_checkpoint_has_no_anchor(path: Path) -> None:
    path.with_name("hub.db.checkpoints").unlink()
    done = remit("audit", "anchor", "--store", "hub.db", folder=path.parent)
    assert (done.returncode, done.stdout) == (7, "")
    assert "no checkpoint was written yet" in done.stderr


def test_a_checkpoint_that_does_not_fit_the_record_is_no_anchor(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as database:
        database.execute("UPDATE record SET digest = zeroblob(32) WHERE seq = 5")
    database.close()
    done = remit("audit", "anchor", "--store", "hub.db", folder=path.parent)
    assert (done.returncode, done.stdout) == (7, "")
    assert "→ Check it with `remit audit verify`." in done.stderr
