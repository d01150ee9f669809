"""One trace through two hubs, each a process of its own: `remit run` here, `remit serve` there."""

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags

from collector import Collector, Got, values_of
from command_line import environment
from commands import REMIT, popen, run_program
from remit_otel import names
from waiting import PATIENCE_S

TOKEN = "a-token-that-both-hubs-know"

NORTH = """
name = "north"

[store]
durability = "process"

[agents.clerk]
run = "north_code:clerk"
may_call = ["archive"]
tools = ["look"]

[agents.archive]
run = "north_code:archive"

[tools.look]
run = "north_code:look"

[peers.south]
token = "$SHARED"
agents = ["clerk"]

[telemetry]
"""
NORTH_CODE = """
async def clerk(brief):
    await brief.use("look", at="the shelf")
    found = await brief.delegate("archive", objective="find it", reason="it is old")
    locked = await brief.delegate("vault", objective="open it")
    return f"{found.result}, {locked.fault.code}"

async def archive(brief):
    return "found"

async def look(at: str) -> str:
    return "nothing there"
"""
SOUTH = """
name = "south"

[store]
durability = "process"

[agents.boss]
run = "south_code:boss"
may_call = ["clerk", "ghost"]

[agents.clerk]
peer = "north"

[agents.ghost]
peer = "north"

[peers.north]
url = "{address}"
token = "$SHARED"

[telemetry]
endpoint = "{endpoint}"
"""
SOUTH_CODE = """
async def boss(brief):
    reply = await brief.delegate("clerk", objective="Where is it?", reason="it has the files")
    gone = await brief.delegate("ghost", objective="Where are you?")
    return f"{reply.result}, {gone.fault.code}"
"""


@contextmanager
def serving(folder: Path, **variables: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Serve the team in a folder, and yield the process with its address."""
    process = popen(
        [REMIT, "serve", "--json", "--port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)["address"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def team(folder: Path, name: str, file: str, code: str) -> Path:
    home = folder / name
    home.mkdir()
    (home / "remit.toml").write_text(file)
    (home / f"{name}_code.py").write_text(code)
    return home


def test_one_trace_leads_through_both_hubs(tmp_path: Path) -> None:
    """C9, decision 9: ids, parents, names, kinds and statuses on both sides of the wire."""
    north = team(tmp_path, "north", NORTH, NORTH_CODE)
    with (
        Collector() as collector,
        serving(north, SHARED=TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as (server, address),
    ):
        south = SOUTH.format(address=address, endpoint=collector.endpoint)
        done = run_program(
            [REMIT, "run", "boss", "Find the file", "--json"],
            folder=team(tmp_path, "south", south, SOUTH_CODE),
            variables=environment(SHARED=TOKEN),
        )
        assert done.returncode == 0, done.stderr
        server.send_signal(signal.SIGINT)
        _, output = server.communicate(timeout=PATIENCE_S)
        assert server.returncode == 0, output
        answer, spans, metrics = json.loads(done.stdout), collector.spans, collector.metrics

    assert answer["result"] == "found, AGENT_NOT_FOUND, AGENT_NOT_FOUND"
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    assert {span.trace for span in spans} == {answer["run"]}

    def line(span: Got) -> tuple[str, str, str, bool]:
        return span.service, span.name, span.kind, span.failed

    def place(span: Got) -> tuple[tuple[str, str, str, bool], ...]:
        return (line(span), *place(by_id[span.parent])) if span.parent else (line(span),)

    boss = ("south", "invoke_agent boss", "INTERNAL", False)
    asks = ("south", "invoke_agent clerk", "CLIENT", False)
    answers = ("north", "invoke_agent clerk", "SERVER", False)
    assert sorted(place(span) for span in spans) == sorted(
        [
            (boss,),
            (asks, boss),
            (("south", "invoke_agent ghost", "CLIENT", True), boss),
            (answers, asks, boss),
            (("north", "execute_tool look", "INTERNAL", False), answers, asks, boss),
            (("north", "invoke_agent archive", "INTERNAL", False), answers, asks, boss),
            (("north", "invoke_agent vault", "INTERNAL", True), answers, asks, boss),
        ]
    )
    (served,) = (span for span in spans if span.kind == "SERVER")
    (above,) = (span for span in spans if span.id == served.parent)
    assert served.span.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    assert served.span.start_time_unix_nano >= above.span.start_time_unix_nano
    assert served.span.end_time_unix_nano <= above.span.end_time_unix_nano
    told_there, told_here = served.attributes, above.attributes
    assert (told_there[names.DEPTH], told_there[names.CHAIN], told_there[names.VIA]) == (1, ["boss@south"], "south")
    assert told_there[names.ORIGIN] == "boss@south"
    assert (told_here[names.REASON], told_there[names.REASON]) == ("it has the files", "it has the files")
    (archive,) = (span for span in spans if span.name == "invoke_agent archive")
    assert archive.attributes[names.CHAIN] == ["boss@south", "clerk@north"]
    (vault,) = (span for span in spans if span.name == "invoke_agent vault")
    assert vault.attributes[names.ERROR] == "AGENT_NOT_FOUND"
    ended = metrics[names.ENDED].sum.data_points  # the server was closed last
    assert {values_of(each.attributes)[names.AGENT_NAME]: each.as_int for each in ended} == {"clerk": 1, "archive": 1}
    assert "Find the file" not in repr(collector.bodies)
