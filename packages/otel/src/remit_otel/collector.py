"""The address of a collector: as a program or a team gives it, else as OpenTelemetry's variables do."""

import re
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from remit.runtime.registry import team_invalid

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Collector(Struct, frozen=True, kw_only=True):
    """The addresses of a collector, and the headers to send with every request."""

    traces: str
    metrics: str
    headers: dict[str, str] = {}
    certificate: str | None = None
    """File with trusted CA certificates (default: those of the system)."""


def collector_at(endpoint: str | None, headers: Mapping[str, str], environ: Mapping[str, str]) -> Collector:
    """Return the collector at *endpoint*, else the one that OpenTelemetry's variables name.

    Raises a `RemitError` if something is missing or invalid. The headers in the environment are used only for an
    endpoint in the environment.
    """
    named = environ.get(ENDPOINT, "").strip()
    base = endpoint or named
    traces = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    metrics = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    if not base and not (traces and metrics):
        raise team_invalid(f"no collector endpoint: give `endpoint`, or set {ENDPOINT}")
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    if not endpoint and protocol not in ("", "http/protobuf"):
        raise team_invalid(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol[:40]!r}, but only http/protobuf is supported: give the address "
            "of the collector for it as `endpoint`, usually on port 4318"
        )
    base = base.rstrip("/")
    collector = Collector(
        traces=_address(traces or f"{base}/v1/traces"),
        metrics=_address(metrics or f"{base}/v1/metrics"),
        headers=_headers({**({} if endpoint else _environment_headers(environ)), **headers}),
        certificate=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
    )
    if collector.certificate is not None:
        ssl_context(collector.certificate)
    return collector


def _environment_headers(environ: Mapping[str, str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if each.strip())
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address:
        raise team_invalid(f"invalid collector endpoint `{url[:200]}`: expected http://host:4318")
    if parts.username or parts.password:
        raise team_invalid("the endpoint of a collector must not contain a password: give it as a header")
    return url


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise team_invalid(f"invalid header name for the collector: {name[:100]!r}")
        if not _TEXT.fullmatch(value):
            raise team_invalid(f"invalid characters in the value of the header `{name}` for the collector")
    return {name.lower(): value for name, value in headers.items()}


def ssl_context(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates in a file only, or raise a `RemitError`."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        why = error.strerror or "no certificate in it"
        raise team_invalid(
            f"cannot read the certificates in {certificate} (OTEL_EXPORTER_OTLP_CERTIFICATE): {why}"
        ) from error
