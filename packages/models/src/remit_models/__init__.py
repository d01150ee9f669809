"""Agents from models and from other frameworks, and MCP servers as tools."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {
    "remit_models.model": ("ModelAgent", "summarizer"),
}

if TYPE_CHECKING:
    from remit_models.model import ModelAgent as ModelAgent
    from remit_models.model import summarizer as summarizer
else:
    __getattr__ = lazy_names(__name__, _HOMES)
