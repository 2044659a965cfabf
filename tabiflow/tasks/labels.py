"""Labels <-> their positions in the schema, the same for all splits of a data set."""

from collections.abc import Sequence

import numpy as np

from tabiflow.data import Schema
from tabiflow.errors import DataError, near


def positions(labels: Sequence[str], schema: Schema) -> np.ndarray:
    """Raises DataError for a label that the schema lacks."""
    known = {label: position for position, label in enumerate(schema.labels)}
    try:
        return np.array([known[label] for label in labels], dtype=np.int64)
    except KeyError as error:
        label = str(error.args[0])
        raise DataError(
            f"label `{label}` is not in the label schema",
            hint=near(label, known) or f"the schema holds {', '.join(list(known)[:10])}",
        ) from error
