"""Recognizes a shell command that starts a session of a coding tool.

It reads a command as a person would write it: lists, pipes, substitutions, `env`, `sh -c`, `npx`. It does not run it,
so a script, an alias or a variable hides what it starts.
"""

import re
import shlex
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import PurePosixPath

# What each program does without starting a session, by its first argument.
_HARMLESS = frozenset({"--version", "-v", "-V", "--help", "-h", "help", "completion", "mcp", "update", "upgrade"})
_PROGRAMS = {
    "claude": _HARMLESS | {"auth", "config", "doctor", "install", "plugin", "setup-token"},
    "opencode": _HARMLESS | {"agent", "auth", "export", "import", "models", "session", "stats", "uninstall"},
    "codex": _HARMLESS | {"apply", "features", "login", "logout"},
    "gemini": _HARMLESS | {"extensions", "hooks", "skills"},
}
# The same programs under the names of their packages, for those who run packages.
_PACKAGES = {
    "@anthropic-ai/claude-code": "claude",
    "opencode-ai": "opencode",
    "@openai/codex": "codex",
    "@google/gemini-cli": "gemini",
}
# Programs that run the one behind them: their short options that take a value, and how many arguments come before it.
_WRAPPERS = {
    "caffeinate": ("tw", 0),
    "command": ("", 0),
    "doas": ("uC", 0),
    "env": ("uC", 0),
    "exec": ("a", 0),
    "nice": ("n", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "stdbuf": ("ioe", 0),
    "sudo": ("ugpChDRTrt", 0),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
    "xargs": ("InPLdaEs", 0),
}
_SHELLS = frozenset({"sh", "bash", "dash", "fish", "ksh", "su", "zsh"})
_RUNNERS = {("npx",), ("bunx",), ("pnpx",), ("npm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x")}
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "coproc"})
_SEPARATORS = ";|&()<>\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*['\"]?(\w+)")
# The characters that are read of a command, those within it read once more. Nobody writes longer ones by hand, and to
# read more would hold up the tools of others.
_MOST_READ = 50_000
_LONGEST_SUBSTITUTION = 1_000


def started_tool(command: str) -> str | None:
    """Return a coding tool that a command starts a session of; None: it starts none that is seen."""
    texts, left = deque([command]), _MOST_READ
    while texts and left > 0:
        text = _without_documents(texts.popleft()[:left].replace("\\\n", " "))
        left -= len(text) + 1
        for words in _simple_commands(text):
            if (tool := _started(words, texts)) is not None:
                return tool
        texts.extend(islice(_substitutions(text), max(0, left) // _LONGEST_SUBSTITUTION))
    return None


def _without_documents(text: str) -> str:
    """Return a text without the here-documents in it: they are data."""
    lines = text.split("\n")
    ends = {line.lstrip("\t"): index for index, line in enumerate(lines)}  # the last of each
    kept, end = list[str](), ""
    for index, line in enumerate(lines):
        if end:
            end = "" if line.lstrip("\t") == end else end
            continue
        kept.append(line)
        document = _HERE_DOCUMENT.search(line)
        if document is not None and ends.get(document[1], -1) > index:
            end = document[1]
    return "\n".join(kept)


def _started(words: list[str], inner: deque[str]) -> str | None:
    """Return the tool that one simple command starts; a command within it is left in *inner*."""
    while words:
        name, rest = PurePosixPath(words[0]).name, words[1:]
        if words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0]):
            words = rest
        elif name in _WRAPPERS:
            valued, arguments = _WRAPPERS[name]
            words = _without_options(rest, valued)[arguments:]
        elif name in _PROGRAMS:
            return name if not rest or rest[0] not in _PROGRAMS[name] else None
        elif name in _SHELLS:
            inner.extend(after for option, after in pairwise(rest) if re.fullmatch(r"-\w*c\w*", option))
            return None
        elif name == "eval":
            inner.append(" ".join(rest))
            return None
        else:
            fitting = [runner for runner in _RUNNERS if tuple([name, *rest][: len(runner)]) == runner]
            return _packaged(_without_options(rest[len(fitting[0]) - 1 :], "pc")) if fitting else None
    return None


def _packaged(words: list[str]) -> str | None:
    """Return the tool that a runner of packages starts."""
    if not words:
        return None
    at = words[0].find("@", 1)
    program = _PACKAGES.get(words[0] if at < 0 else words[0][:at])
    return None if program is None or (words[1:] and words[1] in _PROGRAMS[program]) else program


def _without_options(words: list[str], valued: str) -> list[str]:
    """Return words from the first that is neither an option, the value of one, nor an assignment."""
    while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
        is_valued = len(words[0]) == 2 and words[0][1] in valued
        words = words[2:] if is_valued else words[1:]
    return words


def _simple_commands(text: str) -> Iterator[list[str]]:
    """Split a text into the words of its simple commands, without comments and files of redirections."""
    words, is_comment, is_file = list[str](), False, False
    for word in [*_words(text), "\n"]:
        if word and set(word) <= set(_SEPARATORS):
            if is_comment and "\n" not in word:
                continue
            if set(word) <= set("<>&") and word.strip("&"):
                is_file = True
                continue
            if words:
                yield words
            words, is_comment, is_file = [], False, False
        elif is_file:
            is_file = False
        elif word.startswith("#"):
            is_comment = True
        elif not is_comment:
            words.append(word)


def _words(text: str) -> list[str]:
    parser = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS)
    parser.whitespace = " \t\r"
    parser.whitespace_split = True
    parser.commenters = ""
    try:
        return list(parser)
    except ValueError:  # quotes that are not closed, or an apostrophe in a comment
        return re.findall(rf"[{_SEPARATORS}]+|[^\s{_SEPARATORS}]+|\n", text)


def _substitutions(text: str) -> Iterator[str]:
    """Return what follows each start of a substitution that no single quotes switch off."""
    quoted = double = False
    for index, letter in enumerate(text):
        if letter == "'" and not double:
            quoted = not quoted
        elif letter == '"' and not quoted:
            double = not double
        elif not quoted and (letter == "`" or text.startswith("$(", index)):
            yield text[index + 1 : index + _LONGEST_SUBSTITUTION].lstrip("(`")
