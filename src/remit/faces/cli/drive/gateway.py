"""A gateway that someone watches: where it is, and that it ends well."""

from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError
from urllib.parse import urlsplit

import click

from remit.faces.cli.drive.data import Data
from remit.faces.outputs.devices import GatewayUp
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.gateway.serving import serve_gateway

_LOCAL = ("127.0.0.1", "::1", "localhost")


async def attend(folder: Path, *, name: str, host: str, port: int, ssl: SSLContext | None, data: Data | None) -> int:
    """Run a gateway until it is told to end, and return the exit code."""
    _make(folder)

    def started(address: str) -> None:
        if data is not None:
            data.document(GatewayUp(name=name, address=address, folder=str(folder)))
            return
        click.echo(f"Relaying as {name} at {address} (Ctrl-C ends it). Team files of its devices say:", err=True)
        click.echo(f'  [relay]\n  gateway = "{address}"', err=True)
        if name != urlsplit(address).hostname:
            click.echo(f'  name = "{name}"', err=True)
        if ssl is None and host not in _LOCAL:
            click.echo(
                "Without a certificate, whoever is on the way sees who sends to whom, though not what; "
                "give it one, or put a proxy before it that has one.",
                err=True,
            )

    await serve_gateway(folder, name=name, host=host, port=port, ssl=ssl, started=started)
    click.echo("Ended; what waits for devices is kept.", err=True)
    return 0


def _make(folder: Path) -> None:
    is_new = not folder.parent.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_new and folder.parent.name == ".remit":
            (folder.parent / ".gitignore").write_text("*\n", encoding="ascii")
    except OSError as error:
        why = f"{folder} cannot be used: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Choose another with --folder.")) from error


def tls_of(certificate: Path, key: Path) -> SSLContext:
    """Return what speaks TLS with a certificate, or raise a `RemitError` that says why it cannot be used."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")  # else OpenSSL would ask at the terminal
    except (SSLError, OSError, ValueError) as error:
        why = f"{certificate} with {key} cannot be used: {getattr(error, 'reason', None) or error}"
        suggestion = (
            "Give the PEM file of the certificate, with those above it, and that of its key, without a password."
        )
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
    return context
