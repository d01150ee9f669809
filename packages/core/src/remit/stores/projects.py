"""The name and the technologies of a project, read from its manifests."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

# A longer name is not a name but a text.
_LONGEST = 100


class Project(NamedTuple):
    """The known facts about a project; empty if unknown."""

    name: str = ""
    stack: tuple[str, ...] = ()


Names = Callable[[str], Iterator[str]]
"""Yields the project's name from a manifest, then its dependencies."""


def _pyproject(text: str) -> Iterator[str]:
    said = _table(tomllib.loads(text))
    project, poetry = _table(said.get("project")), _table(_table(said.get("tool")).get("poetry"))
    yield _string(project.get("name") or poetry.get("name"))
    yield from map(_string, _list(project.get("dependencies")))
    yield from _table(poetry.get("dependencies"))


def _cargo(text: str) -> Iterator[str]:
    said = _table(tomllib.loads(text))
    yield _string(_table(said.get("package")).get("name"))
    yield from _table(said.get("dependencies"))


def _package(text: str) -> Iterator[str]:
    said = _table(json.loads(text))
    yield _string(said.get("name"))
    for kind in ("dependencies", "devDependencies", "require"):
        yield from _table(said.get(kind))


def _spelled(pattern: str) -> Names:
    """Return a reader for manifests that are programs: it only searches for the name."""
    compiled = re.compile(pattern, re.MULTILINE)

    def names(text: str) -> Iterator[str]:
        found = compiled.search(text)
        yield found[1] if found else ""

    return names


def _pom(text: str) -> Iterator[str]:
    # The first artifactId is that of the project, unless it has a parent, which comes before it. No XML is parsed.
    found = re.search(r"<artifactId>([^<>]{1,200})</artifactId>", text.rpartition("</parent>")[2])
    yield found[1].strip() if found else ""
    if "<artifactId>spring-boot" in text:
        yield "spring-boot"


def _nothing(_: str) -> Iterator[str]:
    yield ""


# The file, its language or platform, and its reader; the first manifest with a name names the project.
_MANIFESTS: dict[str, tuple[str, Names]] = {
    "pyproject.toml": ("Python", _pyproject),
    "package.json": ("JavaScript", _package),
    "Cargo.toml": ("Rust", _cargo),
    "go.mod": ("Go", _spelled(r"^module[ \t]{1,9}(\S{1,200})")),
    "pom.xml": ("Java", _pom),
    "settings.gradle": ("Gradle", _spelled(r"rootProject\.name {0,9}= {0,9}[\"']([^\"'\n]{1,200})")),
    "settings.gradle.kts": ("Gradle", _spelled(r"rootProject\.name {0,9}= {0,9}[\"']([^\"'\n]{1,200})")),
    "build.gradle": ("Gradle", _nothing),
    "build.gradle.kts": ("Gradle", _nothing),
    "composer.json": ("PHP", _package),
    "mix.exs": ("Elixir", _spelled(r"\bapp: {0,9}:(\w{1,200})")),
    "pubspec.yaml": ("Dart", _spelled(r"^name:[ \t]{0,9}(\w{1,200})")),
    "Package.swift": ("Swift", _spelled(r"\bname: {0,9}\"([^\"\n]{1,200})")),
    "CMakeLists.txt": ("CMake", _spelled(r"^[ \t]{0,9}(?i:project)[ \t]{0,9}\([ \t]{0,9}([\w.-]{1,200})")),
    "setup.py": ("Python", _nothing),
    "requirements.txt": ("Python", lambda text: iter(["", *text.splitlines()])),
    "Gemfile": ("Ruby", _nothing),
    "deno.json": ("Deno", _package),
    "tsconfig.json": ("TypeScript", _nothing),
    "Dockerfile": ("Docker", _nothing),
    "compose.yaml": ("Docker", _nothing),
    "docker-compose.yml": ("Docker", _nothing),
}
_DOTNET = re.compile(r"(.{1,200})\.(?:cs|fs|vb)proj")
MANIFESTS = re.compile("|".join([*map(re.escape, _MANIFESTS), _DOTNET.pattern]))

# The technology that a dependency of this name shows, in any manifest.
_BUILT_ON = {
    "django": "Django",
    "flask": "Flask",
    "fastapi": "FastAPI",
    "starlette": "Starlette",
    "pydantic": "Pydantic",
    "sqlalchemy": "SQLAlchemy",
    "pandas": "pandas",
    "numpy": "NumPy",
    "torch": "PyTorch",
    "react": "React",
    "next": "Next.js",
    "vue": "Vue",
    "svelte": "Svelte",
    "@angular/core": "Angular",
    "express": "Express",
    "vite": "Vite",
    "typescript": "TypeScript",
    "electron": "Electron",
    "tokio": "Tokio",
    "axum": "Axum",
    "actix-web": "Actix",
    "spring-boot": "Spring Boot",
    "laravel/framework": "Laravel",
}
_NAME = re.compile(r"[@\w][\w./@-]{0,99}")


def project_of(manifests: Sequence[str], read: Callable[[str], str | None]) -> Project:
    """Return the facts in the manifests of one folder; *read* returns the text of each, or None."""
    name, stack = "", dict[str, None]()
    for manifest in sorted(manifests, key=_rank):
        if dotnet := _DOTNET.fullmatch(manifest):
            name, stack = name or dotnet[1][:_LONGEST], stack | {".NET": None}
            continue
        language, names_of = _MANIFESTS[manifest]
        stack[language] = None
        said = _survived(names_of, read(manifest) or "")
        name = name or " ".join(said[0].split())[:_LONGEST]
        for dependency in said[1:]:
            found = _NAME.match(dependency)
            if found and (known := _BUILT_ON.get(found[0].lower())):
                stack[known] = None
    return Project(name, tuple(stack))


def _rank(manifest: str) -> tuple[int, str]:
    return (list(_MANIFESTS).index(manifest) if manifest in _MANIFESTS else len(_MANIFESTS)), manifest


def _survived(names_of: Names, text: str) -> list[str]:
    try:
        return list(names_of(text))
    except (ValueError, RecursionError):
        # Even a broken manifest shows the technology by its file name.
        return [""]


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
