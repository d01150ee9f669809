"""A gateway with a certificate: who trusts it connects, and a renewed one is used without a restart."""

import asyncio
import os
import socket as sockets
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from certificates import Made, certificate
from gateways import NAME, id_of, link_to
from remit.protocol.errors import RemitError
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import Certificate, GatewayListener
from remit_relay.gateway.server import Gateway
from waiting import PATIENCE_S


def trusting(made: Made) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=made.file)


def serve(folder: Path, used: Certificate, limits: GatewayLimits | None = None) -> GatewayListener:
    return GatewayListener(Gateway(folder / "gateway", name=NAME, limits=limits), certificate=used)


def replace(old: Made, new: Made) -> None:
    """Write other files in the place of those that are used, as whoever renews a certificate does."""
    for old_file, new_file in zip(old, new, strict=True):
        old_file.write_bytes(new_file.read_bytes())
        os.utime(old_file, ns=(0, 0))


async def test_devices_talk_through_a_gateway_with_a_certificate_that_they_trust(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    async with serve(tmp_path, Certificate(*made)) as at, asyncio.timeout(PATIENCE_S):
        assert at.url.startswith("wss://")
        context = trusting(made)
        async with link_to(at.url, "a", ssl=context) as a, link_to(at.url, "b", ssl=context) as b:
            await b.publish()
            await a.put(id_of("b"), 1, bytes(200_000))
            assert (await b.receive()).body == bytes(200_000)


async def test_a_renewed_certificate_is_used_from_then_on_and_connections_go_on(tmp_path: Path) -> None:
    made, renewed = certificate(tmp_path), certificate(tmp_path, "renewed")
    old, new = trusting(made), trusting(renewed)
    used = Certificate(*made)
    async with serve(tmp_path, used) as at, asyncio.timeout(PATIENCE_S), link_to(at.url, "a", ssl=old) as a:
        await a.publish()
        assert not used.look()
        replace(made, renewed)
        assert used.look()
        async with link_to(at.url, "b", ssl=new) as b:
            await b.publish()
        await a.publish()
        assert a.state == "connected"


async def test_half_a_renewal_changes_nothing_until_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, renewed = certificate(tmp_path), certificate(tmp_path, "renewed")
    old, new = trusting(made), trusting(renewed)
    used = Certificate(*made)
    async with serve(tmp_path, used) as at, asyncio.timeout(PATIENCE_S):
        made.file.write_bytes(renewed.file.read_bytes())
        os.utime(made.file, ns=(0, 0))
        assert not used.look()
        assert "the new certificate cannot be used, so the previous one stays in use: " in caplog.text
        made.key.unlink()
        assert not used.look()
        async with link_to(at.url, "a", ssl=old) as a:
            await a.publish()
        made.key.write_bytes(renewed.key.read_bytes())
        assert used.look()
        async with link_to(at.url, "a", ssl=new) as a:
            await a.publish()


async def test_who_does_not_go_about_tls_keeps_nobody_out(tmp_path: Path) -> None:
    """Asyncio knows nothing of a connection until its handshake is done, and waits a minute for that."""
    made = certificate(tmp_path)
    limits = GatewayLimits(max_unauthenticated=4, address_unauthenticated=100, hello_s=600)
    async with serve(tmp_path, Certificate(*made), limits) as at, asyncio.timeout(PATIENCE_S):
        host, port = at.url.removeprefix("wss://").split(":")
        with ExitStack() as stack:
            silent = [stack.enter_context(sockets.create_connection((host, int(port)))) for _ in range(20)]
            async with link_to(at.url, "a", ssl=trusting(made)) as a:
                await a.publish()
            for each in silent[:16]:
                each.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(each, 1) == b""


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    made, other = certificate(tmp_path), certificate(tmp_path, "other")
    with pytest.raises(RemitError, match=r"gateway\.pem with .*other\.key cannot be used: KEY_VALUES_MISMATCH"):
        Certificate(made.file, other.key)
