"""A hub on the loopback: serves folders of files as repositories, over what the clients really ask.

Speaks the part of the Hugging Face hub's protocol that `huggingface_hub` and `datasets` use to
read a model or a data set. Each published folder is a commit.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["datasets", "models"]
_API = re.compile(
    r"/api/(datasets|models)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.+))?)?"
)
_FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Hub(ThreadingHTTPServer):
    """Start with `loopback`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.branches: dict[tuple[str, str, str], str] = {}
        self.commits: dict[str, dict[str, bytes]] = {}
        self.answers: list[HTTPStatus] = []
        """Given to the next requests for repositories, whatever they ask."""
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, kind: Kind, repository: str, files: dict[str, bytes]) -> str:
        """Makes the files the newest commit of `main`, and returns that commit."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit] = files
        self.branches[kind, repository, "main"] = commit
        return commit

    def files(self, kind: str, repository: str, revision: str) -> tuple[str, dict[str, bytes]]:
        """Raises KeyError with the hub's own error code."""
        if not any((kind, repository) == known[:2] for known in self.branches):
            raise KeyError("RepoNotFound")
        commit = self.branches.get((kind, repository, revision), revision)
        if commit not in self.commits:
            raise KeyError("RevisionNotFound")
        return commit, self.commits[commit]


@contextmanager
def loopback() -> Iterator[Hub]:
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, args=(0.02,))
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


class _Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        length = int(self.headers.get("Content-Length") or 0)
        self.asked = parse_qs(self.rfile.read(length).decode()).get("paths", [])
        self.server.requests.append(f"{self.command} {path}")
        api, file = _API.fullmatch(path), _FILE.fullmatch(path)
        try:
            if (api or file) and self.server.answers:
                self._send(self.server.answers.pop(0), b"")
            elif api:
                self._api(*api.groups())
            elif file:
                self._file(*file.groups())
            else:
                self._send(HTTPStatus.NOT_FOUND, b"")
        except KeyError as error:
            self._send(HTTPStatus.NOT_FOUND, b"", {"X-Error-Code": str(error.args[0])})

    do_HEAD = do_POST = do_GET

    def _api(
        self, kind: str, repository: str, view: str | None, revision: str | None, under: str | None
    ) -> None:
        commit, files = self.server.files(kind, repository, revision or "main")
        if view == "tree":
            self._json(_tree(files, under))
        elif view == "paths-info":
            self._json([_entry(path, files[path]) for path in self.asked if path in files])
        else:
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": repository, "sha": commit, "siblings": siblings, "tags": []})

    def _file(self, dataset: str | None, repository: str, revision: str, path: str) -> None:
        kind = "datasets" if dataset else "models"
        commit, files = self.server.files(kind, repository, revision)
        if path not in files:
            raise KeyError("EntryNotFound")
        headers = {"ETag": f'"{_oid(files[path])}"', "X-Repo-Commit": commit}
        self._send(HTTPStatus.OK, files[path], headers)

    def _json(self, content: Any) -> None:
        headers = {"Content-Type": "application/json"}
        self._send(HTTPStatus.OK, json.dumps(content).encode(), headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests`."""


def _tree(files: dict[str, bytes], under: str | None) -> list[dict[str, Any]]:
    """Published repositories are flat, so that no folder is there to be looked into."""
    if under is not None:
        raise KeyError("EntryNotFound")
    return [_entry(path, content) for path, content in files.items()]


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
