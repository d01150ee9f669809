"""`remit schema`: JSON Schemas of the team file and of the `--json` output."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("what", type=click.Choice(["team", "outputs"]), default="team")
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write it to FILE.", metavar="FILE")
def schema(what: str, out: Path | None) -> None:
    """Print the JSON Schema of the team file, or of the output of --json and --jsonl.

    Editors use it to complete and check remit.toml. The first line there, `#:schema ./remit.schema.json`, gives its
    location.

    \b
    Example:
      remit schema --out remit.schema.json
      remit schema outputs
    """
    from json import dumps

    text = dumps(_team() if what == "team" else _outputs(), indent=2)
    if out is None:
        click.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"cannot write {out}: {error.strerror}", param_hint="--out") from error
    click.echo(f"Wrote the schema to {out}.", err=True)


def _team() -> dict[str, Any]:
    from remit_cli.config.team_schema import team_schema

    return team_schema()


def _outputs() -> dict[str, Any]:
    from remit_server.documents.schema import outputs_schema

    return outputs_schema()
