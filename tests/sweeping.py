"""A driver in a process of its own, for tests that kill it: `python sweeping.py SWEEP [PAUSE]`.

Says on standard error which trials have ended, and on standard output what the run did.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tabiflow.engine import Options, run
from tabiflow.ledger import Ending, open_ledger
from tabiflow.plan import plan
from tabiflow.registry import resolve
from tabiflow.search import PAUSE
from tabiflow.spec import Sweep
from tabiflow.trial import Epoch, Hold, Trial
from tabiflow.work import missing


class Told:
    def on_start(self, trial: Trial, attempt: int) -> None: ...

    def on_epoch(self, trial: Trial, epoch: Epoch) -> None: ...

    def on_hold(self, hold: Hold) -> None: ...

    def on_end(self, trial: Trial, ending: Ending) -> None:
        print("ended", trial.id, file=sys.stderr, flush=True)


def main(file: Path, pause: float) -> None:
    sweep, book = Sweep.read(file), open_ledger()
    with book.recorder(sweep.name) as recorder:
        outcomes = book.outcomes()
        work = missing(plan(sweep, resolve(sweep), outcomes))
        curves = book.curves([outcome.run_id for outcome in outcomes.values()])
        options = Options(workers=2, pause=pause)
        summary = run(
            work, sweep, recorder, outcomes, curves=curves, listener=Told(), options=options
        )
    print(json.dumps(asdict(summary)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else PAUSE)
