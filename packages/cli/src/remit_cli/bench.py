"""`remit bench`: measure Remit on this machine."""

import click

from remit_cli.options import json_option


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=600),
    default=10.0,
    show_default=True,
    help="How long to measure, about. The least times are taken, so that longer is more precise.",
)
@json_option
def bench(seconds: float, as_json: bool) -> None:
    """Measure how fast Remit is on this machine, in a temporary folder.

    Each time is compared with a floor that is measured in the same run: a bare task of asyncio, a commit of SQLite, an
    HTTP request, and a program that only imports asyncio. The ratio says what Remit adds, and depends little on the
    machine. A durable answer is on the disk before it is given; a delegation over HTTP waits for the disks of both
    hubs, three times in all.

    \b
    Example:
      remit bench
      remit bench --seconds 30 --json
    """
    from remit_cli.drive.bench import bench_report
    from remit_cli.show.screen import print_json, print_table

    report = bench_report(seconds)
    if as_json:
        print_json(report)
        return
    rows = [
        (each.operation, _time(each.us), f"{each.ratio:.1f}x", each.floor, _time(each.floor_us))
        for each in report.figures
    ]
    print_table(("operation", "time", "ratio", "compared with", "its time"), rows)


def _time(us: float) -> str:
    return f"{us / 1_000:.3g} ms" if us >= 1_000 else f"{us:.3g} µs"
