"""Metrics of a gateway in the Prometheus text format; none of them is about a single device."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from remit_relay.gateway.ports import StoreSize

TYPE = "text/plain; version=0.0.4"

What = Literal["connection", "greeting", "device", "message", "pairing"]


class GatewayMetrics:
    """Counters since the gateway was started."""

    def __init__(self) -> None:
        self.stored = 0
        self.expired = 0
        self.forgotten = 0
        self._refused: Counter[tuple[What, str]] = Counter()

    def refuse(self, what: What, why: str) -> None:
        """Count a refusal."""
        self._refused[what, why] += 1

    def page(self, held: StoreSize, *, max_bytes: int, connections: int, is_well: bool) -> str:
        """Return the metrics in the Prometheus text format."""
        lines = (
            *_one("up", "gauge", "1: the gateway can write; 0: it cannot, or is shutting down.", int(is_well)),
            *_one("connections", "gauge", "Connected devices.", connections),
            *_one("devices", "gauge", "Known devices.", held.devices),
            *_one("queued_messages", "gauge", "Messages waiting for their receivers.", held.messages),
            *_one("queued_bytes", "gauge", "Size of the waiting messages.", held.queued_bytes),
            *_one("held_bytes", "gauge", "Size of everything that is stored, limited by max_bytes.", held.total_bytes),
            *_one("max_bytes", "gauge", "Limit of held_bytes.", max_bytes),
            *_one("messages_total", "counter", "Messages accepted.", self.stored),
            *_one("expired_total", "counter", "Messages deleted because they were not fetched in time.", self.expired),
            *_one(
                "forgotten_devices_total",
                "counter",
                "Devices forgotten after a long absence.",
                self.forgotten,
            ),
            *self._refusals(),
        )
        return "".join(f"{line}\n" for line in lines)

    def _refusals(self) -> Iterator[str]:
        yield from _head("refusals_total", "counter", "Refusals by kind and reason.")
        for (what, why), count in sorted(self._refused.items()):
            yield f'remit_gateway_refusals_total{{what="{what}",why="{why}"}} {count}'


def _one(name: str, kind: str, meaning: str, value: int) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    yield f"remit_gateway_{name} {value}"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP remit_gateway_{name} {meaning}"
    yield f"# TYPE remit_gateway_{name} {kind}"
