"""The coding tools by name."""

from remit.guard.tools.claude_code import ClaudeCode
from remit.guard.tools.codex import Codex
from remit.guard.tools.coding_tool import CodingTool
from remit.guard.tools.gemini_cli import GeminiCli
from remit.guard.tools.opencode import OpenCode

TOOLS: dict[str, CodingTool] = {tool.name: tool for tool in (ClaudeCode(), Codex(), OpenCode(), GeminiCli())}
