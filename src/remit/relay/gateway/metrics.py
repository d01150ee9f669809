"""What a gateway has done, in numbers, as Prometheus reads them; none of them tells of one device."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from remit.relay.gateway.queue import Queue

TYPE = "text/plain; version=0.0.4"

What = Literal["connection", "greeting", "device", "message"]


class GatewayMetrics:
    """What was counted since the gateway was started."""

    def __init__(self) -> None:
        self.stored = 0
        self.expired = 0
        self.forgotten = 0
        self._refused: Counter[tuple[What, str]] = Counter()

    def refuse(self, what: What, why: str) -> None:
        """Count something that was not taken."""
        self._refused[what, why] += 1

    def page(self, held: Queue, *, connections: int, is_well: bool) -> str:
        """Return the numbers as Prometheus reads them."""
        lines = (
            *_one("up", "gauge", "1: it can write; 0: it cannot, or is about to end.", int(is_well)),
            *_one("connections", "gauge", "Devices that are connected.", connections),
            *_one("devices", "gauge", "Devices that are known.", held.devices),
            *_one("queued_messages", "gauge", "Messages that wait for their receivers.", held.all.messages),
            *_one("queued_bytes", "gauge", "What these take.", held.all.size),
            *_one("held_bytes", "gauge", "What everything takes that is kept, against max_bytes.", held.size()),
            *_one("max_bytes", "gauge", "What it may take.", held.limits.total_bytes),
            *_one("messages_total", "counter", "Messages that were taken.", self.stored),
            *_one("expired_total", "counter", "Messages that nobody fetched in time.", self.expired),
            *_one("forgotten_devices_total", "counter", "Devices that were not there for too long.", self.forgotten),
            *self._refusals(),
        )
        return "".join(f"{line}\n" for line in lines)

    def _refusals(self) -> Iterator[str]:
        yield from _head("refusals_total", "counter", "What was not taken, and why.")
        for (what, why), count in sorted(self._refused.items()):
            yield f'remit_gateway_refusals_total{{what="{what}",why="{why}"}} {count}'


def _one(name: str, kind: str, meaning: str, value: int) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    yield f"remit_gateway_{name} {value}"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP remit_gateway_{name} {meaning}"
    yield f"# TYPE remit_gateway_{name} {kind}"
