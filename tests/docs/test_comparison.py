"""The comparison page shows the figures that were measured."""

import importlib.util
import json
from pathlib import Path
from typing import Any

from doc_pages import ROOT, page_text

PEERS = ROOT / "bench" / "peers"


def run_module() -> Any:
    spec = importlib.util.spec_from_file_location("peers_run", PEERS / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_kept_figures() -> None:
    text = page_text("comparison")
    figures = json.loads((PEERS / "results.json").read_text(encoding="utf-8"))
    assert run_module().page(text, figures) == text


def test_every_peer_was_measured_in_the_version_that_is_named() -> None:
    module, figures = run_module(), json.loads((PEERS / "results.json").read_text(encoding="utf-8"))
    assert figures.keys() - {"python"} == module.PEERS.keys()
    for name, (packages, _) in module.PEERS.items():
        named = {package.partition("[")[0].partition("==")[0]: package.partition("==")[2] for package in packages}
        assert named.items() <= figures[name]["versions"].items()


def test_every_peer_has_its_script() -> None:
    scripts = {path.stem for path in Path(PEERS).glob("peer_*.py")}
    assert scripts == {f"peer_{name.replace('-', '_')}" for name in run_module().PEERS}


def test_the_readme_quotes_the_kept_figures() -> None:
    figures = json.loads((PEERS / "results.json").read_text(encoding="utf-8"))
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    }
    peers = [figures[name] for name in ("remit", "langgraph", "pydantic-ai", "crewai")]
    assert rows["one call of another agent, µs"] == [f"{each['hop_us']:,.0f}" for each in peers]
    assert rows["two agents that ask each other: ended after so many turns"] == [
        str(each["faults"]["loop"]["agents_run"]) for each in peers
    ]
    assert rows["tokens spent of a budget of 1,000"] == [
        f"{each['faults']['budget']['tokens_spent']:,}" for each in peers
    ]
    assert rows["work of 3 s, a limit of 1 s: ended after so many s"] == [
        str(each["faults"]["deadline"]["ended_after_s"]) for each in peers
    ]
    assert rows["memory, MB"] == [f"{each['memory_mb']:.0f}" for each in peers]
