"""Where running trials are written down, so that a later attempt goes on: a folder or a bucket.

Knows the names, the order and the wholeness of checkpoints, not what is in one. Each is an object
with a marker beside it that is written last: what has no marker, or another size or checksum than
its marker says, was torn. Names begin with the attempt's number, so that a lost attempt that is
still at work somewhere never touches what a later one has written.
"""

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pyarrow import ArrowException, fs

from tabiflow.errors import EnvironmentFault, Superseded, UserError

log = logging.getLogger(__name__)

OBJECT, MARKER = ".ckpt", ".json"
NAME = re.compile(r"(\d+)-(\d+)" + re.escape(OBJECT))


class Version(NamedTuple):
    """In the order in which they replace each other."""

    attempt: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.attempt}-{self.epoch}{OBJECT}"


Save = Callable[[Any], object]
"""Writes a checkpoint's content to the file that it is given."""


@dataclass(frozen=True)
class Storage:
    """The checkpoints of one sweep's record, a folder a trial."""

    address: str
    """An absolute path or a URL of what pyarrow, or else fsspec, can open."""
    record: str
    """Tells this sweep's record from all others that use the same address."""

    def check(self) -> None:
        """Raises UserError when nothing could be written there. Leaves nothing behind."""
        probe = f"{self._opened[1]}/probe-{os.getpid()}"
        try:
            self._files.create_dir(self._opened[1], recursive=True)
            self._put(probe, lambda sink: sink.write(b"."))
            self._files.delete_file(probe)
        except (OSError, ArrowException) as error:
            raise UserError(
                f"storage cannot be written: {_reason(error)}",
                where=shown(self.address),
                hint="correct `storage:`, or set `checkpoint: never`",
            ) from error

    def versions(self, trial: str) -> list[Version]:
        """What lies there, whole or not, the newest first."""
        found = map(_version, self._names(f"{self._root}/{trial}"))
        return sorted({each for each in found if each is not None}, reverse=True)

    def read(self, trial: str, version: Version) -> bytes:
        """Raises ValueError when it is not what was once written for this trial."""
        path = f"{self._root}/{trial}/{version.name}"
        with self._faults():
            try:
                marker = json.loads(self._get(path + MARKER))
                content = self._get(path)
            except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
                raise ValueError(_reason(error)) from error
        if marker != _marker(trial, version, len(content), zlib.crc32(content)):
            raise ValueError("it was torn, or belongs to another trial")
        return content

    def write(self, trial: str, version: Version, save: Save) -> None:
        """Replaces what this and earlier attempts wrote.

        Raises Superseded when a later attempt has written, EnvironmentFault when the storage does
        not take it: what was there before then stays.
        """
        known = self.versions(trial)
        if any(each.attempt > version.attempt for each in known):
            raise Superseded(f"attempt {version.attempt} was followed by {known[0].attempt}")
        path = f"{self._root}/{trial}/{version.name}"
        with self._faults():
            self._files.create_dir(f"{self._root}/{trial}", recursive=True)
            size, checksum = self._put(path, save)
            marker = json.dumps(_marker(trial, version, size, checksum)).encode()
            self._put(path + MARKER, lambda sink: sink.write(marker))
        self._drop(trial, version)

    def delete(self, trial: str, attempt: int) -> None:
        """The trial has ended in this attempt. What cannot be deleted is left to `tidy`."""
        try:
            self._drop(trial, Version(attempt + 1, 0))
            if not self._names(f"{self._root}/{trial}"):
                self._files.delete_dir(f"{self._root}/{trial}")
        except (OSError, ArrowException, EnvironmentFault) as error:
            log.debug("a checkpoint of %s is left: %s", trial, error)

    def tidy(self, ended: Set[str]) -> None:
        """Deletes what trials have left that ended elsewhere or while nobody looked."""
        with suppress(OSError, ArrowException, EnvironmentFault):
            for trial in ended & set(self._names(self._root)):
                self._files.delete_dir(f"{self._root}/{trial}")

    @property
    def _files(self) -> fs.FileSystem:
        return self._opened[0]

    @property
    def _root(self) -> str:
        return f"{self._opened[1].rstrip('/')}/{self.record}"

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        try:
            files, root = fs.FileSystem.from_uri(self.address)
            return files, str(root)
        except ArrowException:
            # pyarrow knows few kinds of buckets; fsspec those whose packages are installed.
            return _opened_by_fsspec(self.address)

    def _names(self, folder: str) -> list[str]:
        with self._faults():
            found = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [each.base_name for each in found]

    def _get(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _put(self, path: str, save: Save) -> tuple[int, int]:
        """Size and checksum. A folder never holds half a file under the name that counts."""
        if not isinstance(self._files, fs.LocalFileSystem):
            with self._files.open_output_stream(path) as stream:
                return _saved(stream, save)
        draft = Path(f"{path}.draft")
        try:
            with draft.open("wb") as file:
                written = _saved(file, save)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return written

    def _drop(self, trial: str, before: Version) -> None:
        """Also what has no marker: it was torn. The marker goes first."""
        folder = f"{self._root}/{trial}"
        with self._faults():
            for name in sorted(self._names(folder), key=lambda each: not each.endswith(MARKER)):
                version = _version(name)
                if version is not None and version < before:
                    with suppress(FileNotFoundError):
                        self._files.delete_file(f"{folder}/{name}")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What a disk or a bucket says is the environment's fault."""
        try:
            yield
        except (OSError, ArrowException) as error:
            raise EnvironmentFault(
                f"storage of checkpoints: {_reason(error)}", where=shown(self.address)
            ) from error


class _Measured:
    """Counts what passes, and keeps the error that a library may hide."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size, self.checksum = 0, 0
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.size, self.checksum = self.size + len(data), zlib.crc32(data, self.checksum)
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def _saved(file: BinaryIO, save: Save) -> tuple[int, int]:
    sink = _Measured(file)
    try:
        save(sink)
    except Exception:
        # torch reports a full disk as a RuntimeError about its own archive.
        if sink.error is not None:
            raise sink.error from None
        raise
    return sink.size, sink.checksum


def _version(name: str) -> Version | None:
    """Of an object, its marker or its draft."""
    known = NAME.match(name)
    return Version(int(known[1]), int(known[2])) if known else None


def _marker(trial: str, version: Version, size: int, checksum: int) -> Mapping[str, Any]:
    return {"trial": trial, **version._asdict(), "size": size, "crc32": checksum}


def _opened_by_fsspec(address: str) -> tuple[fs.FileSystem, str]:
    """Raises UserError where no installed package knows the address."""
    import fsspec  # Few sweeps need it.

    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError, OSError) as error:
        raise UserError(
            f"no installed package can open this storage: {_reason(error)}",
            where=shown(address),
            hint="correct `storage:`, or install the package",
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def shown(address: str) -> str:
    """For people: without user, password and query."""
    return re.sub(r"(?<=://)[^/\s]*@", "", address).partition("?")[0]


def _reason(error: BaseException) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror or (str(error).splitlines() or [type(error).__name__])[0]
