"""Who runs which code where: what a record must hold to be traced back."""

import getpass
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tabiflow.trial import Opening

RECORDED = ("tabiflow", "ray", "torch", "transformers", "datasets", "sentence-transformers")


def facts() -> Mapping[str, str]:
    """Tags of every run of a session."""
    found = {name: _version(name) for name in RECORDED}
    versions = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    return {
        "code_commit": code_commit(),
        "versions": f"python {platform.python_version()}, {versions}",
    }


def opening(trial_id: str, reason: str = "") -> Opening:
    """A look at the test split; its time is set when it is recorded."""
    return Opening(
        trial=trial_id,
        who=f"{_user()}@{platform.node()}",
        at=now(),
        code=code_commit(),
        reason=reason,
    )


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def code_commit() -> str:
    """Of the checkout that the package runs from, `+` if it was changed since; `-` if unknown."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return "-"
    return commit + ("+" if _git("status", "--porcelain", "--", ".") else "")


def _git(*arguments: str) -> str:
    """Empty where there is no git, or no checkout of tabiflow's own."""
    folder = Path(__file__).parent
    if not (folder.parent / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
