"""Nothing that users can set, type or meet is left out of the pages."""

import re
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from doc_pages import ROOT, page_text
from page_python import TOPICS, heading
from remit.policy.guards import GUARDS, LAST
from remit.ports.brief import Brief
from remit.protocol.card import AgentCard, Capability
from remit.protocol.records import Kind
from remit_cli.config.origins import NAME as NAME_VARIABLE
from remit_cli.config.team import team_schema
from remit_cli.config.team_search import TRUST_VARIABLE
from remit_cli.config.team_search import VARIABLE as TEAM_VARIABLE
from remit_cli.main import groups, main
from remit_otel.names import METRICS
from remit_redaction.pipeline import KINDS
from remit_server.openapi import document


def commands(parent: click.Context | None = None) -> Iterator[click.Context]:
    parent = parent or click.Context(main, info_name="remit")
    assert isinstance(parent.command, click.Group)
    for name in parent.command.list_commands(parent):
        command = parent.command.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from commands(context)


ALL = list(commands())
PUBLIC_MODULES = ("remit", "remit_server.client", "remit_testing")


def test_every_guard_is_in_the_table_of_guards_in_its_order() -> None:
    rows = re.findall(r"^\| ([a-z -]+) \|.*\|.*\|$", page_text("guards"), re.MULTILINE)
    named = [row.replace("fan-out", "fan_out").replace(" ", "_") for row in rows if row not in ("guard", "your own")]
    assert named == [getattr(guard, "__name__", "") for guard in (*GUARDS, LAST)]


def test_every_section_and_key_of_a_team_file_is_on_its_page() -> None:
    text, schema = page_text("team"), team_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", {})}
    assert {key for key in keys if not re.search(rf"[`\[{{ ]{key}\b", text)} == set()


def test_every_kind_of_data_is_on_the_page_about_detection() -> None:
    text = page_text("detection")
    assert {kind for kind in KINDS if f"`{kind}`" not in text} == set()


def test_every_kind_of_record_is_on_the_page_about_the_record() -> None:
    text = page_text("audit")
    assert {kind for kind in Kind if f"`{kind}`" not in text} == set()


def test_every_command_is_on_the_page_of_commands() -> None:
    listed = {name for group in groups().values() for name in group}
    assert listed == {context.info_name for context in ALL if context.parent and context.parent.parent is None}
    text = page_text("cli")
    assert {context.command_path for context in ALL if f"# {context.command_path}\n" not in text} == set()


@pytest.mark.parametrize("context", ALL, ids=lambda context: context.command_path)
def test_every_command_explains_itself_with_an_example(context: click.Context) -> None:
    help_text = context.command.help or ""
    assert re.search(r"Example:\n +remit ", help_text), f"{context.command_path} --help shows no example"
    for each in context.command.get_params(context):
        if isinstance(each, click.Option):
            assert each.help or each.hidden, f"{context.command_path} {each.opts[0]} is not explained"


@pytest.mark.parametrize("card", [AgentCard, Capability])
def test_what_a_card_says_is_on_the_pages_about_agents(card: type[AgentCard | Capability]) -> None:
    text = "".join(map(page_text, ("agents", "capabilities", "tools", "redaction")))
    assert {field for field in card.__struct_fields__ if not re.search(rf"\b{field}\b", text)} == set()


def test_what_a_brief_offers_is_on_the_page_about_agents() -> None:
    text = page_text("agents")
    members = {*Brief.__slots__, *vars(Brief)}
    offered = [name for name in members if not name.startswith("_")]
    assert {name for name in offered if f"brief.{name}" not in text} == set()


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_is_on_one_page_of_the_python_api(module: str) -> None:
    """A new one is added to a topic in docs/page_python.py."""
    named = [name for topic in TOPICS.values() if topic.module == module for name in topic.names.split()]
    assert sorted(named) == sorted(import_module(module).__all__)
    pages = "".join(page_text(page) for page in TOPICS)
    assert [name for name in named if f"\n## {heading(name)}\n" not in pages] == []


def test_everything_about_a_public_name_is_explained() -> None:
    """Every name, field, property and method has its text."""
    silent = [line for page in TOPICS for line in page_text(page).splitlines() if re.fullmatch(r"\| `.*\|\s+\|", line)]
    assert silent == []
    for page in ("python", *TOPICS):
        alone = r"^(#+ .+)\n\n(?=#|\Z)|^(### .+)\n\n```py\n(?:.+\n)+?```\n+(?=#|\Z)"  # a heading; a signature
        assert re.findall(alone, page_text(page), re.MULTILINE) == []


def test_every_variable_that_is_read_is_on_the_page_of_variables() -> None:
    text = page_text("environment")
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "packages").glob("*/src/**/*.py"))
    read = set(re.findall(r'\benviron(?:\.get\(|\[)"([A-Z][A-Z_]+)"', code)) | {
        TEAM_VARIABLE,
        TRUST_VARIABLE,
        NAME_VARIABLE,
    }
    of_examples = {"RECEIPTS_DESK"}
    assert {name for name in read - of_examples if f"`{name}`" not in text} == set()


def test_every_kind_of_event_every_metric_and_every_endpoint_has_its_row() -> None:
    assert [kind for kind in Kind if f"\n## {kind}\n" not in page_text("events")] == []
    assert [name for name in METRICS if f"| `{name}` |" not in page_text("metrics")] == []
    described: dict[str, dict[str, object]] = document()["paths"]
    endpoints = [f"{method.upper()} {path}" for path, methods in described.items() for method in methods]
    assert [each for each in endpoints if each[:4] != "PARA" and f"| `{each}` |" not in page_text("http")] == []


def test_nothing_says_to_install_remit_from_an_index() -> None:
    """Pages install it from a checkout, and `remit.installed` knows where an installed Remit came from."""
    files = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/src/**/*.py")]
    files += [*ROOT.glob("packages/*/README.md"), *ROOT.glob("packages/*/src/**/*.toml"), *ROOT.glob("deploy/*")]
    pages = {file for file in files if file.is_file() and re.search(r"pip install '?remit\b", file.read_text("utf-8"))}
    assert len(files) > 500
    assert pages == set()
