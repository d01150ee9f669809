"""Finds the Python code that a team file names, or the reason why it cannot be used."""

import ast
import inspect
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import FileFinder, PathFinder
from pathlib import Path
from typing import Any, TypeVar

from remit.protocol.errors import RemitError
from remit.protocol.problems import did_you_mean
from remit.runtime.registry import team_invalid

Found = TypeVar("Found")

# The start of the message about code that cannot be imported.
IMPORTING = "importing `"


class CodeError(Exception):
    """Code that a team file names does not exist or is invalid; the text is for the author of the file."""


def find_code(find: Callable[[str, Path], Found], run: str, folder: Path) -> Found:
    """Return what *find* returns, or raise its `CodeError` as a `RemitError` about an invalid team."""
    try:
        return find(run, folder)
    except CodeError as error:
        raise team_invalid(str(error)) from error


def code_at(run: str, folder: Path) -> Callable[..., Any]:
    """Return the function that `module:function` names, imported with *folder* on the path, or raise a `CodeError`."""
    value = _object_at(run, folder)
    if not callable(value):
        raise CodeError(f"`{run}` is {type(value).__name__} and not a function")
    return value


def _object_at(run: str, folder: Path) -> object:
    """Return the object that `module:name` names, or raise a `CodeError`.

    The folder stays on the path, so that later imports, and those in an agent's own process, work as well.
    """
    module_name, _, attribute = run.partition(":")
    folder = folder.resolve()
    if sys.path[:1] != [str(folder)]:
        sys.path[:] = [str(folder), *(each for each in sys.path if each != str(folder))]
    _list_anew(str(folder))
    _refuse_another(module_name.partition(".")[0], folder)
    value = _imported(module_name, folder)
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            own = [each for each in dir(value) if not each.startswith("_") and callable(getattr(value, each, None))]
            raise CodeError(f"`{module_name}` has no `{name}`{did_you_mean(name, own)}") from None
    return value


def _list_anew(folder: str) -> None:
    """Have Python look for modules in a folder and below it again: a file may be newer than what it remembers."""
    for place, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, FileFinder) and place.startswith(folder):
            finder.invalidate_caches()


def tool_at(run: str, folder: Path) -> Callable[..., Any]:
    """Return a tool's function, whose parameters can be described as JSON, or raise a `CodeError`."""
    from remit.agents.function import tool_from  # these load the event loop
    from remit.agents.threads import Threads

    function = code_at(run, folder)
    try:
        tool_from(function, "tool", Threads("tool", 1), description=None, safe_to_repeat=True)
    except RemitError as error:
        raise CodeError(error.fault.message.replace("tool `tool`", f"`{run}`")) from error
    except (NameError, TypeError, ValueError) as error:
        raise CodeError(f"the parameters of `{run}` cannot be read: {error}") from error
    return function


def agent_at(run: str, folder: Path) -> object:
    """Return an agent that a hub accepts, a function of one argument or one of a framework, or raise a `CodeError`."""
    thing = _object_at(run, folder)
    function = thing if inspect.isroutine(thing) else _recognised(thing, run)
    try:
        signature = inspect.signature(function)
        if not _takes_brief_alone(signature):
            _refuse_untyped(function, run)
    except ValueError:  # some that are not written in Python have no signature
        pass
    return thing


def _takes_brief_alone(signature: inspect.Signature) -> bool:
    """Return whether a function takes only a brief, as far as its signature alone shows."""
    try:
        signature.bind(None)
    except TypeError:
        return False
    first = next(iter(signature.parameters.values()))
    kind = first.annotation
    return kind is first.empty or getattr(kind, "__name__", kind) in ("Brief", "Any", "object")


def _refuse_untyped(function: Callable[..., Any], run: str) -> None:
    """Raise a `CodeError` if a parameter besides the brief has no type, by which it is filled from the input."""
    from remit.agents.typed import signature_of  # loads the event loop

    try:
        declared = signature_of(function)
        inspect.signature(function).bind(None, **dict.fromkeys(declared.parameters if declared else ()))
    except TypeError:
        raise CodeError(
            f"`{run}` does not take one argument, the brief: `{run.partition(':')[2]}{_signature(function)}`"
        ) from None
    except RemitError as error:
        raise CodeError(f"`{run}`: {error.fault.message}") from error


def _recognised(thing: object, run: str) -> Callable[..., Any]:
    from remit.agents.function import function_of  # loads the event loop

    try:
        return function_of(thing)
    except RemitError as error:
        raise CodeError(f"`{run}`: {error.fault.message}") from error


def _signature(function: Callable[..., Any]) -> str:
    return str(inspect.signature(function))


# ── without running it ────────────────────────────────────────────────────────────────────────────────────────────────


def unseen(run: str, folder: Path) -> str | None:
    """Return why `module:name` cannot exist, as far as that is known without importing anything.

    A module in *folder* is parsed; for one elsewhere only its package is looked up.
    """
    module, _, attribute = run.partition(":")
    file = _file_of(module, folder)
    if file is None:
        return None if _is_elsewhere(module, folder) else _missing(module, folder)
    try:
        names = _defined_in(ast.parse(file.read_bytes(), str(file)))
    except SyntaxError as error:
        return f"`{module}` cannot be read: {file.name}:{error.lineno}: {type(error).__name__}: {error.msg}"
    except (OSError, ValueError, RecursionError) as error:
        return f"`{module}` cannot be read: {type(error).__name__}: {error}"
    first = attribute.partition(".")[0]
    if names is None or first in names:
        return None
    return f"`{module}` has no `{first}`{did_you_mean(first, [each for each in names if not each.startswith('_')])}"


def seen(run: str, folder: Path) -> None:
    """Raise a `CodeError` if `module:name` cannot exist, or this system cannot run it in a process."""
    if sys.platform == "win32":
        raise CodeError('isolation = "process" needs a system with process groups, which Windows is not')
    if why := unseen(run, folder):
        raise CodeError(why)


def docstring_of(run: str, folder: Path) -> str:
    """Return the docstring of a top-level function of a module in *folder*, if it exists."""
    function = _function_at(run, folder)
    return "" if function is None else ast.get_docstring(function) or ""


def parameters_of(run: str, folder: Path) -> dict[str, str]:
    """Return the parameters of a top-level function of a module in *folder*, with annotations, as in the source."""
    function = _function_at(run, folder)
    taken = [] if function is None else [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {each.arg: "" if each.annotation is None else ast.unparse(each.annotation) for each in taken}


def _function_at(run: str, folder: Path) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the parsed source of a top-level function of a module in *folder*; nothing is imported."""
    module, _, name = run.partition(":")
    file = _file_of(module, folder)
    if file is None:
        return None
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    named = [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name]
    return named[-1] if named else None


def _file_of(module: str, folder: Path) -> Path | None:
    path = folder.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def _is_elsewhere(module: str, folder: Path) -> bool:
    """Return whether Python finds the package of a module; a package in *folder* must contain the module itself."""
    package = module.partition(".")[0]
    spec = PathFinder.find_spec(package, [str(folder.resolve()), *sys.path])
    if spec is None or spec.origin is None:
        return spec is not None or package in sys.builtin_module_names
    return package == module or not Path(spec.origin).is_relative_to(folder.resolve())


def _missing(module: str, folder: Path) -> str:
    return f"there is no module `{module}` in {folder} or where Python looks{did_you_mean(module, _modules_in(folder))}"


def _defined_in(tree: ast.Module) -> set[str] | None:
    """Return the top-level names of a module, or nothing if they are known only at run time."""
    names: set[str] = set()
    for node in ast.walk(tree):  # also below `if` and `try`: a name too many only means that nothing is reported
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name="*"):
                return None
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
            case _:
                pass
    return None if "__getattr__" in names else names


# ── imported ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_another(package: str, folder: Path) -> None:
    """Refuse a module of the team if another with its name is loaded already: Python would return that one."""
    loaded = sys.modules.get(package)
    ours = PathFinder.find_spec(package, [str(folder)])
    if loaded is None or ours is None or ours.origin is None:
        return
    theirs = getattr(loaded, "__file__", None)
    if theirs is None or Path(theirs).resolve() != Path(ours.origin).resolve():
        raise CodeError(
            f"a module `{package}` is loaded already, from {theirs or 'Python itself'}: give {ours.origin} another name"
        )


def _imported(module: str, folder: Path) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            near = did_you_mean(module, _modules_in(folder))
            raise CodeError(f"there is no module `{error.name}` in {folder} or where Python looks{near}") from error
        raise CodeError(_how_it_failed(module, error)) from error
    except (Exception, SystemExit) as error:  # the team's code may raise anything when it is imported
        raise CodeError(_how_it_failed(module, error)) from error


def _how_it_failed(module: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or module).name}:{error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        last = [each for each in frames if not each.filename.startswith("<frozen importlib")][-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
    what = error.msg if isinstance(error, SyntaxError) else error
    return f"{IMPORTING}{module}` failed at {where}: {type(error).__name__}: {what}"


def _modules_in(folder: Path) -> list[str]:
    files = [file.relative_to(folder) for pattern in ("*.py", "*/*.py") for file in folder.glob(pattern)]
    return [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
