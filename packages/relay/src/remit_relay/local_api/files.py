"""The files of runs in the local API: upload, list, download and remove."""

from urllib.parse import parse_qs, quote, unquote

from msgspec import Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.words.file_types import OCTETS
from remit_relay.local_api.routes import NO_STORE, VIA
from remit_relay.run_files import files_of
from remit_relay.session.file_rules import MAX_TOTAL, Attachment
from remit_relay.session.run import Overlay, Person
from remit_relay.session_service import SessionService
from remit_server.bodies import Receive, Scope, Send, headers_of, read_body, send_bytes, send_value
from remit_server.documents.api import Parameter
from remit_server.operations import Operation

# A file comes from somebody else, and the page of this origin holds the rights of its user: a browser saves it, and
# neither shows nor runs it.
_DOWNLOAD = (
    (b"content-type", OCTETS.encode()),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    *NO_STORE,
)
_CLIENTS = ("api", "chat")


class FileView(Struct, frozen=True, kw_only=True):
    """A file of a run."""

    id: str
    """Empty if it was refused."""
    name: str
    media_type: str
    size: int
    refused: str
    """Why it was not taken from the other device; empty if it was."""


class FileList(Struct, frozen=True, kw_only=True):
    """The files that the next message will carry, and those of the messages before, oldest first."""

    attached: tuple[FileView, ...]
    received: tuple[FileView, ...]
    sent: tuple[FileView, ...]


def file_view(file: Attachment) -> FileView:
    """Return the view of a file."""
    return FileView(id=file.id, name=file.name, media_type=file.media_type, size=file.size, refused=file.refused)


def file_routes(host: SessionService) -> list[Operation]:
    """Return the operations below `/v1/shared/runs/{run}/files`; a file is named by its id or its name."""
    endpoints = _FileEndpoints(host)
    place = "/v1/shared/runs/{run}/files"
    name = Parameter(name="name", meaning="The name of the file; the body is its content.", required=True)
    by = Parameter(name="by", meaning="Who does it, as the record is to name them.")
    return [
        Operation(
            method="GET",
            path=place,
            endpoint=endpoints.list,
            name="files",
            summary="The files of a run, and those that the next message will carry.",
            answer=FileList,
        ),
        Operation(
            method="POST",
            path=place,
            endpoint=endpoints.attach,
            name="attach",
            summary="Add a file to the next message.",
            parameters=(name, by),
            answer=FileView,
            status=201,
        ),
        Operation(
            method="GET",
            path=place + "/{file}",
            endpoint=endpoints.download,
            name="download",
            summary="The content of a file, to be saved.",
        ),
        Operation(
            method="DELETE",
            path=place + "/{file}",
            endpoint=endpoints.detach,
            name="detach",
            summary="Remove a file from the next message.",
            parameters=(by,),
            answer=FileList,
        ),
    ]


class _FileEndpoints:
    def __init__(self, host: SessionService) -> None:
        self._host = host

    async def list(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs/{run}/files`."""
        await self._show(send, self._run(scope))

    async def attach(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs/{run}/files?name=NAME`: the body is the file."""
        run, headers = self._run(scope), headers_of(scope)
        names = _query(scope).get("name", [])
        if len(names) != 1:
            problem = Problem("name", "expected once, the name of the file")
            raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid parameter `name`", problems=(problem,)))
        said = headers.get("content-type", "").partition(";")[0].strip().lower()
        # What programs send if they do not know the type.
        media_type = "" if said in (OCTETS, "application/x-www-form-urlencoded") else said
        data = await read_body(headers, receive, MAX_TOTAL)
        run = await self._host.files.attach(run.id, names[0], data, media_type=media_type, by=_person(scope))
        await send_value(send, file_view(run.attached[-1]), 201, NO_STORE)

    async def download(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs/{run}/files/{file}`: the content, to be saved."""
        file, data = await self._host.files.content(self._run(scope).id, _file(scope))
        saved = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}".encode()
        await send_bytes(send, 200, data, (*_DOWNLOAD, (b"content-disposition", saved)))

    async def detach(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`DELETE /v1/shared/runs/{run}/files/{file}`: the next message does not carry it."""
        run = await self._host.files.detach(self._run(scope).id, _file(scope), by=_person(scope))
        await self._show(send, run)

    async def _show(self, send: Send, run: Overlay) -> None:
        said = (*run.timeline, *run.kept)
        attached = {each.id for each in run.attached}
        others = [each for each in files_of(run) if each.id not in attached]
        received = {each for entry in said if entry.role == "remote_agent" for each in entry.files}
        shown = FileList(
            attached=tuple(map(file_view, run.attached)),
            received=tuple(file_view(each) for each in others if each in received),
            sent=tuple(file_view(each) for each in others if each not in received),
        )
        await send_value(send, shown, headers=NO_STORE)

    def _run(self, scope: Scope) -> Overlay:
        run = scope["path_params"]["run"]
        for each in self._host.runs:
            if each.id == run:
                return each
        raise RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}` on this device"))


def _file(scope: Scope) -> str:
    """Return the id or the name of a file."""
    return unquote(scope["path_params"]["file"])


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _person(scope: Scope) -> Person:
    """Return who sends a command, as far as the client says, and by which client."""
    query, client = _query(scope), scope[VIA]
    by, via = (query.get(name, [""])[0] for name in ("by", "via"))
    return Person(by[:256] or client, via if client == "api" and via in _CLIENTS else client)
