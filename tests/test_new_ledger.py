"""A SQLite ledger that is not there yet appears with all its tables or not at all."""

import os
from threading import Event, Thread

import pytest

from tabiflow import ledger
from tabiflow.errors import LedgerError
from tabiflow.ledger import newfile
from tabiflow.ledger.tracking import Tracking


@pytest.fixture
def file(tmp_path):
    newfile._made.cache_clear()
    return tmp_path / "place" / "mlflow.db"


def test_whoever_reads_meanwhile_finds_all_of_it_or_none(file):
    over, reads, faults = Event(), [], []

    def read():
        while not over.is_set():
            try:
                reads.append((file.exists(), ledger.open_ledger(f"sqlite:///{file}").outcomes()))
            except LedgerError as error:
                faults.append(error)

    file.parent.mkdir()
    reader = Thread(target=read)
    reader.start()
    try:
        Tracking(f"sqlite:///{file}")
    finally:
        over.set()
        reader.join()
    assert not faults
    assert reads[0] == (False, {})
    assert [each.name for each in file.parent.iterdir()] == ["mlflow.db"]


def test_where_no_hard_link_can_be_made_mlflow_makes_it(file, monkeypatch):
    def refused(*places):
        raise PermissionError("operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert Tracking(f"sqlite:///{file}").runs("trial") == []
    assert [each.name for each in file.parent.iterdir()] == ["mlflow.db"]


def test_what_appeared_meanwhile_stays(file):
    file.parent.mkdir()
    file.write_bytes(b"another's")
    newfile.create(file)
    assert file.read_bytes() == b"another's"
    assert [each.name for each in file.parent.iterdir()] == ["mlflow.db"]


def test_tables_are_those_that_mlflow_makes(file, tmp_path):
    def schema(path):
        with ledger.sqlite.connection(path) as database:
            found = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return sorted((kind, name, clauses(sql or "")) for kind, name, sql in found)

    def clauses(sql):  # MLflow's migrations write a table's constraints in no fixed order
        return sorted(line.strip(" ,") for line in sql.splitlines())

    newfile.create(file)
    other = tmp_path / "other.db"
    other.touch()  # there already, so MLflow makes its tables in it
    Tracking(f"sqlite:///{other}")
    assert schema(file) == schema(other) != []
