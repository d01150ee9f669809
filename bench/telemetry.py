"""What tracing adds to a delegation: the same hops with spans and metrics delivered to a collector, and without.

CPU time of all threads counts, and each round ends with a hub that is closed, so that every span has been made, encoded
and sent by then. The collector, which only throws away what it is sent, is a process of its own.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from harness import Figure, cpu_seconds, main, sized
from remit_otel import send_telemetry
from team import flat_hub

COUNT, ROUNDS = sized((5_000, 5), (100, 1))

COLLECTOR = """
import http.server, sys

class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def collector() -> Generator[str]:
    """Yield the address of a collector."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def hops(folder: Path, at_once: int, endpoint: str | None, sample: float = 1.0) -> float:
    """Return the CPU microseconds of one hop."""
    hub = flat_hub(folder)
    if endpoint is not None:
        send_telemetry(hub, endpoint, sample=sample)
    gc.collect()
    start = cpu_seconds()
    async with hub:
        (await hub.ask("a", str(at_once), user="u", input=COUNT)).unwrap()
    spent = cpu_seconds() - start
    if endpoint is not None and hub.metrics.lost_spans:
        raise RuntimeError(f"{hub.metrics.lost_spans} spans were lost, so that what is measured is not all")
    return spent / COUNT * 1e6


def measure() -> list[Figure]:
    kinds = {"without": (None, 1.0), "on": (True, 1.0), "not sampled": (True, 0.0)}
    best: dict[tuple[int, str], float] = {}
    with collector() as endpoint:
        for _ in range(ROUNDS):
            for at_once in (1, 100):
                for name, (on, sample) in kinds.items():
                    with tempfile.TemporaryDirectory() as folder:
                        took = asyncio.run(hops(Path(folder), at_once, endpoint if on else None, sample))
                    best[at_once, name] = min(took, best.get((at_once, name), took))
    return [
        Figure(name=f"telemetry: {title}", value=best[at_once, name], floor=best[at_once, "without"], unit="µs")
        for at_once, name, title in (
            (1, "on", "hop, one after another, all traced"),
            (1, "not sampled", "hop, one after another, not sampled"),
            (100, "on", "hop, 100 at once, all traced"),
        )
    ]


if __name__ == "__main__":
    main(measure)
