"""The network between hubs and servers, which can be cut for one hub at a time.

`ProxyNetwork` works everywhere. `NamespaceNetwork` gives each hub a network namespace of its own, behind a bridge: it
needs root and the program `ip`.
"""

import os
import random
import shutil
import socket
import subprocess
from contextlib import suppress
from typing import Literal, Protocol

from chaos.proxy import Cut, TcpProxy

Service = Literal["store", "bus"]


class Network(Protocol):
    """Where servers and hubs are, and how a hub is cut off."""

    name: str

    def server_host(self, service: Service) -> str:
        """Return the address at which the servers of a service listen."""
        ...

    async def open(self, hubs: list[str], services: dict[Service, list[int]]) -> None: ...

    def seen(self, hub: str, service: Service) -> list[tuple[str, int]]:
        """Return where a hub finds the servers of a service."""
        ...

    def hub_host(self, hub: str) -> str:
        """Return the address at which a hub listens."""
        ...

    def namespace(self, hub: str) -> str | None: ...

    def cut(self, hub: str, services: set[Service], how: Cut) -> None:
        """Cut a hub off from services."""
        ...

    def heal(self, hub: str) -> None: ...

    async def close(self) -> None: ...


class ProxyNetwork:
    """A proxy for each hub and each server, on the loopback interface."""

    name = "proxies"

    def __init__(self) -> None:
        self._proxies: dict[tuple[str, Service], list[TcpProxy]] = {}

    def server_host(self, service: Service) -> str:
        return "127.0.0.1"

    async def open(self, hubs: list[str], services: dict[Service, list[int]]) -> None:
        for hub in hubs:
            for service, ports in services.items():
                made = self._proxies[hub, service] = [TcpProxy(port) for port in ports]
                for proxy in made:
                    await proxy.open()

    def seen(self, hub: str, service: Service) -> list[tuple[str, int]]:
        return [("127.0.0.1", proxy.port) for proxy in self._proxies[hub, service]]

    def hub_host(self, hub: str) -> str:
        return "127.0.0.1"

    def namespace(self, hub: str) -> str | None:
        return None

    def cut(self, hub: str, services: set[Service], how: Cut) -> None:
        for service in services:
            for proxy in self._proxies[hub, service]:
                proxy.cut(how)

    def heal(self, hub: str) -> None:
        for (name, _), proxies in self._proxies.items():
            if name == hub:
                for proxy in proxies:
                    proxy.heal()

    async def close(self) -> None:
        for proxies in self._proxies.values():
            for proxy in proxies:
                await proxy.close()


def namespaces_work() -> bool:
    """Return whether this process may make network namespaces, bridges and links."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"remit-try-{os.getpid()}"
    made = subprocess.run(["ip", "link", "add", name[:15], "type", "bridge"], capture_output=True, check=False)
    if made.returncode != 0:
        return False
    subprocess.run(["ip", "link", "del", name[:15]], capture_output=True, check=False)
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return tried.returncode == 0


class NamespaceNetwork:
    """A network namespace for each hub. The store is at .1, the bus at .2, the hubs from .11 on."""

    name = "namespaces"

    def __init__(self) -> None:
        # The network 198.18.0.0/15 is set aside for tests; two runs at once seldom choose the same part of it.
        self._network = f"198.18.{random.SystemRandom().randrange(256)}"
        self._tag = f"rc{os.getpid() % 1_000_000}"
        self._places: dict[str, int] = {}
        self._ports: dict[Service, list[int]] = {}
        self._cleaner: subprocess.Popen[bytes] | None = None

    def server_host(self, service: Service) -> str:
        return f"{self._network}.{1 if service == 'store' else 2}"

    async def open(self, hubs: list[str], services: dict[Service, list[int]]) -> None:
        self._ports = services
        self._places = {hub: number for number, hub in enumerate(hubs, 1)}
        names = " ".join(f"ip netns del {self._tag}-{hub};" for hub in hubs)
        # Also when this process is killed: the pipe is closed then.
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", f"read _; {names} ip link del {self._tag}br"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        bridge = f"{self._tag}br"
        _ip("link", "add", bridge, "type", "bridge")
        for service in services:
            _ip("addr", "add", f"{self.server_host(service)}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for hub in hubs:
            space, near, far = f"{self._tag}-{hub}", self._link(hub), f"{self._tag}f{self._places[hub]}"
            _ip("netns", "add", space)
            _ip("link", "add", near, "type", "veth", "peer", "name", far)
            _ip("link", "set", near, "master", bridge, "up")
            _ip("link", "set", far, "netns", space)
            _ip("-n", space, "addr", "add", f"{self.hub_host(hub)}/24", "dev", far)
            _ip("-n", space, "link", "set", far, "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _link(self, hub: str) -> str:
        return f"{self._tag}n{self._places[hub]}"

    def seen(self, hub: str, service: Service) -> list[tuple[str, int]]:
        return [(self.server_host(service), port) for port in self._ports[service]]

    def hub_host(self, hub: str) -> str:
        return f"{self._network}.{10 + self._places[hub]}"

    def namespace(self, hub: str) -> str | None:
        return f"{self._tag}-{hub}"

    def cut(self, hub: str, services: set[Service], how: Cut) -> None:
        """Cut a hub off; from everything, clients too, if it is cut off from both services."""
        if len(services) > 1:
            _ip("link", "set", self._link(hub), "down")
            return
        kind = "unreachable" if how == "refused" else "blackhole"
        for service in services:
            _ip("-n", f"{self._tag}-{hub}", "route", "add", kind, f"{self.server_host(service)}/32")

    def heal(self, hub: str) -> None:
        _ip("link", "set", self._link(hub), "up")
        for service in self._ports:
            for kind in ("unreachable", "blackhole"):
                with suppress(RuntimeError):  # it was not cut this way
                    _ip("-n", f"{self._tag}-{hub}", "route", "del", kind, f"{self.server_host(service)}/32")

    async def close(self) -> None:
        if self._cleaner is not None:
            self._cleaner.communicate()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.decode().strip()}")


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at and that the system gives to no outgoing connection."""
    found: list[int] = []
    chance = random.SystemRandom()
    while len(found) < count:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("0.0.0.0", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
