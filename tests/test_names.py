"""One name for one thing: a public class name is used once in the tree."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def public_classes() -> dict[str, list[str]]:
    """Return the modules that define each public class name; templates are files for users, not modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.glob("remit/**/*.py")):
        if "templates" in path.parts:
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def test_a_public_class_name_is_used_once_in_the_tree() -> None:
    found = public_classes()
    assert len(found) > 500, "the source was not found"
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
