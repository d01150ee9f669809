"""Runs a gateway in the foreground until it is stopped."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
from msgspec import Struct, ValidationError, convert, structs

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import StoreError
from remit_cli.config.checks import secret_of
from remit_cli.config.team_search import make_private
from remit_cli.config.values import DatabaseUrl, Duration, duration, duration_ms
from remit_cli.drive.running import Data
from remit_relay.gateway.limits import DAY_S, GatewayLimits, HourlyRate, Network, networks
from remit_relay.gateway.listener import Certificate, serve_gateway
from remit_relay.gateway.ports import GatewayStore
from remit_server.documents.shared import GatewayUp

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([KMGT]?B)", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
# Files that the gateway itself needs: its store and log, its socket, Python's own.
_OTHER_FILES = 64
_LOCAL = ("127.0.0.1", "::1", "localhost")


class DatabaseOptions(Struct, frozen=True, kw_only=True):
    """The database that gateways share, as given on the command line."""

    url: str
    password: str | None
    """The environment variable with the password, as `$NAME`."""
    pooler: bool

    def store(self) -> GatewayStore:
        """Return the store, not open yet."""
        try:
            convert(self.url, DatabaseUrl)
        except ValidationError as error:
            why = 'expected the address of a database without a password, such as "postgresql://remit@host/remit"'
            raise click.UsageError(f"--store: {why}") from error
        try:
            password = None if self.password is None else secret_of(self.password)
        except ValueError as error:
            raise click.UsageError(f"--store-password: {error}") from error
        try:
            from remit_relay.gateway.postgres.store import PostgresGatewayStore  # the driver is an extra
        except ImportError as error:
            why = "a store in PostgreSQL needs the extra `postgres`"
            todo = "Install it where the gateway runs: pip install 'remit[postgres]'"
            raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=todo)) from error
        return PostgresGatewayStore(self.url, password=password, pooler=self.pooler)


async def run_gateway(
    folder: Path,
    *,
    database: DatabaseOptions | None,
    name: str,
    host: str,
    port: int,
    limits: GatewayLimits,
    proxies: Sequence[Network],
    watchers: Sequence[Network],
    certificate: Certificate | None,
    data: Data | None,
) -> int:
    """Run a gateway until it is stopped, and return the exit code. It uses *folder* if there is no *database*."""
    store: Path | GatewayStore = folder
    if database is not None:
        store = database.store()
    else:
        _make(folder)

    def started(address: str) -> None:
        if data is not None:
            kept = {"folder": str(folder)} if database is None else {"store": database.url}
            data.document(GatewayUp(name=name, address=address, **kept))
            return
        click.echo(
            f"Gateway {name} is running at {address} (Ctrl-C to stop). Team file of its devices:",
            err=True,
        )
        click.echo(f'  [relay]\n  gateway = "{address}"', err=True)
        if name != urlsplit(address).hostname:
            click.echo(f'  name = "{name}"', err=True)
        if certificate is None and not proxies and host not in _LOCAL:
            click.echo(
                "Without a certificate, others on the network can see who sends to whom, but not the content. "
                "Set a certificate, or use a TLS proxy in front.",
                err=True,
            )

    await serve_gateway(
        store,
        name=name,
        host=host,
        port=port,
        limits=within_files(limits),
        proxies=proxies,
        watchers=watchers or None,
        certificate=certificate,
        started=started,
    )
    click.echo("Stopped. Undelivered messages are kept.", err=True)
    return 0


def _make(folder: Path) -> None:
    try:
        make_private(folder)
    except OSError as error:
        why = f"cannot use {folder}: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Choose another with --folder.")) from error


def certificate_of(certificate: Path | None, key: Path | None) -> Certificate | None:
    """Return the TLS certificate, if one was given."""
    return None if certificate is None or key is None else Certificate(certificate, key)


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """The limits of a gateway, as given on the command line."""

    message_retention: str
    device_retention: str
    max_bytes: str
    max_devices: int
    max_connections: int
    max_connections_per_address: int
    max_new_devices_per_address: int


def limits_of(asked: GatewayOptions) -> GatewayLimits:
    """Return the limits, or raise a `UsageError` that names the invalid option."""
    usual = GatewayLimits()
    keep_s = _seconds("--message-retention", asked.message_retention)
    forget_s = _seconds("--device-retention", asked.device_retention)
    least_s = max(keep_s, usual.repeat_days * DAY_S)
    if forget_s < least_s:
        said = duration(least_s * 1_000)
        why = "since messages may wait for a device that long"
        raise click.UsageError(f"--device-retention: must be at least {said}, {why}")
    return structs.replace(
        usual,
        keep_s=keep_s,
        forget_s=forget_s,
        total_bytes=_bytes("--max-bytes", asked.max_bytes),
        max_devices=asked.max_devices,
        max_connections=asked.max_connections,
        address_connections=asked.max_connections_per_address,
        address_devices=HourlyRate(burst=asked.max_new_devices_per_address, per_hour=asked.max_new_devices_per_address),
    )


def networks_of(option: str, texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Return the addresses and networks that an option names, or raise a `UsageError`."""
    try:
        return networks(texts)
    except ValueError as error:
        raise click.UsageError(
            f"{option}: {error}; expected an address or a network, such as 10.0.0.7 or 10.0.0.0/8"
        ) from error


def within_files(limits: GatewayLimits) -> GatewayLimits:
    """Raise the open-file limit as far as allowed, and return limits that fit it."""
    from remit_server.transports.addresses import open_files

    needed = limits.max_connections + limits.max_unauthenticated + _OTHER_FILES
    most = open_files(needed)
    if most == needed:
        return limits
    left = max(1, most - limits.max_unauthenticated - _OTHER_FILES)
    click.echo(f"Only {left} devices can connect, because this user may open {most} files (ulimit -n).", err=True)
    return structs.replace(limits, max_connections=left)


def _seconds(option: str, text: str) -> float:
    try:
        found = duration_ms(convert(text, Duration))
    except (ValidationError, ValueError) as error:
        raise click.UsageError(f"{option}: expected a duration, such as 12h or 30d, got `{text}`") from error
    if found < 1_000:
        raise click.UsageError(f"{option}: must be at least one second")
    return found / 1_000


def _bytes(option: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or not (size := round(float(found[1]) * _UNITS[found[2].upper()])):
        raise click.UsageError(f"{option}: expected a size, such as 500MB or 16GB, got `{text}`")
    return size
