import math
import os
from pathlib import Path

import pytest

from tabiflow.errors import LedgerError
from tabiflow.ledger import wal
from tabiflow.ledger.wal import CellOpened, Ended, EpochTold, HoldSet, Started, WriteAheadLog
from tabiflow.trial import Cell, Status

CELL = Cell("bert", "haberler")
EVENTS = [
    CellOpened(CELL, 1),
    Started("id", 1, CELL, "slot", "lr1e-05", {"device": "işlemci"}, {"seed": "25"}, 2),
    EpochTold("id", 1, 1, {"validation_score": 51.0, "train_loss": 0.25}, 3),
    Ended("id", 1, "slot", Status.DONE, {"status": "done"}, {"kept_score": 51.0}, 4, 1),
    HoldSet(CELL, '{"some": "hold"}', 5),
]


def _written(file: Path) -> Path:
    log = WriteAheadLog(file)
    for event in EVENTS:
        log.append(event)
    log.close()
    return file


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event):
    assert wal.decoded(wal.encoded(event)) == event


def test_an_unknown_score_stays_unknown():
    event = EpochTold("id", 1, 1, {"validation_score": math.nan}, 3)
    [value] = wal.decoded(wal.encoded(event)).metrics.values()
    assert math.isnan(value)


def test_a_log_holds_what_was_appended(tmp_path):
    assert list(wal.read(_written(tmp_path / "log"))) == EVENTS


@pytest.mark.parametrize("torn", [1, 20, 60])
def test_a_torn_last_line_costs_that_line_only(torn, tmp_path, caplog):
    file = _written(tmp_path / "log")
    os.truncate(file, file.stat().st_size - torn)
    assert list(wal.read(file)) == EVENTS[: None if torn == 1 else -1]


@pytest.mark.parametrize("line", ["[]", "3", "{}", '{"event": "Unheard"}', '{"event": "Started"}'])
def test_a_line_of_another_version_is_left_out(line, tmp_path, caplog):
    file = tmp_path / "log"
    file.write_text(line + "\n")
    assert list(wal.read(file)) == []
    assert "log:1: a torn line was left out" in caplog.text


def test_a_cleared_log_is_empty_and_goes_on(tmp_path):
    log = WriteAheadLog(tmp_path / "log")
    log.append(EVENTS[0])
    log.clear()
    log.append(EVENTS[1])
    log.close()
    assert list(wal.read(tmp_path / "log")) == EVENTS[1:2]


def test_a_full_disk_is_said(tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    log = WriteAheadLog(tmp_path / "log")
    with pytest.raises(LedgerError, match="cannot be written: No space left on device"):
        log.append(EVENTS[0])
    log.close()
