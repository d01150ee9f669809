"""The address of a collector: as a program or a team gives it, else as OpenTelemetry's variables do."""

import re
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from remit.runtime.registry import team_invalid

INSTALL = "pip install 'remit[otel]'"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Collector(Struct, frozen=True, kw_only=True):
    """Where a collector is, and what it wants to be sent with every request."""

    traces: str
    metrics: str
    headers: dict[str, str] = {}
    certificate: str | None = None
    """A file with the certificates of those who may vouch for it; None: those that this machine trusts."""


def collector_at(endpoint: str | None, headers: Mapping[str, str], environ: Mapping[str, str]) -> Collector:
    """Return the collector at an address, else the one that OpenTelemetry's variables name.

    Raises a `RemitError` that says what is missing or wrong. Headers of the environment go only to an address of it.
    """
    named = environ.get(ENDPOINT, "").strip()
    base = endpoint or named
    traces = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    metrics = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    if not base and not (traces and metrics):
        raise team_invalid(f"nobody says where the collector is: give `endpoint`, or set {ENDPOINT}")
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    if not endpoint and protocol not in ("", "http/protobuf"):
        raise team_invalid(
            f"OTEL_EXPORTER_OTLP_PROTOCOL says {protocol[:40]!r}; spans are sent by http/protobuf: give the "
            "collector's address for that as `endpoint`, its port is 4318 as a rule"
        )
    base = base.rstrip("/")
    found = Collector(
        traces=_address(traces or f"{base}/v1/traces"),
        metrics=_address(metrics or f"{base}/v1/metrics"),
        headers=_headers({**({} if endpoint else _said(environ)), **headers}),
        certificate=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
    )
    if found.certificate is not None:
        ssl_context(found.certificate)
    return found


def _said(environ: Mapping[str, str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if each.strip())
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address:
        raise team_invalid(f"`{url[:200]}` is not the address of a collector: write http://host:4318")
    if parts.username or parts.password:
        raise team_invalid("a collector's address holds no password: give it as a header")
    return url


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise team_invalid(f"{name[:100]!r} is not the name of a header that a collector can be sent")
        if not _TEXT.fullmatch(value):
            raise team_invalid(f"the value of the header `{name}` for the collector holds what no header can")
    return {name.lower(): value for name, value in headers.items()}


def ssl_context(certificate: str) -> ssl.SSLContext:
    """Return what trusts the certificates in a file alone, or raise a `RemitError`."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise team_invalid(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE names {certificate}, which cannot be used: {why}"
        ) from error
