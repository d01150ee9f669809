"""One name for one thing: a public class name is used once in the tree."""

from layout import public_classes


def test_a_public_class_name_is_used_once_in_the_tree() -> None:
    classes = public_classes()
    assert len(classes) > 500, "the source was not found"
    assert {name: modules for name, modules in classes.items() if len(modules) > 1} == {}
