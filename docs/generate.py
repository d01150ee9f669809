"""Writes the pages that are made from the code: `.venv/bin/python docs/generate.py`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from page_a2a_extension import SCHEMA, extension_page, schema_file
from page_cli import cli_page
from page_environment import environment_page
from page_errors import errors_page
from page_events import events_page
from page_exit_codes import exit_codes_page
from page_http import http_page
from page_links import linked
from page_metrics import metrics_page
from page_outputs import outputs_page
from page_python import TOPICS, index_page, topic_page
from page_relay import profiles_page
from page_relay_states import states_page
from page_team import team_page
from page_tracing import tracing_page
from picture_architecture import architecture_picture

PAGES: dict[str, Callable[[], str]] = {
    "reference/errors.md": lambda: linked(errors_page()),
    "reference/team.md": lambda: linked(team_page()),
    "reference/cli.md": lambda: linked(cli_page()),
    "reference/cli-json.md": lambda: linked(outputs_page()),
    "reference/tracing.md": lambda: linked(tracing_page()),
    "reference/relay-profiles.md": lambda: linked(profiles_page()),
    "reference/relay-states.md": states_page,
    "reference/events.md": events_page,
    "reference/metrics.md": metrics_page,
    "reference/http.md": http_page,
    "reference/exit-codes.md": exit_codes_page,
    "reference/environment.md": environment_page,
    "reference/a2a-extension.md": extension_page,
    f"reference/{SCHEMA}": schema_file,
    "reference/python.md": index_page,
    **{f"reference/{name}.md": partial(topic_page, name) for name in TOPICS},
    "images/architecture.svg": architecture_picture,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
