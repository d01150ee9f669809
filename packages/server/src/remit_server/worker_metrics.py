"""The metrics of a server with several worker processes: whichever worker is asked answers for all of them."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("remit")

# A worker that does not answer by then is left out: a scrape has ten seconds in all.
ANSWER_S = 2.0

# Metrics that are not added up. All workers share the store: whether it can write is said by the worker that is asked.
_WORST = {"remit_breaker": max, "remit_ready": min}


class WorkerPlace(NamedTuple):
    """The place of a worker process among those of one server."""

    number: int
    """Counted from 1."""
    workers: int
    folder: Path
    """Where the workers' own sockets are."""

    def socket(self, number: int) -> Path:
        """Return the socket at which a worker tells its metrics."""
        return self.folder / f"{number}.sock"


class WorkerMetrics:
    """Tells this worker's metrics to the other workers, and adds theirs to a page."""

    def __init__(self, place: WorkerPlace) -> None:
        self._place = place
        self._server: asyncio.Server | None = None

    async def open(self, page: Callable[[], bytes]) -> None:
        """Tell other workers this worker's metrics from now on; *page* returns them."""

        async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001 - asyncio's
            writer.write(page())
            writer.close()

        path = self._place.socket(self._place.number)
        path.unlink(missing_ok=True)  # of a worker that was killed
        self._server = await asyncio.start_unix_server(tell, path)

    async def close(self) -> None:
        """Tell nothing more."""
        if self._server is not None:
            self._server.close()

    async def of_all(self, own: bytes) -> bytes:
        """Return the metrics of all workers together, given those of this one."""
        others = [number for number in range(1, self._place.workers + 1) if number != self._place.number]
        return combined([own, *filter(None, await asyncio.gather(*map(self._ask, others)))])

    async def _ask(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._place.socket(number))
                try:
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            log.warning("worker %d does not tell its metrics, and is left out of the page", number)
            return b""


def combined(pages: list[bytes]) -> bytes:
    """Return one page from pages in the text format of Prometheus: numbers of the same name and labels are added."""
    values: dict[str, float] = {}
    heads: dict[str, list[str]] = {}
    order: dict[str, list[str]] = {}
    for page in pages:
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if line not in known:
                    known.append(line)
                continue
            sample, _, text = line.rpartition(" ")
            value = float(text)
            if sample in values:
                values[sample] = _WORST[family](values[sample], value) if family in _WORST else values[sample] + value
            else:
                values[sample] = value
                order.setdefault(family, []).append(sample)
    lines = [
        line
        for family, head in heads.items()
        for line in (*head, *(f"{sample} {values[sample]:.15g}" for sample in order.get(family, ())))
    ]
    return "".join(f"{line}\n" for line in lines).encode()
