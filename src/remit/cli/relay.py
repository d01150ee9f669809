"""`remit relay`: a gateway between devices, which can read nothing of what it carries."""

from pathlib import Path

import click

from remit.cli.options import json_option

FOLDER = Path(".remit/relay")
PORT = 8_765
# Listening there is listening everywhere; no device can reach a gateway by that name.
EVERYWHERE = ("0.0.0.0", "::", "")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port; 0 is any that is free.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Where it keeps what waits for devices that are not there.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="What it calls itself, best the host by which devices reach it. Without it: --host.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The certificate for wss, a PEM file. Not needed behind a proxy that has one.",
)
@click.option(
    "--private-key", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Its key, a PEM file."
)
@click.option(
    "--behind-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy's address or network: whom its X-Forwarded-For names counts. May be given several times.",
)
@click.option(
    "--keep",
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="What nobody fetches for so long is deleted, and its sender told.",
)
@click.option(
    "--forget",
    default="365d",
    show_default=True,
    metavar="DURATION",
    help="A device that was not there for so long is forgotten, with its keys.",
)
@click.option(
    "--max-bytes",
    default="16GB",
    show_default=True,
    metavar="SIZE",
    help="What it keeps for all at most; then nothing more is taken until something is fetched.",
)
@click.option(
    "--max-devices", type=click.IntRange(1), default=100_000, show_default=True, help="How many it knows at most."
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="How many devices may be connected at once.",
)
@click.option(
    "--address-connections",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="How many of them from one network address.",
)
@click.option(
    "--address-devices",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many devices that it does not know yet it takes from one network address in an hour.",
)
@click.option(
    "--metrics-for",
    "watchers",
    multiple=True,
    metavar="ADDRESS",
    help="Who may read GET /metrics: an address or a network. Without it: this machine. May be given several times.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the gateway logs.")
@json_option
def relay(
    host: str,
    port: int,
    folder: Path,
    name: str | None,
    certificate: Path | None,
    private_key: Path | None,
    proxies: tuple[str, ...],
    keep: str,
    forget: str,
    max_bytes: str,
    max_devices: int,
    max_connections: int,
    address_connections: int,
    address_devices: int,
    watchers: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a gateway that carries sealed messages between devices, until Ctrl-C.

    It knows devices by their keys, keeps what is for those that are not there, and can read nothing of it: who sends
    how much to whom and when is all it sees. It needs no team file. docs/relay-security.md says what a bad one could
    do.

    Its name is what devices sign when they come, so that no other gateway can pass on what they signed; `name` in
    `[relay]` of their team files is the same. GET /healthz says whether it is well, and GET /metrics has its figures
    for Prometheus. A certificate that is renewed is used within a minute.

    \b
    Example:
      remit relay
      remit relay --host 0.0.0.0 --name relay.example.com --certificate cert.pem --private-key key.pem
      remit relay --name relay.example.com --behind-proxy 127.0.0.1 --max-bytes 50GB --keep 14d
    """
    from remit.cli.drive import leaving
    from remit.cli.drive.data import data_only
    from remit.cli.drive.gateway import GatewayOptions, attend, certificate_of, limits_of, networks_of
    from remit.cli.drive.logs import logging_to

    if name is None and host in EVERYWHERE:
        raise click.UsageError("say with --name by which host devices reach it, as in --name relay.example.com")
    if (certificate is None) != (private_key is None):
        raise click.UsageError("--certificate and --private-key go together: give both, or none")
    limits = limits_of(
        GatewayOptions(
            keep=keep,
            forget=forget,
            max_bytes=max_bytes,
            max_devices=max_devices,
            max_connections=max_connections,
            address_connections=address_connections,
            address_devices=address_devices,
        )
    )
    trusted = networks_of("--behind-proxy", proxies)
    watching = networks_of("--metrics-for", watchers)
    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        work = attend(
            folder,
            name=name or host,
            host=host,
            port=port,
            limits=limits,
            proxies=trusted,
            watchers=watching,
            certificate=certificate_of(certificate, private_key),
            data=data if as_json else None,
        )
        code, stuck = leaving.run(work)
        if stuck:
            leaving.leave(code)
        raise SystemExit(code)
