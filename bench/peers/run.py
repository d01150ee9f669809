"""Measure Remit beside its peers, each in an environment of its own, and keep the figures in results.json.

    python bench/peers/run.py            # all of them; environments are made in .venv-peers on the first run
    python bench/peers/run.py crewai     # one of them; the figures of the others stay
    python bench/peers/run.py --page     # write the kept figures into the comparison page, and measure nothing

It needs the package registry once, and some minutes.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "explanation" / "comparison.md"
BEGIN, END = "<!-- bench/peers: begin -->", "<!-- bench/peers: end -->"
ENVIRONMENTS = ROOT / ".venv-peers"
STARTS = 5

# By name: what is installed, and what a program imports first.
PEERS: dict[str, tuple[tuple[str, ...], str]] = {
    "remit": ((), "from remit import Hub"),
    "langgraph": (
        ("langgraph==1.2.22", "langchain==1.4.7", "langgraph-checkpoint-sqlite==3.1.2"),
        "from langgraph.graph import StateGraph",
    ),
    "pydantic-ai": (("pydantic-ai-slim[dbos]==2.66.0",), "from pydantic_ai import Agent"),
    "crewai": (("crewai==1.15.30",), "from crewai import Agent, Crew"),
    "agent-governance": (("agent-governance-toolkit-core==5.0.0",), "from agent_os import StatelessKernel"),
    "contextforge": (
        ("mcp-contextforge-gateway==1.0.7.post20260921",),
        # It does not start without secrets.
        "import os\n"
        "names = 'JWT_SECRET_KEY', 'AUTH_ENCRYPTION_SECRET', 'BASIC_AUTH_PASSWORD', 'PLATFORM_ADMIN_PASSWORD'\n"
        "os.environ |= dict.fromkeys(names, 'A-key-of-more-than-32-characters-0123456789!')\n"
        "os.environ['DATABASE_URL'] = 'sqlite://'; import mcpgateway.main",
    ),
    "temporal": (("temporalio==1.35.0",), "from temporalio import workflow, activity, client, worker"),
}
TITLES = {
    "remit": "Remit",
    "langgraph": "LangGraph",
    "pydantic-ai": "pydantic-ai",
    "crewai": "CrewAI",
    "agent-governance": "Agent Governance Toolkit",
    "contextforge": "ContextForge",
    "temporal": "Temporal",
}


def python_of(name: str) -> Path:
    """Return the Python of a peer's environment, which is made if it is not there; Remit is in this one."""
    if name == "remit":
        return Path(sys.executable)
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = folder / ".ready"
    packages, _ = PEERS[name]
    if not ready.exists() or ready.read_text(encoding="utf-8") != str(packages):
        print(f"setting up {folder.relative_to(ROOT)} …", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages], check=True)
        ready.write_text(str(packages), encoding="utf-8")
    return python


def environment() -> dict[str, str]:
    """Return the environment of peers: they write their bytecode, as they do elsewhere, and warn of nothing."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONWARNINGS": "ignore"}


def import_ms(python: Path, statement: str) -> float:
    """Return the median CPU time of a process that imports a peer, less that of one that imports nothing."""
    taken: dict[str, list[float]] = {"pass": [], statement: []}
    for _ in range(STARTS + 1):
        for code, times in taken.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([python, "-c", code], check=True, capture_output=True, env=environment())
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    # The first writes the bytecode.
    return round(statistics.median(taken[statement][1:]) - statistics.median(taken["pass"][1:]), 1)


def measure(name: str) -> dict[str, Any]:
    python = python_of(name)
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    script = HERE / f"peer_{name.replace('-', '_')}.py"
    done = subprocess.run([python, script], env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2_000:]}")
    return {"import_ms": import_ms(python, PEERS[name][1]), **json.loads(done.stdout.splitlines()[-1])}


def results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def tables(results_by_peer: dict[str, Any]) -> str:
    """Return the tables of the comparison page."""
    lines = [
        "| | import, ms of CPU | memory, MB | one delegation, µs | a bare task in the same run, µs | overhead, µs |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    peers = {name: results_by_peer[name] for name in PEERS if name in results_by_peer}
    for name, peer in peers.items():
        if "hop_us" in peer:
            over = peer["hop_us"] - peer["floor_us"]
            cells = f"{peer['hop_us']:,.0f} | {peer['floor_us']:,.0f} | {over:,.0f}"
        else:
            cells = "not measured | | "
        lines.append(f"| {TITLES[name]} | {peer['import_ms']:,.0f} | {peer['memory_mb']:,.0f} | {cells} |")
    if "agent_in_hub_us" in (remit := peers.get("remit", {})):
        alone, within = remit["agent_alone_us"], remit["agent_in_hub_us"]
        lines += [
            "",
            f"The same agent of pydantic-ai took {alone:,.0f} µs alone and {within:,.0f} µs as an agent of a hub.",
        ]
    for fault, title, describe in (
        ("loop", "Two agents ask each other endlessly", _loop),
        ("budget", "Ten calls of 300 tokens, 1,000 to spend", _budget),
        ("deadline", "Work of 3 s, a limit of 1 s", _deadline),
        ("crash", "The process is killed between two steps and started again", _crash),
        ("personal_data", "An e-mail address and an IBAN in the request", _personal_data),
    ):
        lines += ["", f"### {title}", "", "| | means | what happened |", "|---|---|---|"]
        for name, peer in peers.items():
            if "faults" in peer:
                figures = peer["faults"][fault]
                lines.append(f"| {TITLES[name]} | {figures['means']} | {describe(figures)} |")
    return "\n".join(lines)


def page(text: str, results_by_peer: dict[str, Any]) -> str:
    """Return the text of the comparison page with the tables of these figures."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{tables(results_by_peer)}\n\n{END}{tail}"


def _loop(figures: dict[str, Any]) -> str:
    if figures["ended_by"] is None:
        return f"not ended after {figures['agents_run']} turns"
    return f"ended after {figures['agents_run']} turns: `{figures['ended_by']}`"


def _budget(figures: dict[str, Any]) -> str:
    if figures["ended_by"] is None:
        return f"not ended: {figures['tokens_spent']:,} tokens spent"
    return f"ended at {figures['tokens_spent']:,} tokens: `{figures['ended_by']}`"


def _deadline(figures: dict[str, Any]) -> str:
    if figures["ended_by"] is None:
        return f"not ended: answered after {figures['ended_after_s']} s"
    kept = "a partial answer" if figures["partial_answer"] else f"no answer: `{figures['ended_by']}`"
    work = "the work was stopped" if figures["work_stopped"] else "the work went on"
    return f"ended after {figures['ended_after_s']} s, {kept}; {work}"


def _crash(figures: dict[str, Any]) -> str:
    done = figures["first_step_done"]
    return f"finished; the first step was done {'once' if done == 1 else f'{done} times'}"


def _personal_data(figures: dict[str, Any]) -> str:
    if figures["ended_by"] is not None:
        return "refused as a whole"
    seen = [name for name, key in (("address", "email_seen"), ("IBAN", "iban_seen")) if figures[key]]
    back = "; the user gets it back" if figures["given_back"] else ""
    return (f"the callee saw: {', '.join(seen)}" if seen else "the callee saw neither") + back


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(PEERS)}")
    parser.add_argument("--page", action="store_true", help="write the page of the kept figures, and measure nothing")
    given = parser.parse_args()
    if unknown := set(given.names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if not given.page:
        for name in given.names or PEERS:
            measured = measure(name)
            measured_results = {**results(), name: measured, "python": platform.python_version()}
            RESULTS.write_text(json.dumps(measured_results, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    measured_results = results()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), measured_results), encoding="utf-8")
    print(tables(measured_results))


if __name__ == "__main__":
    main()
