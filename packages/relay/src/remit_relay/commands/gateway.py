"""Runs a gateway in the foreground until it is stopped."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from msgspec import ValidationError, convert, structs

from remit.installed import install_command
from remit.ports import StoreError
from remit.protocol.errors import Code, RemitError, fault
from remit_cli.config.checks import secret_of
from remit_cli.config.team_search import make_private
from remit_cli.config.values import DatabaseUrl, Duration, duration, duration_ms
from remit_cli.drive import running
from remit_cli.drive.running import data_only, logging_to
from remit_relay.gateway.limits import DAY_S, GatewayLimits, HourlyRate, Network, networks
from remit_relay.gateway.listener import Certificate, serve_gateway
from remit_relay.gateway.ports import GatewayStore
from remit_server.documents.shared import GatewayUp

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([KMGT]?B)", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
# Files that the gateway itself needs: its store and log, its socket, Python's own.
_OTHER_FILES = 64
_LOCAL = ("127.0.0.1", "::1", "localhost")
# Listening on this address means listening on all; no device can reach a gateway by this name.
_EVERYWHERE = ("0.0.0.0", "::", "")


def serve(
    *,
    host: str,
    port: int,
    folder: Path,
    store: str | None,
    store_password: str | None,
    store_pooler: bool,
    name: str | None,
    certificate: Path | None,
    private_key: Path | None,
    proxies: tuple[str, ...],
    watchers: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    **limits: Any,
) -> None:
    """Do what `remit relay` says; *limits* are the options of `limits_of`."""
    if name is None and host in _EVERYWHERE:
        raise click.UsageError("give the host name that devices use, as in --name relay.example.com")
    if (certificate is None) != (private_key is None):
        raise click.UsageError("--certificate and --private-key must be given together")
    if store is None and (store_password is not None or store_pooler):
        raise click.UsageError("--store-password and --store-pooler need --store")
    name, limits_wanted = name or host, limits_of(**limits)
    trusted, watching = networks_of("--behind-proxy", proxies), networks_of("--metrics-for", watchers)
    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        tls = None if certificate is None or private_key is None else Certificate(certificate, private_key)
        kept = _folder(folder) if store is None else _database(store, store_password, pooler=store_pooler)

        def started(address: str) -> None:
            if as_json:
                where = {"folder": str(folder)} if store is None else {"store": store}
                data.document(GatewayUp(name=name, address=address, **where))
                return
            click.echo(f"Gateway {name} is running at {address} (Ctrl-C to stop). Team file of its devices:", err=True)
            click.echo(f'  [relay]\n  gateway = "{address}"', err=True)
            if name != urlsplit(address).hostname:
                click.echo(f'  name = "{name}"', err=True)
            if tls is None and not trusted and host not in _LOCAL:
                click.echo(
                    "Without a certificate, others on the network can see who sends to whom, but not the content. "
                    "Set a certificate, or use a TLS proxy in front.",
                    err=True,
                )

        async def work() -> int:
            await serve_gateway(
                kept,
                name=name,
                host=host,
                port=port,
                limits=within_files(limits_wanted),
                proxies=trusted,
                watchers=watching or None,
                certificate=tls,
                started=started,
            )
            click.echo("Stopped. Undelivered messages are kept.", err=True)
            return 0

        code, stuck = running.run(work())
        if stuck:
            running.leave(code)
        raise SystemExit(code)


def _database(url: str, password: str | None, *, pooler: bool) -> GatewayStore:
    """Return the store at *url*, not open yet; *password* is the environment variable that has it, as `$NAME`."""
    try:
        convert(url, DatabaseUrl)
    except ValidationError as error:
        why = 'expected the address of a database without a password, such as "postgresql://remit@host/remit"'
        raise click.UsageError(f"--store: {why}") from error
    try:
        secret = None if password is None else secret_of(password)
    except ValueError as error:
        raise click.UsageError(f"--store-password: {error}") from error
    try:
        from remit_relay.gateway.postgres.store import PostgresGatewayStore  # the driver is an extra
    except ImportError as error:
        why = "a store in PostgreSQL needs the extra `postgres`"
        todo = f"Install it where the gateway runs: {install_command('postgres')}"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=todo)) from error
    return PostgresGatewayStore(url, password=secret, pooler=pooler)


def _folder(folder: Path) -> Path:
    """Return a folder that only this user can read, created if it does not exist."""
    try:
        make_private(folder)
    except OSError as error:
        why = f"cannot use {folder}: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Choose another with --folder.")) from error
    return folder


def limits_of(
    *,
    message_retention: str,
    device_retention: str,
    max_bytes: str,
    max_devices: int,
    max_connections: int,
    max_connections_per_address: int,
    max_new_devices_per_address: int,
) -> GatewayLimits:
    """Return the limits that the options name, or raise a `UsageError` that names the invalid option."""
    usual = GatewayLimits()
    keep_s = _seconds("--message-retention", message_retention)
    forget_s = _seconds("--device-retention", device_retention)
    least_s = max(keep_s, usual.repeat_days * DAY_S)
    if forget_s < least_s:
        least = duration(least_s * 1_000)
        why = "since messages may wait for a device that long"
        raise click.UsageError(f"--device-retention: must be at least {least}, {why}")
    return structs.replace(
        usual,
        keep_s=keep_s,
        forget_s=forget_s,
        total_bytes=_bytes("--max-bytes", max_bytes),
        max_devices=max_devices,
        max_connections=max_connections,
        address_connections=max_connections_per_address,
        address_devices=HourlyRate(burst=max_new_devices_per_address, per_hour=max_new_devices_per_address),
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
        time_ms = duration_ms(convert(text, Duration))
    except (ValidationError, ValueError) as error:
        raise click.UsageError(f"{option}: expected a duration, such as 12h or 30d, got `{text}`") from error
    if time_ms < 1_000:
        raise click.UsageError(f"{option}: must be at least one second")
    return time_ms / 1_000


def _bytes(option: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not (size := round(float(match[1]) * _UNITS[match[2].upper()])):
        raise click.UsageError(f"{option}: expected a size, such as 500MB or 16GB, got `{text}`")
    return size
