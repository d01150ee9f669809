"""Draws docs/images/architecture.svg: the layers of the code, and the way of one request through them.

The layers are read from the import contract in `pyproject.toml`. A new package fails here until it has a label.
"""

import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

# What each package is for, in as few words as fit into its box.
LABELS = {
    "relay": "encrypted work between devices",
    "guard": "sub-agents of coding tools",
    "cli": "the remit command, the team file",
    "cluster": "PostgreSQL and NATS",
    "orchestrator": "who answers what",
    "server": "HTTP API, console, A2A and MCP",
    "models": "models, frameworks, MCP servers",
    "redaction": "personal data",
    "otel": "spans and metrics",
    "testing": "fakes and conformance suites",
    "plugin": "where plugins extend it",
    "hub": "the Hub class that programs open",
    "stores": "SQLite",
    "transports": "in process",
    "agents": "functions, programs",
    "runtime": "how a delegation is carried out",
    "ports": "what agents get, stores promise",
    "policy": "what is allowed: guards, budgets",
    "words": "names and texts in plain words",
    "protocol": "requests, responses, errors",
    "installed": "finds plugins",
}


class Step(NamedTuple):
    """One step of a delegation."""

    name: str
    what: str
    files: tuple[str, ...]


STEPS = (
    Step(
        "draft",
        "carve the callee's remit from the caller's",
        ("runtime/root_request.py", "runtime/delegation/dispatch.py"),
    ),
    Step("admit", "ask the guards in order, then redact", ("runtime/delegation/admission.py", "policy/guards.py")),
    Step("reserve", "take tokens, rate and breaker, without an await", ("runtime/ledger.py",)),
    Step(
        "send",
        "record the start, wait for a slot, run the agent",
        ("runtime/delegation/tasks.py", "transports/local.py"),
    ),
    Step("settle", "count what was spent, give the rest back", ("runtime/delegation/tasks.py", "runtime/ledger.py")),
    Step("record", "append the end to the audit chain", ("stores/writer.py", "runtime/audit/chain.py")),
    Step(
        "answer",
        "give the caller its response, with its own values",
        ("runtime/delegation/tasks.py", "runtime/root_runs.py"),
    ),
)

PURE = {"protocol", "words", "policy"}

WIDTH = 1120
TOP = 74
LEFT, BOX_WIDTH, BOX_HEIGHT, GAP = 20, 500, 34, 8
STEP_LEFT, STEP_WIDTH, STEP_HEIGHT, STEP_GAP = 600, 460, 72, 20
FONT = "font-family=\"'DejaVu Sans', Verdana, Helvetica, Arial, sans-serif\""
INK, FAINT, LINE = "#1f2933", "#52606d", "#7b8794"


def layers() -> list[tuple[str, ...]]:
    """Return the folders of the core from top to bottom, as the import contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        each
        for each in settings["tool"]["importlinter"]["contracts"]
        if each["name"] == "Imports point down the floors of the core"
    )
    rows: Sequence[str] = contract["layers"]
    return [tuple(name.strip(" ()") for name in row.split("|")) for row in rows]


def packages() -> list[tuple[str, ...]]:
    """Return the packages above the core, each above those that it needs."""
    names = ("relay", "guard", "cli", "cluster", "orchestrator", "server", "models", "redaction", "otel", "testing")
    return [(name,) for name in names]


def architecture_picture() -> str:
    """Return the picture as SVG."""
    above = packages()
    rows = [*above, *layers()]
    height = TOP + max(len(rows) * (BOX_HEIGHT + GAP), len(STEPS) * (STEP_HEIGHT + STEP_GAP)) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        f'  role="img" aria-label="The layers of the code, and one delegation in seven steps" {FONT}>',
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"',
        ' orient="auto">',
        f'<path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        text(LEFT, 32, "Packages, and the layers of the core", size=19, bold=True),
        text(LEFT, 54, "Imports go to rows below alone. The core (thick line) imports no other package.", fill=FAINT),
        text(STEP_LEFT, 32, "One delegation", size=19, bold=True),
        text(STEP_LEFT, 54, "Every request takes these steps, at any depth.", fill=FAINT),
        *(line for place, names in enumerate(rows) for line in layer(names, TOP + place * (BOX_HEIGHT + GAP))),
        rule(TOP + len(above) * (BOX_HEIGHT + GAP) - GAP // 2),
        *way(),
        text(LEFT, height - 16, "Blue: pure. No clock, socket, task, thread, log or random number.", fill=FAINT),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def layer(names: Sequence[str], top: int) -> Iterator[str]:
    """Draw the packages of one layer side by side."""
    width = (BOX_WIDTH - GAP * (len(names) - 1)) // len(names)
    for place, name in enumerate(names):
        left = LEFT + place * (width + GAP)
        fill = "#dcebfa" if name in PURE else "#f1f3f5"
        yield box(left, top, width, BOX_HEIGHT, fill)
        yield text(left + 12, top + 22, name, size=15, bold=True)
        # Alone in its row a package has room for a second column; beside another it has not.
        at = left + 140 if len(names) == 1 else left + 24 + 9 * len(name)
        yield text(at, top + 22, LABELS[name], size=14 if len(names) == 1 else 12, fill=FAINT)


def rule(top: int) -> str:
    """Draw the line between the packages and the core."""
    return f'<path d="M{LEFT} {top} L{LEFT + BOX_WIDTH} {top}" stroke="{INK}" stroke-width="3"/>'


def way() -> Iterator[str]:
    """Draw the steps one below another, and the way back for a nested call."""
    middle = STEP_LEFT + 30
    for place, step in enumerate(STEPS):
        top = TOP + place * (STEP_HEIGHT + STEP_GAP)
        if place:
            yield arrow(f"M{middle} {top - STEP_GAP} L{middle} {top - 2}")
        yield box(STEP_LEFT, top, STEP_WIDTH, STEP_HEIGHT, "#fff8e1")
        yield text(STEP_LEFT + 14, top + 23, f"{place + 1}  {step.name}", size=16, bold=True)
        yield text(STEP_LEFT + 14, top + 43, step.what, size=14)
        yield text(STEP_LEFT + 14, top + 62, "  ·  ".join(step.files), size=12, fill=FAINT)
    names = [step.name for step in STEPS]
    send, back = (TOP + names.index(name) * (STEP_HEIGHT + STEP_GAP) for name in ("send", "draft"))
    right, out = STEP_LEFT + STEP_WIDTH, STEP_LEFT + STEP_WIDTH + 28
    bend = f"M{right} {send + 24} L{out} {send + 24} L{out} {back + 36} L{right + 3} {back + 36}"
    yield arrow(bend, dashed=True)
    label = escape("brief.delegate: the agent calls another agent")
    yield (
        f'<text transform="translate({out + 18} {(send + back) // 2 + 185}) rotate(-90)" font-size="13" fill="{FAINT}">'
        f"{label}</text>"
    )


def box(left: int, top: int, width: int, height: int, fill: str) -> str:
    """Draw a box."""
    return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>'


def text(left: int, base: int, words: str, *, size: int = 14, bold: bool = False, fill: str = INK) -> str:
    """Write a line."""
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{size}"{weight} fill="{fill}" xml:space="preserve"'
    return f'<text x="{left}" y="{base}" {style}>{escape(words)}</text>'


def arrow(path: str, *, dashed: bool = False) -> str:
    """Draw an arrow along a path."""
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="2"{dashes} marker-end="url(#arrow)"/>'
