"""Names say what a value is: one name for one thing, and few that say that something was said."""

import ast
import re
from collections.abc import Iterator

import pytest

from layout import modules, public_classes

# A name says what a value is (an answer, a message, an event), not that it was said, told or heard. What is left are
# fields of documents (`said`, `last_heard_ms`) and the names of the guard. The numbers may become smaller.
CEILINGS = {"said": 3, "told": 0, "heard": 7}
# Functions that do not say what they read or place.
BARE = frozenset({"_read", "_place", "_named"})


def _named(tree: ast.Module) -> Iterator[str]:
    """Yield what a module names; a test of the suites for plugins is named with a sentence."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@pytest.fixture(scope="module")
def names() -> set[tuple[str, str]]:
    """The names of each module."""
    return {(module, name) for module, tree in modules().items() for name in _named(tree)}


def test_the_words_of_a_name_are_found_in_each_form() -> None:
    words = [_words(name) for name in ("_SAID_OF", "SaidView", "last_heard_ms")]
    assert words == [{"said", "of"}, {"said", "view"}, {"last", "heard", "ms"}]


@pytest.mark.parametrize("word", CEILINGS)
def test_few_names_say_that_something_was_said_told_or_heard(names: set[tuple[str, str]], word: str) -> None:
    of_word = sorted(name for name in names if word in _words(name[1]))
    assert len(of_word) <= CEILINGS[word], of_word


def test_a_name_of_a_function_has_more_than_a_verb(names: set[tuple[str, str]]) -> None:
    assert [name for name in names if name[1] in BARE] == []


def test_a_public_class_name_is_used_once_in_the_tree() -> None:
    classes = public_classes()
    assert len(classes) > 500, "the source was not found"
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}
