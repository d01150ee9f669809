"""`remit relay`: a gateway between devices, which can read nothing of what it carries."""

from pathlib import Path

import click

from remit.faces.cli.options import json_option

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
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the gateway logs.")
@json_option
def relay(
    host: str,
    port: int,
    folder: Path,
    name: str | None,
    certificate: Path | None,
    private_key: Path | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a gateway that carries sealed messages between devices, until Ctrl-C.

    It knows devices by their keys, keeps what is for those that are not there, and can read nothing of it: who sends
    how much to whom and when is all it sees. It needs no team file. docs/relay.md says what a bad one could do.

    Its name is what devices sign when they come, so that no other gateway can pass on what they signed; `name` in
    `[relay]` of their team files is the same. GET /healthz says whether it is well.

    \b
    Example:
      remit relay
      remit relay --host 0.0.0.0 --name relay.example.com --certificate cert.pem --private-key key.pem
    """
    from remit.faces.cli.drive import leaving
    from remit.faces.cli.drive.data import data_only
    from remit.faces.cli.drive.gateway import attend, tls_of
    from remit.faces.cli.drive.logs import logging_to

    if name is None and host in EVERYWHERE:
        raise click.UsageError("say with --name by which host devices reach it, as in --name relay.example.com")
    if (certificate is None) != (private_key is None):
        raise click.UsageError("--certificate and --private-key go together: give both, or none")
    ssl = None if certificate is None or private_key is None else tls_of(certificate, private_key)
    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        work = attend(folder, name=name or host, host=host, port=port, ssl=ssl, data=data if as_json else None)
        code, stuck = leaving.run(work)
        if stuck:
            leaving.leave(code)
        raise SystemExit(code)
