"""The documentation in the terminal: `remit docs`."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from command_line import environment
from doc_pages import DOCS
from fork_server import REMIT
from remit.installed import install_command
from remit_cli.docs import anchor_of, pages, part_of, sections
from remit_cli.main import main
from terminals import Terminal


def docs(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["docs", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["docs", *arguments])
    assert result.exit_code != 0
    return result.stderr


def test_every_page_has_a_name_of_its_own_and_a_title() -> None:
    files = [path for path in DOCS.rglob("*.md") if path != DOCS / "index.md"]
    assert sorted(page.path for page in pages().values()) == sorted(files)
    assert all(page.title for page in pages().values())


def test_the_list_names_each_page_with_its_title_by_folder() -> None:
    listed = docs()
    assert re.search(r"^first-team +\w", listed, re.MULTILINE)
    assert listed.index("Tutorials") < listed.index("How-to") < listed.index("Reference") < listed.index("Explanation")
    assert re.search(r"^decisions +", listed, re.MULTILINE)
    assert not re.search(r"^one-chain ", listed, re.MULTILINE), "pages of a folder are found through its first"


def test_links_are_commands_and_pictures_are_told() -> None:
    shown = docs("decisions")
    assert re.search(r"\(`remit docs one-chain`\)", shown)
    for page in pages().values():
        outside = re.sub(r"^ *```.*?^ *```$", "", page.text(), flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\]\([^)]*\.(md|png|svg)\b", outside), page.name


def test_a_page_says_how_to_install_what_it_needs_from_where_remit_came_from() -> None:
    assert f"`{install_command('llm')}`" in docs("llm-agents")


def test_a_section_and_an_error_code_are_topics() -> None:
    code = docs("LOOP_DETECTED")
    assert code.startswith("## LOOP_DETECTED")
    assert "MAX_DEPTH_EXCEEDED" not in code.splitlines()[0]
    assert docs("errors#loop_detected") == code
    assert code.count("\n## ") == 0


def test_every_section_of_every_page_can_be_shown_alone() -> None:
    for page in pages().values():
        text = page.text()
        for section in sections(text):
            if section.level > 1:
                part = part_of(text, anchor_of(section.title))
                assert part is not None
                assert part.startswith("#"), (page.name, section.title)


def test_headings_within_examples_are_no_sections() -> None:
    text = "# Page\n\n```sh\n# a comment\n```\n\n## One\n\none\n\n### Below\n\nbelow\n\n## Two\n\ntwo"
    assert [section.title for section in sections(text) if section.level] == ["Page", "One", "Below", "Two"]
    assert part_of(text, "one") == "## One\n\none\n\n### Below\n\nbelow\n"
    assert part_of(text, "three") is None


def test_a_search_finds_sections_by_all_words_and_headings_first() -> None:
    lines = docs("--search", "LOOP_DETECTED").splitlines()
    assert lines[0] == "errors#loop_detected  LOOP_DETECTED"
    assert len(lines) > 1
    assert "no page has the words: qwxz" in refused("--search", "qwxz")


def test_what_is_not_there_is_said_with_what_is_near() -> None:
    assert "no such page: aproval; did you mean `approvals`?" in refused("aproval")
    assert "`remit docs` lists all" in refused("qwxzqwxz")
    assert "has no section nowhere; its sections:" in refused("guards#nowhere")
    assert "give a TOPIC or --search, not both" in refused("guards", "--search", "loop")


def test_old_and_new_paths_of_a_page_are_understood() -> None:
    assert docs("docs/explanation/guards.md") == docs("guards")


@pytest.mark.parametrize("width", [46, 80, 200])
def test_a_terminal_shows_a_page_laid_out(width: int, tmp_path: Path) -> None:
    variables = environment() | {"PAGER": "cat", "TERM": "xterm-256color"}
    with Terminal([REMIT, "docs", "guards"], folder=tmp_path, env=variables, width=width) as terminal:
        assert terminal.wait() == 0
        lines = terminal.screen.splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    assert not any(line.startswith("## ") for line in lines)
