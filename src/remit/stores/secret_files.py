"""Which files are never shown to an agent, because by their names they hold keys, passwords or what somebody typed.

One list for every way in which files reach an agent: the workspace of a hub, and the files that a local agent's client
reads for it. A name is a hint, not a proof: what a file with an ordinary name holds goes through redaction.
"""

import re

# Folders and files of the hub, of git and of a person's own tools, whose content opens other doors.
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
    """Say whether nothing of that name is shown, be it a file or a folder."""
    name = name.casefold()
    return name in _CLOSED or name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)


def is_secret(name: str) -> bool:
    """Say whether a file of that name is not shown."""
    plain = name.casefold()
    return bool(is_closed(name) or plain in _WHOLE or _HISTORY.fullmatch(plain) or _NAMED.fullmatch(plain))
