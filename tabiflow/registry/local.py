"""The revision of something local: a hash of its files' bytes, remembered by size and time."""

import hashlib
import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tabiflow.errors import UserError

_KNOWN = "revisions.json"
_SETTLED = 2.0
"""Seconds after which a file's time stamp tells its bytes."""


def cache_folder() -> Path:
    """Where rebuildable files lie: `TABIFLOW_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("TABIFLOW_CACHE") or Path.home() / ".cache" / "tabiflow")


def check_cache() -> None:
    """Raises UserError where nothing can be written there."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UserError(
            f"the cache cannot be written: {error.strerror}",
            where=str(folder),
            hint="name another folder in TABIFLOW_CACHE",
        ) from error


def revision(folder: Path, files: list[Path]) -> str:
    """16 hex digits over the files' names and bytes. Raises UserError when one is unreadable."""
    known = _remembered()
    whole = hashlib.sha256()
    fresh = False
    for file in sorted(files):
        try:
            stat = file.stat()
            key = f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}"
            content = known.get(key) or _hash(file)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=str(file)) from error
        # A file written just now may change again within its time stamp's tick.
        if key not in known and time.time() - stat.st_ctime > _SETTLED:
            known[key] = content
            fresh = True
        whole.update(f"{file.relative_to(folder).as_posix()}\0{content}\n".encode())
    if fresh:
        _remember(known)
    return whole.hexdigest()[:16]


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remembered() -> dict[str, str]:
    try:
        known = json.loads((cache_folder() / _KNOWN).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(known: dict[str, str]) -> None:
    """Best effort: a cache that cannot be written costs time, not correctness."""
    target = cache_folder() / _KNOWN
    draft = target.with_name(f"{_KNOWN}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(known))
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink()
