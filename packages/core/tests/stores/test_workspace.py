"""A folder is described as far as agents may know it, and no path leads out of it."""

import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from properties import share
from remit.policy.budget import estimate
from remit.ports import Workspace
from remit.protocol.errors import Code, RemitError
from remit.stores import workspace as module
from remit.stores.workspace import Folder

SECRET = "not for agents"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a few files in it, and a secret beside it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print('a')\n")
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    return root


def show(root: Path | str, files: Sequence[str] | None = None, *, contents: bool = False, room: int = 2_000) -> str:
    workspace: Workspace = Folder(root)
    return workspace.describe(files, contents=contents, room=room, count=estimate)


def refusal(root: Path, path: str) -> str:
    with pytest.raises(RemitError) as caught:
        show(root, [path], contents=True)
    assert caught.value.fault.code is Code.PATH_NOT_ALLOWED
    return caught.value.fault.message


# ── what is told ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_names_the_top_level_is_told_folders_first(root: Path) -> None:
    """O3: working directory and top level."""
    (root / "B.md").touch()
    assert show(root) == "\n".join(
        (
            f"Working directory: {root}",
            "",
            "Workspace structure:",
            "  [DIR] src",
            "  [FILE] B.md",
            "  [FILE] notes.txt",
        )
    )


def test_the_path_is_told_as_it_was_given(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O3: working directory."""
    monkeypatch.chdir(root)
    assert show(".").startswith("Working directory: .\n")


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    assert show(tmp_path).endswith("Workspace structure:\n  (nothing)")


def test_no_more_than_twenty_entries_are_told_and_how_many_there_are(root: Path) -> None:
    """O3: 20 entries."""
    for number in range(25):
        (root / f"f{number:02}").touch()
    lines = show(root).splitlines()[3:]
    assert lines[:2] == ["  [DIR] src", "  [FILE] f00"]
    assert lines[20:] == ["  … and 7 more"]


def test_a_folder_without_end_is_not_read_to_its_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKED_AT", 1)
    assert show(root).splitlines()[-1] == "  … and more than 0 more"


def test_hidden_files_and_clutter_are_left_out(root: Path) -> None:
    """O3: nothing but what says something about the project."""
    for name in (".git", ".venv", "node_modules", "__pycache__", ".remit"):
        (root / name).mkdir()
    for name in (".env", "server.key", ".hidden"):
        (root / name).touch()
    os.mkfifo(root / "pipe")
    assert show(root).splitlines()[3:] == ["  [DIR] src", "  [FILE] notes.txt"]


def test_named_files_are_told_if_they_are_there_with_their_size(root: Path) -> None:
    """O3: the named files."""
    (root / "big").write_bytes(b"x" * 12_345)
    (root / "huge").write_bytes(b"x" * 1_234_567)
    names = ["notes.txt", "src", "src/a.py", "nowhere", "notes.txt/x", "big", "huge", "notes.txt", "./src/../big"]
    assert show(root, names).splitlines()[2:] == [
        "Relevant files:",
        "  - notes.txt (14 B)",
        "  - src (folder)",
        "  - src/a.py (11 B)",
        "  - big (12.3 kB)",
        "  - huge (1.2 MB)",
        "  - ./src/../big (12.3 kB)",
    ]


def test_a_name_stays_on_its_line_whatever_is_in_it(root: Path) -> None:
    (root / "a\n[DIR] b").touch()
    (root / os.fsdecode(b"\xff")).touch()
    assert show(root).splitlines()[4:] == [r"  [FILE] a\n[DIR] b", "  [FILE] notes.txt", r"  [FILE] \udcff"]


def test_a_folder_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    assert show(tmp_path / "gone", ["a"]) == f"Working directory: {tmp_path / 'gone'}\n(it cannot be read)"


def test_the_project_is_told_with_the_folder(root: Path) -> None:
    """O3: project name and stack."""
    (root / "pyproject.toml").write_text('[project]\nname = "demo"\ndependencies = ["fastapi>=1"]\n')
    (root / "Dockerfile").touch()
    assert show(root, []).splitlines()[2:] == [
        "Relevant files:",
        "",
        "Project: demo",
        "Tech stack: Python, FastAPI, Docker",
    ]


def test_a_manifest_that_leads_out_is_not_read(root: Path) -> None:
    """O3: never a path outside the workspace."""
    (root.parent / "package.json").write_text('{"name": "outside"}')
    (root / "package.json").symlink_to("../package.json")
    (root / "go.mod").symlink_to("gone")
    assert show(root).splitlines()[-1] == "Tech stack: JavaScript, Go"


# ── contents ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_contents_are_shown_only_of_named_files_and_only_if_asked(root: Path) -> None:
    """O3: the named files."""
    assert (
        show(root, ["notes.txt", "src"], contents=True).partition("\n\nnotes.txt:\n")[2] == "```\none\ntwo\nthree\n```"
    )
    assert "two" not in show(root, ["notes.txt"]) + show(root, contents=True)


def test_a_fence_is_longer_than_any_in_the_file(root: Path) -> None:
    (root / "a.md").write_text("```\ncode\n````")
    assert show(root, ["a.md"], contents=True).endswith("a.md:\n`````\n```\ncode\n````\n`````")


@pytest.mark.parametrize("raw", [b"a\0b", b"\xff\xfe", "ä".encode("latin-1"), "a".encode("utf-16")])
def test_what_is_not_text_is_not_shown(root: Path, raw: bytes) -> None:
    (root / "x").write_bytes(raw)
    assert show(root, ["x"], contents=True).endswith(
        "\n\nx: cannot be shown, it is not text, or not for this user to read"
    )


def test_a_long_file_is_cut_at_the_end_of_a_line_and_what_is_missing_is_said(root: Path) -> None:
    """O3, O2: fitted to the token budget."""
    (root / "long").write_text("".join(f"line {number}\n" for number in range(10_000)))
    shown = show(root, ["long"], contents=True, room=200)
    assert shown.splitlines()[-3].startswith("line ")
    assert shown.splitlines()[-2] == "```"
    assert shown.endswith("of 98.9 kB are not shown)")
    assert 150 < estimate(shown) <= 200


def test_no_more_of_a_file_is_read_than_could_be_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ", 20)
    (root / "long").write_text("123456789\n" * 4)
    assert show(root, ["long"], contents=True).endswith("```\n123456789\n123456789\n```\n(20 B of 40 B are not shown)")


def test_files_share_the_room_and_what_one_leaves_another_may_use(root: Path) -> None:
    (root / "long").write_text("a b c d\n" * 1_000)
    shown = show(root, ["notes.txt", "long", "src/a.py"], contents=True, room=400)
    assert "three" in shown
    assert "print('a')" in shown
    assert 300 < estimate(shown) <= 400


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-1, 300), st.sampled_from([None, ["notes.txt", "src/a.py", "long"]]))
def test_never_more_is_told_than_there_is_room_for(root: Path, room: int, files: list[str] | None) -> None:
    """O2: fitted to the token budget."""
    (root / "long").write_text("a b c d\n" * 100)
    (root / "pyproject.toml").write_text('[project]\nname = "demo"\n')
    assert estimate(show(root, files, contents=True, room=room)) <= max(room, 0)


def test_a_file_that_may_not_be_read_is_told_and_not_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return opened(*args)  # pyright: ignore[reportArgumentType]
        raise PermissionError

    opened = os.open
    monkeypatch.setattr(os, "open", denied)
    shown = show(root, ["notes.txt"], contents=True)
    assert "  - notes.txt (14 B)" in shown
    assert shown.endswith("cannot be shown, it is not text, or not for this user to read")


def test_a_file_that_fails_while_it_is_read_is_not_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise OSError("bad sector")

    monkeypatch.setattr(os, "read", failing)
    assert show(root, ["notes.txt"], contents=True).endswith("not for this user to read")


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

ODD = [
    *("../secret.txt", "src/../../secret.txt", "..", "./..", "src/deep/../../../secret.txt"),
    *("/etc/passwd", "//etc/passwd", "~/secret.txt", "~root", "C:secret.txt", "c:/secret.txt"),
    *("..\\secret.txt", "src\\a.py", "\\\\host\\share"),
    *(
        "%2e%2e/secret.txt",
        "%2E%2E%2Fsecret.txt",
        "..%2fsecret.txt",
        "%252e%252e/secret.txt",
        "%c0%ae%c0%ae/secret.txt",
    ),
    *("a%00", "a%5cb", "%e0%80%ae/x"),
    *("‥/secret.txt", "．．/secret.txt", "․․/secret.txt", "..／secret.txt", "..∕secret.txt", "..⁄secret.txt", "..＼x"),
    *("notes.txt\0", "\0", "a\nb", "a\x1b[0m", "a\u202eb", "a\u200bb", "\ud800", "a\udcff", "a\u2028b"),
    *(
        ".git/config",
        ".GIT/config",
        ".remit/hub.db",
        ".env",
        ".env.local",
        "src/id_rsa",
        "src/id_ecdsa",
        "id_dsa",
        ".git-credentials",
        "src/server.pem",
        "hub.db.key",
    ),
]


@pytest.mark.parametrize("path", ODD)
def test_a_path_that_leads_out_or_could_be_read_as_another_is_refused(root: Path, path: str) -> None:
    """O3: never a path outside the workspace."""
    assert SECRET not in refusal(root, path)


@pytest.mark.parametrize(
    "path", ["100% sure.txt", "ein Überblick.md", "½.txt", "to be continued….txt", "%20.txt", "日本.txt"]
)
def test_plain_names_in_any_language_are_fine(root: Path, path: str) -> None:
    (root / path).write_text("fine")
    assert "fine" in show(root, [path], contents=True)


@share(3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["..", ".", "", "src", "deep", "secret.txt", "outside", "out", "in", "up", "~", "notes.txt"])
        | st.text(max_size=4),
        min_size=1,
        max_size=6,
    ).map("/".join)
)
def test_no_path_at_all_shows_what_lies_outside(root: Path, path: str) -> None:
    """O3: never a path outside the workspace."""
    for name, target in (("out", "../outside"), ("in", "src/deep"), ("up", "..")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    code, shown = None, "Relevant files:"
    try:
        shown = show(root, [path], contents=True)
    except RemitError as error:
        code = error.fault.code
    assert code in {None, Code.PATH_NOT_ALLOWED}
    assert SECRET not in shown
    assert shown.endswith("Relevant files:") or os.path.realpath(root / path).startswith(str(root))


@pytest.mark.parametrize(
    ("name", "target", "path"),
    [
        ("link", "../secret.txt", "link"),
        ("link", "{out}/secret.txt", "link"),
        ("link", "{root}/../secret.txt", "link"),
        ("link", "src/../../secret.txt", "link"),
        ("parent", "../outside", "parent/secret.txt"),
        ("parent", "..", "parent/secret.txt"),
        ("parent", "{out}/outside", "parent/secret.txt"),
        ("link", "link", "link"),
        ("link", ".env", "link"),
        ("link", "/dev/null", "link"),
        ("link", "{root}-not/x", "link"),
    ],
)
def test_a_link_that_leads_out_is_refused_wherever_it_stands(root: Path, name: str, target: str, path: str) -> None:
    """O3: never a path outside the workspace."""
    (root / name).symlink_to(target.format(root=root, out=root.parent))
    assert SECRET not in refusal(root, path)
    assert f"] {name}" not in show(root)


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link").symlink_to("src/deep/../a.py")
    (root / "absolute").symlink_to(root / "src")
    (root / "home").symlink_to(root)
    shown = show(root, ["link", "absolute/a.py", "absolute/deep/../a.py", "home/link"], contents=True)
    assert shown.count("print('a')") == 4
    assert show(root).splitlines()[3:] == [
        "  [DIR] absolute",
        "  [DIR] home",
        "  [DIR] src",
        "  [FILE] link",
        "  [FILE] notes.txt",
    ]


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)
    (root / "link").symlink_to(root.parent / "alias" / "notes.txt")
    shown = show(root.parent / "alias", ["link"], contents=True)
    assert shown.startswith(f"Working directory: {root.parent / 'alias'}\n")
    assert "three" in shown


@pytest.mark.processes
def test_pipes_sockets_and_devices_are_refused_without_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O3: only files and folders."""
    os.mkfifo(root / "pipe")
    assert "pipe" in refusal(root, "pipe")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert "socket" in refusal(root, "socket")
    try:
        os.mknod(root / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        return  # only root may make one
    assert "device" in refusal(root, "device")


def swapped(monkeypatch: pytest.MonkeyPatch, name: str, swap: Callable[[], object]) -> None:
    """Let *swap* happen after *name* has been looked at, and before it is opened."""
    looked = os.stat

    def look(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        info = looked(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if path == name and dir_fd is not None:
            swap()
        return info

    monkeypatch.setattr(os, "stat", look)


def test_a_file_that_becomes_a_link_while_it_is_looked_at_is_not_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O3: never a path outside the workspace."""

    def swap() -> None:
        (root / "notes.txt").unlink()
        (root / "notes.txt").symlink_to("../secret.txt")

    swapped(monkeypatch, "notes.txt", swap)
    assert show(root, ["notes.txt"], contents=True).splitlines()[-1] == "Relevant files:"


def test_a_folder_that_becomes_a_link_while_it_is_looked_at_is_not_entered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O3: never a path outside the workspace."""

    def swap() -> None:
        (root / "src").rename(root / "moved")
        (root / "src").symlink_to("../outside")

    swapped(monkeypatch, "src", swap)
    assert show(root, ["src/secret.txt"], contents=True).splitlines()[-1] == "Relevant files:"


def test_a_file_that_becomes_a_pipe_while_it_is_looked_at_is_refused_without_waiting(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (root / "notes.txt").unlink()
        os.mkfifo(root / "notes.txt")

    swapped(monkeypatch, "notes.txt", swap)
    assert "pipe" in refusal(root, "notes.txt")


def test_whoever_swaps_links_all_the_time_never_gets_out(root: Path) -> None:
    """O3: never a path outside the workspace."""
    stop = Event()

    def swap() -> None:
        (root / "there").symlink_to("../outside")
        (root / "here").symlink_to("src")
        while not stop.is_set():
            for name in ("there", "here"):
                os.rename(root / name, root / "link")
                (root / name).symlink_to("../outside" if name == "there" else "src")

    (root / "src" / "secret.txt").write_text("fine")
    thread = Thread(target=swap)
    thread.start()
    try:
        seen = set[str]()
        for _ in range(300):
            try:
                shown = show(root, ["link/secret.txt"], contents=True)
            except RemitError:
                seen.add("refused")
            else:
                assert SECRET not in shown
                seen.add("fine" if "fine" in shown else "gone")
    finally:
        stop.set()
        thread.join()
    assert seen <= {"refused", "fine", "gone"}


def test_no_descriptor_stays_open(root: Path) -> None:
    show(root, ["notes.txt"])
    before = len(os.listdir("/proc/self/fd"))
    for path in ("src/a.py", "src/deep/../a.py", "../x", "gone/x", "src"):
        try:
            show(root, [path], contents=True)
        except RemitError:
            continue
    show(root)
    assert len(os.listdir("/proc/self/fd")) == before
