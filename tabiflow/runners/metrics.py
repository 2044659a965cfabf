"""Additional metrics of a sweep: `evaluate` modules, recorded beside a task's own.

A module that cannot be loaded stops the sweep before its first trial; one that fails spoils the
trial as a `bug` that names it: a figure that a sweep asks for must not be missing without a word.
Which kinds of task it can score follows from the `features` that it declares: trials of the others
go without it, and say so.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import ArrowException

from tabiflow.errors import TrialError, UserError
from tabiflow.registry.kinds import KINDS
from tabiflow.runners.failures import one_line
from tabiflow.spec import TaskKind

if TYPE_CHECKING:
    # Imports torch, which a driver has no use for.
    from tabiflow.tasks import Scores


log = logging.getLogger(__name__)


def check(paths: Sequence[str], kinds: Sequence[TaskKind] = ()) -> None:
    """Raises UserError for two metrics of one name, for a folder that cannot be loaded and for one
    that fits none of these kinds of task; says which ones a metric does not fit.

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
            _checked(path, kinds)


def _checked(path: str, kinds: Sequence[TaskKind]) -> None:
    try:
        module = _load(path)
    except TrialError as error:
        raise UserError(error.message, where=error.where) from error
    unfit = [kind for kind in kinds if not _takes(module, *KINDS[kind].item)]
    if unfit:
        told = f"metric `{_name(path)}` does not take what {', '.join(unfit)} predicts"
        if len(unfit) == len(kinds):
            raise UserError(told, where=path, hint="see the `features` that it declares")
        log.warning("%s: it is left out there", told)


def _name(path: str) -> str:
    return Path(path).stem


class Additional:
    """The metrics at these folders or hub names, loaded afresh: modules gather state."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.modules = {_name(path): _load(path) for path in paths}
        self.left_out: set[str] = set()
        """Metrics that do not take what was to be scored."""

    def __call__(self, scores: "Scores") -> dict[str, float]:
        """Figures by name, each name with its metric's in front; what is no number is left out."""
        items = list(zip(scores.predictions, scores.references, strict=True))
        fitting = {
            metric: module
            for metric, module in self.modules.items()
            if not items or _takes(module, *items[0])
        }
        self.left_out |= self.modules.keys() - fitting.keys()
        return {
            name: value
            for metric, module in fitting.items()
            for name, value in _figures(metric, _computed(metric, module, scores)).items()
        }


def _load(path: str) -> Any:
    import evaluate  # Takes seconds, and few sweeps have additional metrics.

    try:
        return evaluate.load(path, keep_in_memory=True)
    except Exception as error:
        raise TrialError(f"metric cannot be loaded: {one_line(error)}", where=path) from error


def _takes(module: Any, prediction: Any, reference: Any) -> bool:
    """Whether one of the formats that the module declares holds the pair as it stands."""
    formats = module.features if isinstance(module.features, list) else [module.features]
    return any(_holds(each, prediction, reference) for each in formats)


def _holds(features: Any, prediction: Any, reference: Any) -> bool:
    pair = {"predictions": prediction, "references": reference}
    if features is None or features.keys() != pair.keys():
        # What is missing is told when it is computed.
        return True
    try:
        # `datasets` makes 2 of 2.5 and text of a list, so only an equal value is the same.
        return bool(features.encode_example(pair) == pair)
    except (TypeError, ValueError, AttributeError, KeyError, ArrowException):
        return False


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
