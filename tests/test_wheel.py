"""The wheel that a release publishes is whole, and is built from the sdist without Node."""

import json
import re
import sys
import tarfile
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import remit
from build_sbom import bill_of
from build_wheel import NEED_EXTRA, NOT_RUN, build, followed_pages, in_source, in_wheel, try_out
from doc_pages import DOCS, ROOT, blocks
from remit.server.console.pages import is_built

sys.path.insert(0, str(ROOT))

import hatch_build
import hatch_metadata

PAGE = "server/console/built/index.html"


@pytest.mark.timeout(900)  # two builds in processes of their own
@pytest.mark.skipif(not is_built(), reason="NOT TESTED: the wheel, since the console is not built here")
def test_the_wheel_is_whole_and_alone_does_all_that_the_readme_and_the_first_tutorials_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a registry, nothing can be built anew.
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    sdist, wheel = build(tmp_path)
    assert in_wheel(wheel) == in_source()
    assert PAGE in in_wheel(wheel)
    assert wheel.stat().st_size < 3_500_000
    assert sdist.name == f"remit-{remit.__version__}.tar.gz"
    assert wheel.name == f"remit-{remit.__version__}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("/web/package-lock.json") for name in names)
    assert not any("node_modules" in name for name in names)
    try_out(wheel)
    billed(wheel)


def billed(wheel: Path) -> None:
    """Check the bill of materials of a wheel against what the project asks for."""
    bill = bill_of(wheel)
    assert bill["metadata"]["component"]["hashes"] == [
        {"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}
    ]
    components = {each["purl"]: each for each in bill["components"]}
    assert len(components) == len(bill["components"])
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= components.keys()
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {scopes[canonicalize_name(Requirement(each).name)] for each in project["dependencies"]} == {"required"}
    extras = {
        canonicalize_name(Requirement(each).name) for some in project["optional-dependencies"].values() for each in some
    }
    assert extras <= scopes.keys()
    assert scopes["vodozemac"] == "optional"
    # What comes with another package, and what is built into the console.
    assert scopes["cffi"] == scopes["react-dom"] == "required"
    assert "ruff" not in scopes
    assert "vite" not in scopes
    unlocked = [each["name"] for each in bill["components"] if "hashes" not in str(each)]
    assert set(unlocked) <= extras, "only what the lock leaves out has no digest"


def test_a_page_is_not_followed_with_the_wheel_alone_only_while_it_asks_for_an_extra() -> None:
    for name, extra in NEED_EXTRA.items():
        assert f"pip install 'remit[{extra}]'" in (DOCS / "tutorials" / name).read_text(encoding="utf-8"), name


def test_a_command_is_left_out_only_while_its_page_has_it() -> None:
    there = {(page.name, command) for page in followed_pages() for block in blocks(page) for command in block.commands}
    assert NOT_RUN.keys() <= there


# ── when the page is built ────────────────────────────────────────────────────────────────────────────────────────────


def project_in(folder: Path) -> Path:
    """Make a project whose page is built."""
    (folder / "web" / "src").mkdir(parents=True)
    (folder / "web" / "src" / "app.tsx").write_text("one")
    (folder / "web" / "package-lock.json").write_text("{}")
    built = folder / hatch_build.BUILT
    built.mkdir(parents=True)
    (built / "index.html").write_text("built")
    (built / hatch_build.SOURCE).write_text(hatch_build.source_digest(folder / "web"))
    return folder


def hook_of(root: Path) -> hatch_build.ConsoleBuild:
    return hatch_build.ConsoleBuild(str(root), {}, None, None, str(root), "wheel")  # pyright: ignore[reportArgumentType]


def test_only_a_change_of_its_sources_builds_the_page_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project_in(tmp_path)
    ran: list[str] = []

    def npm(_node: Path, _web: Path, *arguments: str) -> None:
        ran.append(arguments[0])

    monkeypatch.setattr(hatch_build, "npm", npm)
    for name in ("README.md", "src/app.test.ts", "node_modules/vite/index.js"):
        (root / "web" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "web" / name).write_text("not built")
    assert not hatch_build.build(root)
    (root / "web" / "src" / "app.tsx").write_text("two")
    assert hatch_build.build(root)
    assert not hatch_build.build(root)
    (root / hatch_build.BUILT / "index.html").unlink()
    assert hatch_build.build(root), "what it says was built is gone"
    assert ran == ["ci", "run", "run"], "packages are installed once for each lock file"


def test_without_a_registry_an_editable_install_says_so_and_a_wheel_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    root = project_in(tmp_path)
    package = {"node_modules/left-pad": {"version": "1.3.0", "integrity": "sha512-AA=="}}
    name = {"name": "page", "version": "1.0.0"}
    whole = {**name, "dependencies": {"left-pad": "1.3.0"}}
    (root / "web" / "package.json").write_text(json.dumps(whole))
    (root / "web" / "package-lock.json").write_text(
        json.dumps({**name, "lockfileVersion": 3, "packages": {"": whole, **package}})
    )
    trouble = root / hatch_build.BUILT / hatch_build.TROUBLE
    hook_of(root).initialize("editable", {})
    assert "npm registry cannot be reached" in trouble.read_text()
    assert "npm registry cannot be reached" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="cannot be built: the npm registry cannot be reached"):
        hook_of(root).initialize("standard", {})
    assert not trouble.exists(), "it belongs into no wheel"


def test_a_lock_file_names_no_registry() -> None:
    lock = (ROOT / "web" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert '"integrity"' in lock


# ── what an index shows ───────────────────────────────────────────────────────────────────────────────────────────────

SOURCE = "https://git.example/remit"


def test_links_and_pictures_of_the_readme_lead_to_the_repository_at_the_tag() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = hatch_metadata.absolute(readme, SOURCE, "v0.1.0")
    assert not re.search(r"\]\((?!https?://|#)", shown)
    assert re.search(rf"!\[[^\]]+\]\({SOURCE}/raw/v0\.1\.0/docs/images/[\w-]+\.\w+\)", shown)
    assert re.search(rf"[^!]\[[^\]]+\]\({SOURCE}/blob/v0\.1\.0/docs/[\w/-]+\.md", shown)
    assert hatch_metadata.absolute("[`[serve]`](a.md#b), [x](https://a.example/), [y](#z)", SOURCE, "v1") == (
        f"[`[serve]`]({SOURCE}/blob/v1/a.md#b), [x](https://a.example/), [y](#z)"
    )


def test_a_package_without_addresses_names_none() -> None:
    assert hatch_metadata.urls("", "") == {}
    assert hatch_metadata.urls(SOURCE, "https://docs.example") == {
        "Documentation": "https://docs.example",
        "Source": SOURCE,
        "Changelog": f"{SOURCE}/blob/main/CHANGELOG.md",
        "Issues": f"{SOURCE}/issues",
    }
