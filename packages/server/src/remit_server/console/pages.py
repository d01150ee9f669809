"""The files of the console and of the page that shows the OpenAPI description."""

import gzip
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.aside import aside
from remit_server.bodies import (
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    quality,
    quality_of_coding,
    send_bytes,
    send_fault,
)
from remit_server.operations import get, sends
from remit_server.refusals import PLACE

BUILT = Path(__file__).parent / "built"
_INDEX = "/index.html"
_DOCS = "/docs.html"

# The addresses of programs. Every other one is a page, if a browser asks for it.
_PROGRAMS = (
    *("/v1/", "/a2a/", "/dialects/", "/mcp", "/metrics", "/openapi.json", "/healthz", "/readyz", "/.well-known/"),
    "/docs",  # for everybody, as the description that it shows
)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_COMPRESSED = (".html", ".js", ".css", ".svg", ".json", ".txt", ".webmanifest")
# A smaller file fits into one packet anyway.
_WORTH_IT = 1_000

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")
_ANEW = (b"cache-control", b"no-cache")

HOW_TO_BUILD = (
    "Install Remit from its wheel, which has it. In a checkout: make .venv/.ready, with access to the npm registry."
)


class ConsoleFile(Struct, frozen=True, kw_only=True):
    """One file of the page; its content is read when it is asked for."""

    path: Path
    type: str
    changed_ns: int
    """When it was built."""
    is_compressible: bool
    """Whether it is sent compressed to browsers that take that."""
    is_hashed: bool
    """Whether its name changes with its content."""


def is_built(folder: Path = BUILT) -> bool:
    """Return whether this installation has the console."""
    return (folder / "index.html").is_file()


def not_built() -> RemitError:
    """Return the error of an installation without the console."""
    return RemitError(fault(Code.TEAM_INVALID, "this installation has no console", suggestion=HOW_TO_BUILD))


class ConsolePages:
    """Answers requests for the page and its files."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder

    def file_for(self, method: str, path: str, headers: Headers) -> ConsoleFile | None:
        """Return the file for a request; None if it is not for a page. Each path of the page has the same one."""
        if method not in ("GET", "HEAD") or path.startswith(_PROGRAMS):
            return None
        files = files_in(self._folder, _stamp(self._folder))
        if path in files:
            return files[path]
        is_page = path == "/" or (quality(headers, "text/html") > 0 and not path.startswith("/assets/"))
        return files.get(_INDEX) if is_page else None

    def docs(self) -> ConsoleFile | None:
        """Return the page that shows the API; None if this installation has none."""
        return files_in(self._folder, _stamp(self._folder)).get(_DOCS)

    async def send(self, scope: Scope, send: Send, file: ConsoleFile, headers: Headers) -> None:
        """Send a file, in the best form that the browser takes; nothing, if the browser has it."""
        scope[PLACE] = "/assets/{file}" if file.is_hashed else "/{page}"
        is_compressed = file.is_compressible and quality_of_coding(headers, "gzip") > 0
        content = await aside.run(_compressed, file.path, file.changed_ns) if is_compressed else file.path.read_bytes()
        tag = f'"{sha256(content).hexdigest()[:32]}"'.encode()
        common = (*HEADERS, _FOR_EVER if file.is_hashed else _ANEW, (b"etag", tag), (b"vary", b"accept-encoding"))
        if tag.decode() in (each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")):
            await send({"type": "http.response.start", "status": 304, "headers": list(common)})
            await send({"type": "http.response.body", "body": b""})
            return
        more = ((b"content-encoding", b"gzip"),) if is_compressed else ()
        sent = (*common, *more, (b"content-type", file.type.encode()))
        if scope["method"] == "HEAD":
            length = (b"content-length", str(len(content)).encode())
            await send({"type": "http.response.start", "status": 200, "headers": [*sent, length]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send_bytes(send, 200, content, sent)


@lru_cache(maxsize=4)
def files_in(folder: Path, stamp: int) -> dict[str, ConsoleFile]:  # noqa: ARG001 - another build is read anew
    """Return the files of a built page, by path. Only these are ever read, whatever a request asks for."""
    files: dict[str, ConsoleFile] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _TYPES or not path.is_file():
            continue
        place = path.relative_to(folder)
        files[f"/{place.as_posix()}"] = ConsoleFile(
            path=path,
            type=_TYPES[path.suffix],
            changed_ns=(about := path.stat()).st_mtime_ns,
            is_compressible=path.suffix in _COMPRESSED and about.st_size >= _WORTH_IT,
            is_hashed=place.parts[0] == "assets",
        )
    return files


def _stamp(folder: Path) -> int:
    try:
        return (folder / "index.html").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@lru_cache(maxsize=128)
def _compressed(path: Path, changed_ns: int) -> bytes:  # noqa: ARG001 - another build is compressed anew
    """Return a file as gzip: made once, since a build has some dozen files, and the package stays small."""
    return gzip.compress(path.read_bytes(), 9, mtime=0)


LOCAL_PAGES = ("/docs", "/docs/shared")
"""The paths of the page at a device: for the API of its hub, and for its own."""
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class ApiDocs:
    """Sends the page. It holds nothing of this server: the browser loads the description, by that one's own rule."""

    def __init__(self, pages: ConsolePages | None = None) -> None:
        self._pages = pages or ConsolePages()

    @sends(get("/docs", media="text/html", also=((503, None),), failure=None, anyone=True))
    async def docs(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """This document as a page for people."""
        headers = headers_of(scope)
        file = self._pages.docs()
        if file is None:
            text = f"This installation has no page for its API; /openapi.json has the data.\n{HOW_TO_BUILD}\n"
            await send_bytes(send, 503, text.encode(), (_TEXT, *HEADERS))
            return
        await self._pages.send(scope, send, file, headers)

    async def sends_file(self, scope: Scope, send: Send) -> bool:
        """Send a script, style or picture that the page asks for; return whether the request was for one."""
        raw: bytes = scope["raw_path"]
        if not raw.startswith((b"/assets/", b"/icon.svg")) or scope["method"] not in ("GET", "HEAD"):
            return False
        try:
            headers = headers_of(scope)
        except RemitError as error:
            await send_fault(send, error.fault)
            return True
        file = self._pages.file_for(scope["method"], raw.decode("ascii"), headers)
        if file is None:
            return False
        await self._pages.send(scope, send, file, headers)
        return True
