"""The TLS certificate of a gateway, reloaded when its files change."""

import logging
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError, TLSVersion

from remit.protocol.errors import Code, RemitError, fault

_log = logging.getLogger("remit.relay")


class Certificate:
    """A certificate, its key and their TLS context; raises a `RemitError` if they cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._written = self._times()
        self.context = self._load()

    def look(self) -> bool:
        """Reload the files if they changed, for new connections; return whether they were reloaded.

        Files that cannot be used now (half written, or not matching yet) are tried again the next time.
        """
        written = self._times()
        if written == self._written:
            return False
        try:
            self._load()
            self.context.load_cert_chain(self._certificate, self._key, password="")
        except (RemitError, SSLError, OSError, ValueError) as error:
            _log.warning("the new certificate cannot be used, so the previous one stays in use: %s", error)
            return False
        self._written = written
        _log.info("using the new certificate %s", self._certificate)
        return True

    def _load(self) -> SSLContext:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(
                self._certificate, self._key, password=""
            )  # without it OpenSSL would prompt at the terminal
        except (SSLError, OSError, ValueError) as error:
            why = f"{self._certificate} with {self._key} cannot be used: {getattr(error, 'reason', None) or error}"
            suggestion = (
                "Pass the PEM file of the certificate with its chain, and the PEM file of its key, without a password."
            )
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
        return context

    def _times(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in (self._certificate, self._key))
        except OSError:
            return ()
