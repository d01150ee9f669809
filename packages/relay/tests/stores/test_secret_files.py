"""Files that hold secrets by their names are shown to no agent, over whichever way it asks."""

import os
import re
from pathlib import Path

import pytest

from remit import RemitError
from remit.stores.workspace import Folder, is_closed, is_secret
from remit_relay.bridge.acp_link import FolderReader, UnreadableError

SECRET = [
    "server.key", "tls.pem", "Cert.PEM", "store.p12", "store.pfx", "AuthKey_1.p8", "putty.ppk", "hub.db.key",
    "release.keystore", "vault.kdbx", "krb5.keytab", "backup.gpg", "office.ovpn", "terraform.tfstate",
    "terraform.tfvars", "id_rsa", "id_ed25519.pub", "id_ecdsa", ".htpasswd", "htpasswd", "site.htpasswd", ".env",
    ".env.local", ".envrc", ".netrc", "_netrc", ".pgpass", ".npmrc", ".git-credentials", ".my.cnf", ".bash_history",
    ".zsh_history", ".python_history", ".psql_history", ".node_repl_history", "fish_history",
    "ConsoleHost_history.txt", "credentials", "credentials.json", "credentials.yml", "aws-credentials.csv",
    "db_credentials.ini", "application.secrets.toml", "secrets.yaml", "secret.txt", "passwords.txt", "token",
    "tokens.json", "client_secret_12.json", "service-account-prod.json", "shadow", "passwd", "wp-config.php",
    "kubeconfig", "auth.json", "cookies.sqlite", "key4.db",
]  # fmt: skip
PLAIN = [
    "credentials.py", "test_credentials.py", "secrets.rs", "token.go", "tokenizer.json", "tokens.md", "secretary.txt",
    "history.py", "history.md", "HISTORY.rst", "keyboard.md", "key.py", "monkey", "turkey.txt", "keys.ts",
    "environment.yml", "env.py", "password_reset.html", "README.md", "package.json", "Makefile", "pyproject.toml",
    "data.csv", "invoice.pdf", "certificate.md", "history.csv", "order_history.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_what_looks_like_a_secret_is_shown_neither_in_a_workspace_nor_over_acp(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / name).write_text("canary", encoding="utf-8")
    named = f"{name} cannot be read: such files contain keys or passwords"
    reason = "hidden files cannot be read" if name.startswith(".") else named
    for path in (name, f"sub/{name}"):
        with pytest.raises(RemitError, match="not shown to agents"):
            shown(tmp_path, [path])
        with pytest.raises(UnreadableError, match=f"^{re.escape(reason)}$"):
            FolderReader(str(tmp_path)).read(str(tmp_path / path))
    assert name not in shown(tmp_path, None).split()


@pytest.mark.parametrize("name", PLAIN)
def test_ordinary_files_are_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("content", encoding="utf-8")
    assert "content" in shown(tmp_path, [name])
    assert FolderReader(str(tmp_path)).read(str(tmp_path / name)) == "content"


def test_source_text_in_a_folder_with_such_a_name_is_shown(tmp_path: Path) -> None:
    for folder in ("credentials", "secrets", "tokens"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "keys.py").write_text("content", encoding="utf-8")
        assert "content" in shown(tmp_path, [f"{folder}/keys.py"])
        assert FolderReader(str(tmp_path)).read(str(tmp_path / folder / "keys.py")) == "content"
        assert f"[DIR] {folder}" in shown(tmp_path, None)
    assert (is_closed("credentials"), is_secret("credentials")) == (False, True)


def test_a_link_to_a_secret_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "server.key").write_text("canary", encoding="utf-8")
    (tmp_path / "notes.md").symlink_to("server.key")
    with pytest.raises(RemitError, match="not shown to agents"):
        shown(tmp_path, ["notes.md"])
    with pytest.raises(UnreadableError):
        FolderReader(str(tmp_path)).read(str(tmp_path / "notes.md"))


def test_a_hard_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    """A name in the folder for a file outside of it: no path shows that, only the number of names does."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "outside").write_text("canary", encoding="utf-8")
    os.link(tmp_path / "outside", folder / "notes.md")
    with pytest.raises(RemitError, match="hard link"):
        shown(folder, ["notes.md"])
    with pytest.raises(UnreadableError, match="hard link"):
        FolderReader(str(folder)).read(str(folder / "notes.md"))
    (tmp_path / "outside").unlink()
    assert "canary" in shown(folder, ["notes.md"]), "its only name now"
    assert FolderReader(str(folder)).read(str(folder / "notes.md")) == "canary"


def test_a_project_that_is_described_by_a_hard_link_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "outside.json").write_text('{"name": "canary"}', encoding="utf-8")
    os.link(tmp_path / "outside.json", folder / "package.json")
    assert "canary" not in shown(folder, None)


def shown(folder: Path, files: list[str] | None) -> str:
    return Folder(folder).describe(files, contents=True, room=10_000, count=len)
