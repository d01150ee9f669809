"""The wheels that a release publishes are whole, and are built from the sdists without Node."""

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import remit
from build_sbom import bill_of
from build_wheel import NEED_EXTRA, NOT_RUN, build, followed_pages, in_source, in_wheels, try_core, try_out
from checkout import ROOT
from doc_pages import DOCS, blocks
from remit_server.console.pages import is_built
from wanted import wanted

sys.path.insert(0, str(ROOT))  # what is built there is beside the packages

import hatch_build
import hatch_metadata

PAGE = "remit_server/console/built/index.html"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["remit"]
EXTRAS: list[str] = [*SETTINGS["extras"]]


@pytest.mark.timeout(900)  # all packages are built twice
@pytest.mark.skipif(not is_built(), reason="NOT TESTED: the wheels, since the console is not built here")
def test_the_wheels_are_whole_and_do_all_that_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a registry, nothing can be built anew.
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    built = build(tmp_path)
    assert built.keys() == {"remit", *(f"remit-{path.parent.name}" for path in ROOT.glob("packages/*/pyproject.toml"))}
    assert in_wheels(built) == in_source()
    assert PAGE in in_wheels(built)
    brought = {"remit", *(f"remit-{name.partition('[')[0]}" for name in SETTINGS["packages"])}
    assert sum(built[name].wheel.stat().st_size for name in brought) < 2_500_000
    for name, each in built.items():
        assert each.sdist.name == f"{name.replace('-', '_')}-{remit.__version__}.tar.gz"
        assert each.wheel.name == f"{name.replace('-', '_')}-{remit.__version__}-py3-none-any.whl"
        assert "file:" not in described(each.wheel), "a release asks for versions"
    with tarfile.open(built["remit-server"].sdist) as archive:
        assert not any("node_modules" in name for name in archive.getnames())
    assert try_core(built) == {"remit-core", "apsw", "cffi", "cryptography", "msgspec", "pycparser"}
    try_out(built, [ROOT / "README.md"])  # `make build` follows the first tutorials, too
    billed(built["remit"].wheel)


def described(wheel: Path) -> str:
    """Return the metadata of a wheel without its description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().partition("\n\n")[0]


def billed(wheel: Path) -> None:
    """Check the bill of materials of a wheel against what the packages ask for."""
    bill = bill_of(wheel)
    assert bill["metadata"]["component"]["hashes"] == [
        {"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}
    ]
    components = {each["purl"]: each for each in bill["components"]}
    assert len(components) == len(bill["components"])
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= components.keys()
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    required = {canonicalize_name(Requirement(each).name) for each in wanted(())}
    assert {scopes[each] for each in required} == {"required"}
    extras = {canonicalize_name(Requirement(each).name) for each in wanted(EXTRAS)}
    assert extras <= scopes.keys()
    assert scopes["remit-core"] == "required"
    assert scopes["remit-relay"] == scopes["vodozemac"] == "optional"
    # What comes with another package, and what is built into the console.
    assert scopes["cffi"] == scopes["react-dom"] == "required"
    assert "ruff" not in scopes
    assert "vite" not in scopes
    unlocked = [each["name"] for each in bill["components"] if "hashes" not in str(each)]
    assert set(unlocked) <= extras, "only what the lock leaves out has no digest"


def test_a_page_is_not_followed_with_the_wheel_alone_only_while_it_asks_for_an_extra() -> None:
    for name, extra in NEED_EXTRA.items():
        assert f"pip install '.[{extra}]'" in (DOCS / "tutorials" / name).read_text(encoding="utf-8"), name


def test_a_command_is_left_out_only_while_its_page_has_it() -> None:
    there = {(page.name, command) for page in followed_pages() for block in blocks(page) for command in block.commands}
    assert NOT_RUN.keys() <= there


# ── when the page is built ────────────────────────────────────────────────────────────────────────────────────────────


def package_in(folder: Path) -> Path:
    """Make a checkout with a package whose page is built."""
    (folder / "web" / "src").mkdir(parents=True)
    (folder / "web" / "src" / "app.tsx").write_text("one")
    (folder / "web" / "package-lock.json").write_text("{}")
    package = folder / "packages" / "server"
    built = package / hatch_build.BUILT
    built.mkdir(parents=True)
    (built / "index.html").write_text("built")
    (built / hatch_build.SOURCE).write_text(hatch_build.source_digest(folder / "web"))
    return package


def hook_of(root: Path) -> hatch_build.ConsoleBuild:
    return hatch_build.ConsoleBuild(str(root), {}, None, None, str(root), "wheel")  # pyright: ignore[reportArgumentType]


def test_only_a_change_of_its_sources_builds_the_page_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package_in(tmp_path)
    ran: list[str] = []

    def npm(_node: Path, _web: Path, *arguments: str) -> None:
        ran.append(arguments[0])

    monkeypatch.setattr(hatch_build, "npm", npm)
    for name in ("README.md", "src/app.test.ts", "node_modules/vite/index.js"):
        (tmp_path / "web" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "web" / name).write_text("not built")
    assert not hatch_build.build(root)
    (tmp_path / "web" / "src" / "app.tsx").write_text("two")
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
    root = package_in(tmp_path)
    package = {"node_modules/left-pad": {"version": "1.3.0", "integrity": "sha512-AA=="}}
    name = {"name": "page", "version": "1.0.0"}
    whole = {**name, "dependencies": {"left-pad": "1.3.0"}}
    (tmp_path / "web" / "package.json").write_text(json.dumps(whole))
    (tmp_path / "web" / "package-lock.json").write_text(
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


def test_a_checkout_is_asked_for_each_package_by_itself_and_a_release_for_its_version() -> None:
    """pip takes a folder for `remit-core` only if that is asked for without an extra, too."""
    requirements = hatch_metadata.requirements(["core[schemas]", "cli"], "1.2.3", Path("/checkout"))
    place = "file:///checkout/packages"
    assert requirements == [
        f"remit-core @ {place}/core",
        f"remit-core[schemas] @ {place}/core",
        f"remit-cli @ {place}/cli",
    ]
    assert hatch_metadata.requirements(["core[schemas]", "cli"], "1.2.3", None) == [
        "remit-core[schemas]==1.2.3",
        "remit-cli==1.2.3",
    ]
