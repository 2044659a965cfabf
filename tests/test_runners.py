"""Runners are imported by the process that needs them."""

import gc

import pytest

from tabiflow import runners


def test_garbage_is_looked_for_again_after_a_runner_that_could_not_be_imported(monkeypatch):
    monkeypatch.setitem(runners.RUNNERS, "broken", "tabiflow.runners.no_such_module")
    with pytest.raises(ModuleNotFoundError):
        runners.runner("broken")
    assert gc.isenabled()


def test_what_a_runner_imports_is_never_looked_through_for_garbage():
    runners.runner.cache_clear()
    try:
        runners.runner("rehearse")
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        runners.runner.cache_clear()
