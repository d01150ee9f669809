"""Describes a workspace folder to agents; no path that they name can leave it."""

import json
import os
import re
import stat
import tomllib
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from remit.ports import TokenCounter
from remit.protocol.errors import Code, RemitError, fault

# A longer name is not a name but a text.
_LONGEST = 100


class Project(NamedTuple):
    """The known facts about a project; empty if unknown."""

    name: str = ""
    stack: tuple[str, ...] = ()


Names = Callable[[str], Iterator[str]]
"""Yields the project's name from a manifest, then its dependencies."""


def _pyproject(text: str) -> Iterator[str]:
    manifest = _table(tomllib.loads(text))
    project, poetry = _table(manifest.get("project")), _table(_table(manifest.get("tool")).get("poetry"))
    yield _string(project.get("name") or poetry.get("name"))
    yield from map(_string, _list(project.get("dependencies")))
    yield from _table(poetry.get("dependencies"))


def _cargo(text: str) -> Iterator[str]:
    manifest = _table(tomllib.loads(text))
    yield _string(_table(manifest.get("package")).get("name"))
    yield from _table(manifest.get("dependencies"))


def _package(text: str) -> Iterator[str]:
    manifest = _table(json.loads(text))
    yield _string(manifest.get("name"))
    for kind in ("dependencies", "devDependencies", "require"):
        yield from _table(manifest.get(kind))


def _spelled(pattern: str) -> Names:
    """Return a reader for manifests that are programs: it only searches for the name."""
    compiled = re.compile(pattern, re.MULTILINE)

    def names(text: str) -> Iterator[str]:
        match = compiled.search(text)
        yield match[1] if match else ""

    return names


def _pom(text: str) -> Iterator[str]:
    # The first artifactId is that of the project, unless it has a parent, which comes before it. No XML is parsed.
    match = re.search(r"<artifactId>([^<>]{1,200})</artifactId>", text.rpartition("</parent>")[2])
    yield match[1].strip() if match else ""
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
        names = _survived(names_of, read(manifest) or "")
        name = name or " ".join(names[0].split())[:_LONGEST]
        for dependency in names[1:]:
            match = _NAME.match(dependency)
            if match and (known := _BUILT_ON.get(match[0].lower())):
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


# Folders and files of the hub, of git and of a person's own tools, which may contain credentials.
_CLOSED = frozenset([
    ".remit", ".git", ".git-credentials", ".ssh", ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".docker",
    ".dockercfg", ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".mylogin.cnf", ".boto",
    ".s3cfg", ".vault-token", ".terraform.d", ".terraformrc", ".password-store", ".htpasswd", "htpasswd", ".esmtprc",
    ".msmtprc", ".lesshst", ".viminfo", ".wget-hsts", ".mozilla", ".rclone.conf", "rclone.conf",
])  # fmt: skip
_BEGINNINGS = (".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss")
_ENDINGS = (
    ".key", ".pem", ".p12", ".pfx", ".p8", ".pk8", ".ppk", ".pkcs12", ".keystore", ".jks", ".bks", ".kdb", ".kdbx",
    ".keytab", ".gpg", ".agekey", ".htpasswd", ".ovpn", ".tfstate", ".tfstate.backup", ".keychain", ".keychain-db",
)  # fmt: skip
# `.bash_history`, `.psql_history`, `ConsoleHost_history.txt`: what is typed often has a password in it.
_HISTORY = re.compile(r"\..*hist(?:ory|file)?|(?:bash|zsh|sh|ksh|fish|psql|mysql|consolehost)_history(?:\.txt)?")
# Data, not code: `credentials.py` is source text, and `credentials` may be a folder of it.
_NAMED = re.compile(
    r"(?:.*[-_.])?(?:credentials?|secrets?|passwords?|passwd|client[-_]secret.*|service[-_]account.*|tokens?|kubeconfig)"
    r"(?:\.(?:json|ya?ml|toml|ini|cfg|conf|env|txt|csv|xml|properties|enc|db))?"
)
_WHOLE = frozenset([
    "shadow", "gshadow", "wp-config.php", "master.key", "kubeconfig", "logins.json", "key3.db", "key4.db",
    "cookies.sqlite", "terraform.tfvars", "auth.json",
])  # fmt: skip


def is_closed(name: str) -> bool:
    """Return whether a file or folder of that name is hidden."""
    name = name.casefold()
    return name in _CLOSED or name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)


def is_secret(name: str) -> bool:
    """Return whether a file is never shown to an agent, because its name suggests keys, passwords or histories.

    All ways in which files reach an agent use this list: the workspace of a hub, and the files that a local agent's
    client reads for it. A name is a hint, not a proof: the content of a file with an ordinary name is redacted.
    """
    plain = name.casefold()
    return bool(is_closed(name) or plain in _WHOLE or _HISTORY.fullmatch(plain) or _NAMED.fullmatch(plain))


# O3: more than this is bloat.
_ENTRIES = 20
# A folder with more entries than this is not read completely just to sort it.
_LOOKED_AT = 10_000
# At most this much of a file is read: some 60,000 tokens, more than a callee is shown.
_READ = 256 * 1024
# As many symbolic links as Linux follows.
_LINKS = 40

_CLUTTER = frozenset(
    {"node_modules", "bower_components", "vendor", "__pycache__", "venv", "env", "dist", "build", "target", "htmlcov"}
)


class _OpenedPath(NamedTuple):
    info: os.stat_result
    descriptor: int | None
    """Open for reading, if this user may."""


class Folder:
    """A directory as a workspace; its path is shown as given here."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def describe(self, files: Sequence[str] | None, *, contents: bool, room: int, count: TokenCounter) -> str:
        """Return the description of the folder, in at most *room* tokens."""
        names = list(dict.fromkeys(files or ()))
        paths = [(name, _parts(name)) for name in names]
        lines = [f"Working directory: {_escape(str(self.root))}"]
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return _within([*lines, "(it cannot be read)"], room, count)
        with ExitStack() as stack:
            stack.callback(os.close, root)
            walk = _Walk(root, (os.path.realpath(self.root), str(self.root.absolute())))
            if files is None:
                lines += ["", "Workspace structure:", *_top_level(walk)]
                listed: list[tuple[str, _OpenedPath]] = []
            else:
                listed = [
                    (name, path) for name, parts in paths if (path := stack.enter_context(walk.find(name, parts)))
                ]
                lines += ["", "Relevant files:", *(f"  - {_escape(name)} ({_size(path)})" for name, path in listed)]
            lines += _project(walk)
            text = _within(lines, room, count)
            if contents and text == "\n".join(lines):
                text = _contents(listed, text, room, count)
        return text


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# Escapes for URLs that stand for dots, slashes, control characters, or for themselves.
_ESCAPED = re.compile(r"%(?:2[ef5]|5c|[01][0-9a-f]|7f|c[01]|e0%80|f0%80)", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
# Characters that people and some systems read as a slash.
_SLASHES = frozenset("∕⁄⧸⧹╱╲／＼﹨\\")


def _parts(path: str) -> list[str]:
    """Return the parts of a path, or refuse a path that could be read in more than one way."""
    if any(unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for sign in path):
        raise _refused(path, "has characters in it that cannot be seen")
    if not _SLASHES.isdisjoint(path) or _ESCAPED.search(path):
        raise _refused(path, "is not spelled plainly")
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        raise _refused(path, "does not start in the workspace")
    parts = path.split("/")
    normal = unicodedata.normalize("NFKC", path).split("/")
    if len(parts) != len(normal) or any(
        dots in {".", ".."} and dots != part for part, dots in zip(parts, normal, strict=True)
    ):
        raise _refused(path, "is not spelled plainly")
    return parts


def _refused(path: str, why: str) -> RemitError:
    return RemitError(fault(Code.PATH_NOT_ALLOWED, f"the path `{_escape(path)}` {why}"))


class _Walk:
    """Finds files from an open folder, part by part: the checked file is the opened one, even if someone moves
    it meanwhile.
    """

    def __init__(self, root: int, spellings: Sequence[str]) -> None:
        self.root = root
        self._spellings = [spelling.rstrip("/") for spelling in spellings]

    @contextmanager
    def find(self, name: str, parts: Sequence[str]) -> Generator[_OpenedPath | None]:
        """Yield a file or folder, open within the block; None if it does not exist. Raises if it may not be shown."""
        with ExitStack() as stack:
            yield self._find(name, list(reversed(parts)), stack)

    def _find(self, name: str, pending: list[str], stack: ExitStack) -> _OpenedPath | None:
        folders = [self.root]
        links = 0
        while pending:
            part = pending.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                if len(folders) == 1:
                    raise _refused(name, "leads out of the workspace")
                folders.pop()
                continue
            if is_closed(part):
                raise _refused(name, _SECRET)
            try:
                info = os.stat(part, dir_fd=folders[-1], follow_symlinks=False)
                if stat.S_ISLNK(info.st_mode):
                    links += 1
                    target = os.readlink(part, dir_fd=folders[-1])
                    if links > _LINKS:
                        raise _refused(name, "is a circular link")
                    if target.startswith("/"):
                        target = self._inside(name, target)
                        folders = [self.root]
                    pending += reversed(target.split("/"))
                elif stat.S_ISDIR(info.st_mode):
                    folders.append(_opened(part, os.O_DIRECTORY, folders[-1], stack))
                elif stat.S_ISREG(info.st_mode):
                    if is_secret(part):
                        raise _refused(name, _SECRET)
                    # A file has no children.
                    return None if pending else _file(name, part, info, folders[-1], stack)
                else:
                    raise _refused(name, "is a device, pipe or socket")
            except OSError:
                # It does not exist, is not a folder, is not readable for this user, or was changed meanwhile.
                return None
        return _OpenedPath(os.fstat(folders[-1]), folders[-1])

    def _inside(self, name: str, target: str) -> str:
        for spelling in self._spellings:
            if f"{target}/".startswith(f"{spelling}/"):
                return target[len(spelling) :]
        raise _refused(name, "leads out of the workspace")


def _opened(part: str, flags: int, folder: int, stack: ExitStack) -> int:
    # Non-blocking, in case it is a pipe by now.
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(part, flags, dir_fd=folder)
    stack.callback(os.close, descriptor)
    return descriptor


def _file(name: str, part: str, info: os.stat_result, folder: int, stack: ExitStack) -> _OpenedPath:
    try:
        descriptor = _opened(part, 0, folder, stack)
    except PermissionError:
        return _OpenedPath(info, None)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise _refused(name, "is a device, pipe or socket")
    if info.st_nlink > 1:
        raise _refused(name, "is a hard link, which may refer to a file elsewhere")
    return _OpenedPath(info, descriptor)


_SECRET = "is not shown to agents: such files hold keys, or belong to a tool"


# ── the description ───────────────────────────────────────────────────────────────────────────────────────────────────


def _top_level(walk: _Walk) -> list[str]:
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(walk.root) as entries:
        for entry in islice(entries, _LOOKED_AT):
            if entry.name.startswith(".") or entry.name in _CLUTTER or is_closed(entry.name):
                continue
            kind = _kind(walk, entry)
            if kind == stat.S_IFDIR:
                folders.append(entry.name)
            elif kind == stat.S_IFREG and not is_secret(entry.name):
                files.append(entry.name)
        more = next(entries, None) is not None
    lines = [f"  [DIR] {_escape(name)}" for name in sorted(folders)] + [
        f"  [FILE] {_escape(name)}" for name in sorted(files)
    ]
    left = len(lines) - _ENTRIES
    if left > 0 or more:
        lines[_ENTRIES:] = [f"  … and {'more than ' if more else ''}{max(left, 0)} more"]
    return lines or ["  (nothing)"]


def _kind(walk: _Walk, entry: os.DirEntry[str]) -> int:
    """Return the type of an entry; 0 for a link that leads out, and for anything but files and folders."""
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if not entry.is_symlink():
        return 0
    try:
        with walk.find(entry.name, [entry.name]) as target:
            return stat.S_IFMT(target.info.st_mode) if target else 0
    except RemitError:
        return 0


def _project(walk: _Walk) -> list[str]:
    def read(name: str) -> str | None:
        try:
            with walk.find(name, [name]) as manifest:
                return None if manifest is None else _text(manifest)
        except RemitError:
            return None

    with os.scandir(walk.root) as entries:
        names = sorted(entry.name for entry in islice(entries, _LOOKED_AT) if MANIFESTS.fullmatch(entry.name))
    project = project_of(names, read)
    lines = [f"Project: {_escape(project.name)}"] if project.name else []
    if project.stack:
        lines.append(f"Tech stack: {', '.join(project.stack)}")
    return ["", *lines] if lines else []


def _contents(listed: Sequence[tuple[str, _OpenedPath]], before: str, room: int, count: TokenCounter) -> str:
    """Return the content of the files, the smallest first: each gets an equal part of the room that the others left."""
    files = [(name, path) for name, path in listed if stat.S_ISREG(path.info.st_mode)]
    files.sort(key=lambda file: file[1].info.st_size)
    text = before
    for place, (name, path) in enumerate(files):
        used = count(text)
        most = used + (room - used) // (len(files) - place)
        piece = _fit_file(name, _text(path), path.info.st_size, lambda piece: count(text + piece) <= most)  # noqa: B023
        if count(text + piece) <= room:
            text += piece
    return text


def _fit_file(name: str, content: str | None, size: int, fits: Callable[[str], bool]) -> str:
    """Return as many complete lines of a file as fit, and how much is missing."""
    if content is None:
        return f"\n\n{_escape(name)}: cannot be shown, it is not text, or not for this user to read"
    lines = content.splitlines(keepends=True)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))

    def piece(some: int) -> str:
        shown = "".join(lines[:some])
        missing = size - len(shown.encode())
        end = "\n" if shown and not shown.endswith("\n") else ""
        note = f"\n({_bytes(missing)} of {_bytes(size)} are not shown)" if missing > 0 else ""
        return f"\n\n{_escape(name)}:\n{fence}\n{shown}{end}{fence}{note}"

    return piece(_most(len(lines), lambda some: fits(piece(some))))


def _text(file: _OpenedPath) -> str | None:
    """Return the beginning of a file, up to the end of a line if it is long; None if it is not text, or unreadable."""
    if file.descriptor is None:
        return None
    raw = b""
    try:
        while len(raw) <= _READ and (more := os.read(file.descriptor, _READ + 1 - len(raw))):
            raw += more
        if len(raw) > _READ:
            raw = raw[: raw.rfind(b"\n") + 1]
        return None if b"\0" in raw else raw.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _within(lines: Sequence[str], room: int, count: TokenCounter) -> str:
    """Return the first lines, as many as fit."""
    return "\n".join(lines[: _most(len(lines), lambda some: count("\n".join(lines[:some])) <= room)])


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number up to *limit* that fits, assuming that all smaller ones do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _size(path: _OpenedPath) -> str:
    return "folder" if stat.S_ISDIR(path.info.st_mode) else _bytes(path.info.st_size)


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1_000 else f"{size / 1_000:.1f} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


def _escape(name: str) -> str:
    """Return a name without characters that would break the line."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()
