"""What the files around the code promise each other."""

import re
import tomllib

import remit
from checkout import ROOT
from wanted import wanted

README = ROOT / "README.md"


LOCKS = [path.name for path in ROOT.glob("requirements*.lock")]


def text_of(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def test_every_lock_pins_every_package_by_hash() -> None:
    pins = re.split(r"\n(?=[a-z])", text_of(*LOCKS))
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin and not pin.startswith("#")] == []


def test_the_locks_and_the_settings_leave_open_where_packages_come_from() -> None:
    places = re.compile(r"://|index-url|find-links|trusted-host")
    assert places.findall(text_of(*LOCKS)) == []
    places = re.compile(r"index-url|find-links|trusted-host|tool\.uv|tool\.pip")
    files = ("pyproject.toml", "Makefile", ".ci/run", ".pre-commit-config.yaml", ".github/workflows/test.yml")
    assert places.findall(text_of(*files)) == []


def test_pages_name_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), flags=re.MULTILINE))
    pages = ("README.md", "CONTRIBUTING.md", "docs/how-to/releasing.md", ".github/pull_request_template.md")
    named = set(re.findall(r"(?:^|`|\$ )make ([a-z][a-z-]*)", text_of(*pages), flags=re.MULTILINE))
    assert named <= targets


def test_every_public_name_is_in_the_documentation() -> None:
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    words = set(re.findall(r"\w+", "\n".join(page.read_text(encoding="utf-8") for page in pages)))
    assert set(remit.__all__) - words == set()


def test_the_hooks_before_a_commit_are_the_checks_of_make_check() -> None:
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", text_of("Makefile"), flags=re.MULTILINE)
    assert check is not None
    commands = [line.replace("$(BIN)", ".venv/bin") for line in check[1].splitlines() if "$(BIN)" in line]
    hooks = re.findall(r"^ +entry: (.+)$", text_of(".pre-commit-config.yaml"), flags=re.MULTILINE)
    assert len(hooks) == len(commands)
    assert [hook for hook, command in zip(hooks, commands, strict=True) if hook not in command] == []


def test_the_workflow_runs_every_python_that_make_knows_and_macos() -> None:
    workflow = text_of(".github/workflows/test.yml")
    (known,) = re.findall(r"^PYTHON_VERSIONS := (.+)$", text_of("Makefile"), flags=re.MULTILINE)
    (tried,) = re.findall(r"^ +python: \[(.+)\]$", workflow, flags=re.MULTILINE)
    assert re.findall(r"[\d.]+", tried) == known.split()
    assert "macos-latest" in workflow
    assert "run: .ci/run" in workflow


def test_every_action_of_the_workflows_is_pinned_by_the_digest_of_a_version() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / ".github" / "workflows").glob("*.y*ml")]
    used = re.findall(r"uses: *(.+)", text_of(*files))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_the_version_is_the_same_everywhere() -> None:
    projects = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("packages/*/pyproject.toml")]
    versions = re.findall(r'^version = "(.+)"$', text_of("pyproject.toml", *projects), flags=re.MULTILINE)
    pinned = re.findall(r'"remit-\w+==(.+?)"', text_of(*projects))
    newest = re.search(r"^## \[(.+?)\] - (?:unreleased|\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert newest is not None
    assert {*versions, *pinned, newest[1]} == {remit.__version__}
    assert len(versions) == len(projects) + 1


def test_the_changelog_groups_the_changes_of_each_version() -> None:
    versions = re.split(r"^## .+$", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for version in versions:
        headings = re.findall(r"^### (.+)$", version, flags=re.MULTILINE)
        assert headings == [kind for kind in kinds if kind in headings]


def test_the_page_for_contributors_names_only_files_that_exist() -> None:
    named = re.findall(r"`([\w./-]+(?:\.(?:pyi?|md|toml|json)|/))`", text_of("CONTRIBUTING.md"))
    places = (ROOT, *ROOT.glob("packages/*/src/*"))
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_dependency_is_on_its_page() -> None:
    settings = tomllib.loads(text_of("pyproject.toml"))
    groups, extras = settings["dependency-groups"], settings["tool"]["remit"]["extras"]
    all_wanted = [*wanted(extras), *groups["dev"], *groups["test"]]
    names = {re.split(r"[\[><= ]", each)[0] for each in all_wanted if isinstance(each, str)}
    page = set(re.findall(r"[\w@/.-]+", text_of("docs/reference/dependencies.md")))
    assert names - page == set()
    assert len(wanted(())) == 14, "the page says how many packages are installed"


def test_every_package_of_the_repository_is_brought_by_remit_or_by_an_extra() -> None:
    settings = tomllib.loads(text_of("pyproject.toml"))["tool"]["remit"]
    named = [*settings["packages"], *(name for names in settings["extras"].values() for name in names)]
    brought = {name.partition("[")[0] for name in named}
    assert brought == {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")}
