"""Reads names of the Python API from their source: signatures as they are written, and the text below each field."""

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

from remit_server.documents.api import Parameter

# A signature that is longer has a line for each parameter.
WIDTH = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldText:
    """A field, an attribute, a property or a member of an enum."""

    name: str
    kind: str = ""
    default: str | None = None
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionText:
    """A function or a method."""

    name: str
    signature: str
    meaning: str
    options: str = ""
    """The class of its further keyword arguments, if it has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassText:
    """A class with its public members, also those that it inherits from classes of Remit."""

    name: str
    meaning: str
    init: FunctionText | None = None
    fields: Sequence[FieldText] = ()
    properties: Sequence[FieldText] = ()
    methods: Sequence[FunctionText] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueText:
    """A constant or the name of a type."""

    name: str
    definition: str
    meaning: str


@dataclass(slots=True)
class _Members:
    init: FunctionText | None = None
    fields: dict[str, FieldText] = field(default_factory=dict[str, FieldText])
    properties: dict[str, FieldText] = field(default_factory=dict[str, FieldText])
    methods: dict[str, FunctionText] = field(default_factory=dict[str, FunctionText])


def read_name(name: str, home: ModuleType) -> ClassText | FunctionText | ValueText:
    """Return what *home*, the module that defines it, says of a name."""
    value = getattr(home, name)
    if isinstance(value, type):
        return read_class(value)
    for node, below in _with_text(_tree(home).body, home):
        match node:
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined) if defined == name:
                return _function(node, home, bound=False)
            case ast.Assign(targets=[ast.Name(id=defined)], value=definition) if defined == name:
                return ValueText(name=name, definition=_value(definition, home), meaning=below)
            case ast.AnnAssign(target=ast.Name(id=defined), value=ast.expr() as definition) if defined == name:
                return ValueText(name=name, definition=_value(definition, home), meaning=below)
            case ast.ImportFrom(module=str(origin), names=names) if any(each.name == name for each in names):
                return read_name(name, import_module(origin))
            case _:
                pass
    raise LookupError(f"{home.__name__} does not define {name} at its top level")


def read_class(kind: type) -> ClassText:
    """Return what is written of a class: its own members first, then those of its bases."""
    members = _Members()
    for each in _lineage(kind):
        _read_members(_definition(each), sys.modules[each.__module__], members)
    return ClassText(
        name=kind.__name__,
        meaning=cleandoc(kind.__doc__ or "") if "__doc__" in vars(kind) else "",
        init=members.init,
        fields=[replace(each, meaning=each.meaning or _declared(kind, each.name)) for each in members.fields.values()],
        properties=list(members.properties.values()),
        methods=list(members.methods.values()),
    )


def _declared(kind: type, field: str) -> str:
    """Return the meaning of a parameter of a query, which its type carries."""
    hint = get_type_hints(kind, include_extras=True)[field] if is_typeddict(kind) else None
    return next((each.meaning for each in getattr(hint, "__metadata__", ()) if isinstance(each, Parameter)), "")


def _lineage(kind: type) -> Iterator[type]:
    """Yield a class of Remit and its bases; those of a `TypedDict` are known from its source alone."""
    yield from (each for each in kind.__mro__ if each.__module__.startswith("remit"))
    if is_typeddict(kind):
        for base in _definition(kind).bases:
            above = getattr(sys.modules[kind.__module__], ast.unparse(base))
            if is_typeddict(above):
                yield from _lineage(above)


def _definition(kind: type) -> ast.ClassDef:
    classes = (node for node in _tree(sys.modules[kind.__module__]).body if isinstance(node, ast.ClassDef))
    return next(node for node in classes if node.name == kind.__name__)


def _read_members(node: ast.ClassDef, home: ModuleType, members: _Members) -> None:
    """Add the public members that a class defines, without those that a class below it has replaced."""
    for each, below in _with_text(node.body, home):
        match each:
            case ast.FunctionDef(name="__init__"):
                members.init = members.init or _function(each, home, bound=True)
                for attribute in _attributes(each, home):
                    members.fields.setdefault(attribute.name, attribute)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
                if _is_property(each):
                    returned = "" if each.returns is None else _type(each.returns, home)
                    text = FieldText(name=name, kind=returned, meaning=cleandoc(ast.get_docstring(each) or ""))
                    members.properties.setdefault(name, text)
                else:
                    members.methods.setdefault(name, _function(each, home, bound=True))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=default) if name[0] != "_":
                shown = None if default is None else _value(default, home)
                text = FieldText(name=name, kind=_type(annotation, home), default=shown, meaning=below)
                members.fields.setdefault(name, text)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(args=[ast.Attribute(value=ast.Name(id=owner), attr=method)]),
            ) if name[0] != "_":
                members.methods.setdefault(name, _without_await(getattr(home, owner), method))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0] != "_":
                members.fields.setdefault(name, FieldText(name=name, default=ast.unparse(value), meaning=below))
            case _:
                pass


def _without_await(owner: type, method: str) -> FunctionText:
    """Return what is written of a method that another class offers without await."""
    source = next(each for each in read_class(owner).methods if each.name == method)
    signature = source.signature.removeprefix("async ").replace("AsyncGenerator[", "Generator[")
    return replace(source, signature=signature)


def _attributes(init: ast.FunctionDef, home: ModuleType) -> Iterator[FieldText]:
    """Yield the attributes that `__init__` sets and explains."""
    for each, below in _with_text(init.body, home):
        match each:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation) if below and name[0] != "_":
                yield FieldText(name=name, kind=_type(annotation, home), meaning=below)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if below and name[0] != "_":
                yield FieldText(name=name, kind=_kind_of(value, init, home), meaning=below)
            case _:
                pass


def _kind_of(value: ast.expr, init: ast.FunctionDef, home: ModuleType) -> str:
    """Return the type of what an attribute is set to, where that can be seen: a constant, or a parameter."""
    match value:
        case ast.Constant(value=constant):
            return type(constant).__name__
        case ast.Name(id=name):
            for each in (*init.args.args, *init.args.kwonlyargs):
                if each.arg == name and each.annotation is not None:
                    return _type(each.annotation, home)
            return ""
        case ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


def _function(node: Function, home: ModuleType, *, bound: bool) -> FunctionText:
    further = None if node.args.kwarg is None else node.args.kwarg.annotation
    options = "" if further is None else _type(further, home)
    return FunctionText(
        name=node.name,
        signature=_signature(node, home, bound=bound),
        meaning=cleandoc(ast.get_docstring(node) or ""),
        options=options.removeprefix("Unpack[").removesuffix("]") if "Unpack[" in options else "",
    )


def _signature(node: Function, home: ModuleType, *, bound: bool) -> str:
    """Return the first line of a function, without `self`."""
    static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
    parts = list(_parameters(node.args, home))[1 if bound and not static else 0 :]
    marks = [f"@{each.id}" for each in node.decorator_list if isinstance(each, ast.Name) and each.id.endswith("method")]
    start = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {node.name}("
    end = ")" if node.returns is None or node.name == "__init__" else f") -> {_type(node.returns, home)}"
    line = f"{start}{', '.join(parts)}{end}: ..."
    if len(line) > WIDTH:
        line = start + "".join(f"\n    {part}," for part in parts if part != "/") + f"\n{end}: ..."
    return "\n".join((*marks, line))


def _parameters(args: ast.arguments, home: ModuleType) -> Iterator[str]:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    for number, (each, default) in enumerate(zip(plain, defaults, strict=True), start=1):
        yield _parameter(each, default, home)
        if number == len(args.posonlyargs) and number > 1:  # a lone `self` before it says nothing to a caller
            yield "/"
    if args.vararg is not None:
        yield "*" + _parameter(args.vararg, None, home)
    elif args.kwonlyargs:
        yield "*"
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(each, default, home)
    if args.kwarg is not None:
        yield "**" + _parameter(args.kwarg, None, home)


def _parameter(each: ast.arg, default: ast.expr | None, home: ModuleType) -> str:
    kind = "" if each.annotation is None else f": {_type(each.annotation, home)}"
    if default is None:
        return f"{each.arg}{kind}"
    return f"{each.arg}{kind}{' = ' if kind else '='}{_value(default, home)}"


class _Plain(ast.NodeTransformer):
    """Writes a type without what only a codec reads: quotes, and the limits of `Annotated`."""

    def __init__(self, home: ModuleType, *, is_type: bool) -> None:
        self._home = home
        self._is_type = is_type

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = getattr(self._home, node.id, None)
        if get_origin(value) is Annotated:
            return ast.parse(_type_name(get_args(value)[0]), mode="eval").body
        if value is Any:
            return ast.Name(id="Any")
        if isinstance(value, int | float) and not isinstance(value, bool) and not hasattr(builtins, node.id):
            return ast.Constant(value=value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
                return self.visit(kind)
            case ast.Subscript(value=ast.Name(id="Literal")):
                return node
            case _:
                return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self._is_type and isinstance(node.value, str):  # a quoted name
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node


def _type_name(kind: object) -> str:
    """Return a type as it is written, without the limits of `Annotated`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_name(parts[0])
    if kind is Ellipsis:
        return "..."
    name = getattr(origin or kind, "__name__", str(kind))
    return f"{name}[{', '.join(map(_type_name, parts))}]" if parts else name


def _type(node: ast.expr, home: ModuleType) -> str:
    return ast.unparse(_Plain(home, is_type=True).visit(ast.parse(ast.unparse(node), mode="eval").body))


def _value(node: ast.expr, home: ModuleType) -> str:
    return ast.unparse(_Plain(home, is_type=False).visit(ast.parse(ast.unparse(node), mode="eval").body))


def _is_property(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id.endswith("property") for each in node.decorator_list)


def _with_text(body: Sequence[ast.stmt], home: ModuleType) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the text that stands below it, or as a comment beside it, where one does."""
    lines = _lines(home)
    for each, after in zip(body, (*body[1:], None), strict=True):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield each, cleandoc(text)
            case _:
                yield each, _comment_beside(each, lines)


def _comment_beside(node: ast.stmt, lines: Sequence[str]) -> str:
    """Return the comment on the line of a field."""
    is_field = isinstance(node, ast.AnnAssign | ast.Assign)
    beside = lines[(node.end_lineno or 1) - 1].encode()[node.end_col_offset :].decode().strip() if is_field else ""
    return beside.removeprefix("# ") if re.match(r"# [A-Z]", beside) else ""


@cache
def _lines(home: ModuleType) -> Sequence[str]:
    assert home.__file__ is not None
    return Path(home.__file__).read_text(encoding="utf-8").splitlines()


@cache
def _tree(home: ModuleType) -> ast.Module:
    return ast.parse("\n".join(_lines(home)))
