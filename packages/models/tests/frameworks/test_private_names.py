"""The private names of frameworks that adapters rely on: listed, and present in the tested versions."""

import ast
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from remit_models import frameworks

ADAPTERS = sorted(path for path in Path(frameworks.__path__[0]).glob("*.py") if not path.stem.startswith("_"))
FOUR = {"autogen", "crewai", "google_adk", "openai_agents"}

pytestmark = pytest.mark.filterwarnings("ignore")  # some frameworks warn of how they import themselves


def constant(adapter: Path, name: str) -> dict[str, Any]:
    """Return a constant of an adapter, whose framework may not be installed."""
    for node in ast.parse(adapter.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return {}


def names_of(adapter: Path) -> list[tuple[str, str]]:
    return [(owner, name) for owner, names in constant(adapter, "PRIVATE_NAMES").items() for name in names]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda path: path.stem)
def test_every_private_name_that_an_adapter_uses_is_listed(adapter: Path) -> None:
    tree = ast.parse(adapter.read_text(encoding="utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) not in ("self", "cls")
    }
    listed = {name for _, name in names_of(adapter)}
    text = adapter.read_text(encoding="utf-8")
    assert used - listed == set()
    assert {name for name in listed if text.count(name) < 2} == set(), "listed, but not used"


def test_the_adapters_with_private_names_say_what_they_were_tested_with() -> None:
    assert {adapter.stem for adapter in ADAPTERS if names_of(adapter)} == FOUR
    assert {adapter.stem for adapter in ADAPTERS if constant(adapter, "TESTED_WITH")} == FOUR


def is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


INSTALLED = [
    (adapter, package, version)
    for adapter in ADAPTERS
    for package, version in constant(adapter, "TESTED_WITH").items()
    if is_installed(package)
]


@pytest.mark.parametrize(("adapter", "package", "version"), INSTALLED, ids=lambda value: getattr(value, "stem", value))
def test_the_tested_version_is_the_one_in_the_lock(adapter: Path, package: str, version: str) -> None:
    assert metadata.version(package) == version, f"set TESTED_WITH in {adapter.name}, once its tests have passed"


@pytest.mark.parametrize(
    ("package", "version", "owner", "name"),
    [(package, version, *each) for adapter, package, version in INSTALLED for each in names_of(adapter)],
)
def test_a_private_name_is_still_there(package: str, version: str, owner: str, name: str) -> None:
    module, _, kind = owner.partition(":")
    if not kind:
        assert find_spec(f"{module}.{name}"), f"{package} {metadata.version(package)} has no {module}.{name}"
        return
    thing: Any = getattr(import_module(module), kind)
    make = INSTANCES.get(owner)
    assert hasattr(thing if make is None else make(thing), name), (
        f"{package} {metadata.version(package)} has no {kind}.{name}; the adapter was tested with {version}"
    )


def an_assistant(kind: Any) -> Any:
    return kind("a", import_module("autogen_ext.models.replay").ReplayChatCompletionClient(["-"]))


def a_model(kind: Any) -> Any:
    class Silent(kind):
        def call(self, *_: Any, **__: Any) -> str:
            return ""

    return Silent(model="m")


# Where a name belongs to instances alone.
INSTANCES = {"autogen_agentchat.agents:AssistantAgent": an_assistant, "crewai:BaseLLM": a_model}
