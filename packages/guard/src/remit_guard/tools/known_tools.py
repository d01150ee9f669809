"""The coding tools by name."""

from remit_guard.tools.claude_code import ClaudeCode
from remit_guard.tools.codex import Codex
from remit_guard.tools.coding_tool import CodingTool
from remit_guard.tools.gemini_cli import GeminiCli
from remit_guard.tools.opencode import OpenCode

TOOLS: dict[str, CodingTool] = {tool.name: tool for tool in (ClaudeCode(), Codex(), OpenCode(), GeminiCli())}
