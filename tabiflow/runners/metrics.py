"""Additional metrics of a sweep: `evaluate` modules, recorded beside a task's own.

A module that cannot be loaded stops the sweep before its first trial; one that fails spoils the
trial as a `bug` that names it: a figure that a sweep asks for must not be missing without a word.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabiflow.errors import TrialError, UserError
from tabiflow.runners.failures import one_line

if TYPE_CHECKING:
    # Imports torch, which a driver has no use for.
    from tabiflow.tasks import Scores


def check(paths: Sequence[str]) -> None:
    """Raises UserError for two metrics of one name and for a folder that cannot be loaded.

    Names of the hub are left to the workers, who try again when it is away.
    """
    for name, times in Counter(_name(path) for path in paths).items():
        if times > 1:
            raise UserError(
                f"{times} metrics are called `{name}`: one would hide the other",
                hint="rename a folder",
            )
    for path in paths:
        if Path(path).exists():
            _checked(path)


def _checked(path: str) -> None:
    try:
        _load(path)
    except TrialError as error:
        raise UserError(error.message, where=error.where) from error


def _name(path: str) -> str:
    return Path(path).stem


class Additional:
    """The metrics at these folders or hub names, loaded afresh: modules gather state."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.modules = {_name(path): _load(path) for path in paths}

    def __call__(self, scores: "Scores") -> dict[str, float]:
        """Figures by name, each name with its metric's in front; what is no number is left out."""
        return {
            name: value
            for metric, module in self.modules.items()
            for name, value in _figures(metric, _computed(metric, module, scores)).items()
        }


def _load(path: str) -> Any:
    import evaluate  # Takes seconds, and few sweeps have additional metrics.

    try:
        return evaluate.load(path, keep_in_memory=True)
    except Exception as error:
        raise TrialError(f"metric cannot be loaded: {one_line(error)}", where=path) from error


def _computed(metric: str, module: Any, scores: "Scores") -> Mapping[str, Any]:
    try:
        figures: Mapping[str, Any] = module.compute(
            predictions=list(scores.predictions), references=list(scores.references)
        )
    except Exception as error:
        raise TrialError(f"metric `{metric}` failed: {error!r}") from error
    return figures


def _figures(metric: str, computed: Mapping[str, Any]) -> dict[str, float]:
    return {
        metric if name == metric else f"{metric}_{name}": float(value)
        for name, value in computed.items()
        if isinstance(value, Real)
    }
