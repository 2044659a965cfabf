"""Calls to the Hugging Face hub: which commit a revision is, patience, and what an error means.

Knows no format: `data` and `encoding` say what is fetched. Messages hold neither tokens nor
addresses.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypeVar

from tabiflow.errors import CellError, DataError, EnvironmentFault, ModelError, TabiflowError

Fetched = TypeVar("Fetched")
PAUSES = (1.0, 2.0, 4.0)
"""Seconds before the second, third, ... try."""
_COMMIT_DIGITS = 40
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
# What a model's folder may hold: subfolders are other formats of the same weights.
_MODEL_FILES = ("*.json", "*.txt", "*.model")
_WEIGHTS = "*.safetensors"


@dataclass(frozen=True)
class Repository:
    """Something on the hub, as a row names it."""

    kind: Literal["dataset", "model"]
    id: str
    revision: str = "main"

    @property
    def title(self) -> str:
        return f"{'data set' if self.kind == 'dataset' else 'model'} `{self.id}` of the hub"

    def error(self, message: str, hint: str | None = None) -> CellError:
        row = DataError if self.kind == "dataset" else ModelError
        return row(f"{self.title} {message}", hint=hint)


def commit(repository: Repository, pauses: Sequence[float] = PAUSES) -> str:
    """The commit that the revision is now. A whole commit is its own and asks nobody."""
    if len(repository.revision) == _COMMIT_DIGITS:
        return repository.revision
    from huggingface_hub import HfApi

    def ask() -> str:
        api = HfApi()
        ask_for = api.dataset_info if repository.kind == "dataset" else api.model_info
        return str(ask_for(repository.id, revision=repository.revision).sha)

    return patiently(ask, repository, pauses)


def model_folder(
    repository: Repository,
    commit: str,
    *,
    code: bool,
    weights: bool = True,
    pauses: Sequence[float] = PAUSES,
) -> Path:
    """A local copy of the model at a commit: `code` says whether Python too, `weights` whether
    more than what its tokenizer needs. Weights are safetensors only."""
    wanted = [*_MODEL_FILES, *([_WEIGHTS] if weights else []), *(["*.py"] if code else [])]
    from huggingface_hub import snapshot_download

    def fetch() -> Path:
        return Path(
            snapshot_download(
                repository.id,
                revision=commit,
                allow_patterns=wanted,
                ignore_patterns=["*/*"],
            )
        )

    folder = patiently(fetch, repository, pauses)
    if weights and not any(folder.glob(_WEIGHTS)):
        raise repository.error(
            "has no safetensors weights; pickled ones can run code and are not loaded",
            "convert them and give the folder as `path`",
        )
    return folder


def dataset_tables(
    repository: Repository,
    config: str | None,
    commit: str,
    pauses: Sequence[float] = PAUSES,
) -> dict[str, Any]:
    """The splits at a commit by their names on the hub, as `datasets.Dataset`, on disk."""
    import datasets

    def fetch() -> dict[str, Any]:
        builder = datasets.load_dataset_builder(repository.id, config, revision=commit)
        # Without a connection, whichever commit was cached last is given instead, silently.
        if builder.hash != commit:
            raise ConnectionError(f"the cache offers commit {builder.hash}")
        builder.download_and_prepare()
        return dict(builder.as_dataset())

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        return patiently(fetch, repository, pauses)
    finally:
        if shown:
            datasets.enable_progress_bars()


def patiently(
    fetch: Callable[[], Fetched], repository: Repository, pauses: Sequence[float] = PAUSES
) -> Fetched:
    """Tries again what may pass; raises DataError or ModelError for what will not, and
    EnvironmentFault when the hub stays out of reach."""
    for pause in (*pauses, None):
        try:
            return fetch()
        except Exception as error:  # the libraries behind share no root
            meaning = _meaning(error, repository)
            if pause is None or not isinstance(meaning, EnvironmentFault):
                raise meaning from error
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _meaning(error: BaseException, repository: Repository) -> TabiflowError:
    """The hub's own errors are often the cause of a more general one."""
    for each in _chain(error):
        if (meaning := _known(each, repository)) is not None:
            return meaning
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return repository.error(f"cannot be loaded: {first_line}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _known(error: BaseException, repository: Repository) -> TabiflowError | None:
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return repository.error(
                "is gated",
                "accept its terms on the hub and set HF_TOKEN to a token that may read it",
            )
        case errors.RevisionNotFoundError():
            return repository.error(f"has no revision `{repository.revision}`")
        case errors.HfHubHTTPError():
            return _answered(error.response.status_code, repository)
        case errors.HFValidationError():
            return repository.error("has an id that is none", "write `owner/name`")
        case ConnectionError() | TimeoutError():
            return _out_of_reach(repository)
        case OSError(errno=code) if code in _DISK:
            return EnvironmentFault(f"{repository.title}: cannot be stored: {os.strerror(code)}")
    # Which HTTP client the hub library stands on, so what a lost connection is, varies.
    transport = tuple(base for base in errors.HfHubHTTPError.__bases__ if base is not OSError)
    return _out_of_reach(repository) if isinstance(error, transport) else None


def _answered(status: int, repository: Repository) -> TabiflowError:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return EnvironmentFault(f"{repository.title}: the hub answers {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return repository.error(
            f"does not exist or is private ({status})",
            "check the id; a private one needs HF_TOKEN",
        )
    return repository.error(f"is refused by the hub ({status})")


def _out_of_reach(repository: Repository) -> EnvironmentFault:
    return EnvironmentFault(
        f"{repository.title}: the hub is out of reach",
        hint="offer a local copy, or try again with a connection",
    )
