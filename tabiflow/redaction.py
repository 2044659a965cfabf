"""What must not be read by others: passwords and tokens, taken out of a text before it is kept.

Knows secrets by where they stand (the environment, token files, addresses) and by what they look
like. Whoever writes text that came from elsewhere asks here.
"""

import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SECRET = re.compile(
    r"(TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIALS?|_KEY|_KEY_ID|_DSN)$", re.IGNORECASE
)
"""Names of environment variables whose values are never shown."""
SHORTEST = 8
"""Characters; a shorter value would be found everywhere."""
TOKEN_FILES = (
    ("HF_TOKEN_PATH", "~/.cache/huggingface/token"),
    ("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"),
)
"""Files that hold a token: the variable that names another, and the usual place."""
LOOKS = (
    (re.compile(r"(?<=://)[^/\s]*@"), ""),
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), "***"),
    (re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"), "***"),
    (re.compile(r"(?i)\b((?:password|passwd|token|secret|api_?key)=)[^&\s'\",;]+"), r"\1***"),
)
"""What a secret looks like, and what stands for it."""


def redacted(text: str) -> str:
    """Without what must not reach logs, tags and messages: credentials of this process."""
    for value in sorted(_values(), key=len, reverse=True):
        text = text.replace(value, "***")
    for look, instead in LOOKS:
        text = look.sub(instead, text)
    return text


def _values() -> Iterator[str]:
    for name, value in os.environ.items():
        if SECRET.search(name):
            yield from _long(value)
    for name, usual in TOKEN_FILES:
        yield from _long(_content(os.environ.get(name) or usual))


@cache
def _content(file: str) -> str:
    """Empty where there is no such file, or none that this process could tell."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError, RuntimeError):
        return ""


def _long(value: str) -> Iterator[str]:
    if len(value) >= SHORTEST:
        yield value


class Redacting(logging.Filter):
    """For a handler: what others log passes through it, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), None
        if record.exc_info:
            record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        return True
