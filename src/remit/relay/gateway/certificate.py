"""The certificate of a gateway, which is renewed while it runs."""

import logging
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError, TLSVersion

from remit.protocol.errors import Code, RemitError, fault

_log = logging.getLogger("remit.relay")


class Certificate:
    """A certificate with its key, and what speaks TLS with them; raises a `RemitError` if they cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._written = self._times()
        self.context = self._load()

    def look(self) -> bool:
        """If the files were written anew, use them for whoever connects from now on; say whether they were.

        What cannot be used (half of it is written, or the two do not belong together yet) is left for the next time.
        """
        written = self._times()
        if written == self._written:
            return False
        try:
            self._load()
            self.context.load_cert_chain(self._certificate, self._key, password="")
        except (RemitError, SSLError, OSError, ValueError) as error:
            _log.warning("the certificate that is used is still the former one: %s", error)
            return False
        self._written = written
        _log.info("%s is used from now on", self._certificate)
        return True

    def _load(self) -> SSLContext:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # else OpenSSL would ask at the terminal
        except (SSLError, OSError, ValueError) as error:
            why = f"{self._certificate} with {self._key} cannot be used: {getattr(error, 'reason', None) or error}"
            suggestion = (
                "Give the PEM file of the certificate, with those above it, and that of its key, without a password."
            )
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
        return context

    def _times(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in (self._certificate, self._key))
        except OSError:
            return ()
