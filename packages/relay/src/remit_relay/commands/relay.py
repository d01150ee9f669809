"""`remit relay`: a gateway that forwards end-to-end encrypted messages."""

from pathlib import Path
from typing import Any

import click

from remit_cli.options import json_option

FOLDER = Path(".remit/relay")
PORT = 8_765


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Folder for messages to offline devices.",
)
@click.option(
    "--store",
    metavar="URL",
    help="PostgreSQL database that several gateways share, in place of --folder, such as postgresql://remit@host/remit.",
)
@click.option(
    "--store-password",
    metavar="$NAME",
    help="Environment variable with the password of the database.",
)
@click.option(
    "--store-pooler",
    is_flag=True,
    help="PgBouncer in transaction mode is between the gateway and the database.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the gateway, best the host name that devices use.  [default: --host]",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TLS certificate for wss, a PEM file. Not needed behind a proxy that has one.",
)
@click.option(
    "--private-key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Private key of the certificate, a PEM file.",
)
@click.option(
    "--behind-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust X-Forwarded-For from this proxy address or network. Repeatable.",
)
@click.option(
    "--message-retention",
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="Delete undelivered messages after this time and notify the sender.",
)
@click.option(
    "--device-retention",
    default="365d",
    show_default=True,
    metavar="DURATION",
    help="Delete a device and its keys after this time without a connection.",
)
@click.option(
    "--max-bytes",
    default="16GB",
    show_default=True,
    metavar="SIZE",
    help="Storage limit for all messages. When it is reached, new messages are refused until others are delivered.",
)
@click.option(
    "--max-devices",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Maximum number of registered devices.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Maximum number of connected devices.",
)
@click.option(
    "--max-connections-per-address",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Maximum number of connected devices per network address.",
)
@click.option(
    "--max-new-devices-per-address",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of new devices per network address and hour.",
)
@click.option(
    "--metrics-for",
    "watchers",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network that may read GET /metrics. Repeatable.  [default: this machine]",
)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the gateway.")
@json_option
def relay(**options: Any) -> None:
    """Run a gateway that forwards encrypted messages between devices, until Ctrl-C.

    The gateway identifies devices by their keys and stores messages to offline devices. It cannot read the messages. It
    sees only who sends how much to whom, and when. It needs no team file. See `remit docs relay-security` for what a
    malicious gateway could do.

    Devices sign the gateway's name when they connect, so that no other gateway can reuse the signature. `name` in
    `[relay]` of their team files must be the same. GET /healthz reports health, and GET /metrics has metrics for
    Prometheus. A renewed certificate is loaded within a minute.

    With --store, several gateways with the same name over the same database are one gateway: devices may connect to any
    of them, and any can be killed. See "Several gateways" in `remit docs relay-gateway-reference`.

    \b
    Example:
      remit relay
      remit relay --host 0.0.0.0 --name relay.example.com --certificate cert.pem --private-key key.pem
      remit relay --name relay.example.com --behind-proxy 127.0.0.1 --max-bytes 50GB --message-retention 14d
      remit relay --name relay.example.com --store postgresql://remit@db/remit --store-password '$DB_PASSWORD'
    """
    from remit_relay.commands import gateway

    gateway.serve(**options)
