"""Which rows go through a model together: parts of a batch, and batches of what is only scored."""

import numpy as np

SCORING_TOKENS, SCORING_ROWS = 16_384, 128
"""Of a batch that is scored, padding included."""


def cut(rows: np.ndarray, costs: np.ndarray, price: float, largest: int) -> list[np.ndarray]:
    """A batch in parts of similar length, none above `largest` rows.

    It is cut only where the padding saved, in tokens, is worth more than `price`.
    """
    order = np.argsort(costs, kind="stable")
    return _cut(rows[order], costs[order], price, largest) if len(rows) > 1 else [rows]


def _cut(rows: np.ndarray, costs: np.ndarray, price: float, largest: int) -> list[np.ndarray]:
    at = len(rows) // 2 if len(rows) > largest else _cheapest_cut(costs, price)
    if at == 0:
        return [rows]
    short = _cut(rows[:at], costs[:at], price, largest)
    return short + _cut(rows[at:], costs[at:], price, largest)


def _cheapest_cut(costs: np.ndarray, price: float) -> int:
    """Where to cut ascending costs in two; 0 where that saves too little."""
    if len(costs) < 2:
        return 0
    sizes = np.arange(1, len(costs))
    saved = sizes * (costs[-1] - costs[:-1])
    best = int(np.argmax(saved))
    return int(sizes[best]) if saved[best] > price else 0


def length_batches(costs: np.ndarray) -> list[np.ndarray]:
    """All rows from the shortest on, in batches of limited padded size."""
    order = np.argsort(costs, kind="stable")
    batches, start = [], 0
    for index, cost in enumerate(costs[order]):
        rows = index - start + 1
        if rows > 1 and (rows * cost > SCORING_TOKENS or rows > SCORING_ROWS):
            batches.append(order[start:index])
            start = index
    return [*batches, order[start:]]
