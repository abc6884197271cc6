"""The helper for programs that `sanderling task run` runs."""

from __future__ import annotations

import os
import signal

import pytest

from sanderling import task


@pytest.fixture
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("SANDERLING_TASK_STATE", str(tmp_path))
    before = signal.getsignal(signal.SIGUSR1)
    yield tmp_path
    signal.signal(signal.SIGUSR1, before)


def test_without_a_runner_nothing_happens(monkeypatch):
    monkeypatch.delenv("SANDERLING_TASK_STATE", raising=False)
    monkeypatch.delenv("SANDERLING_TASK_RESTORED", raising=False)
    before = signal.getsignal(signal.SIGUSR1)
    assert task.state_directory() is None
    assert not task.is_restored()
    assert not task.on_checkpoint(print)
    assert signal.getsignal(signal.SIGUSR1) == before


def test_signal_writes_the_state_and_then_done(state):
    def save(directory):
        assert not (directory / "done").exists()
        (directory / "count").write_text("7")

    assert task.state_directory() == state
    assert task.on_checkpoint(save)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (state / "count").read_text() == "7"
    assert (state / "done").exists()


def test_failed_save_is_no_checkpoint_and_the_program_goes_on(state, capsys):
    def save(directory):
        raise OSError("no room")

    task.on_checkpoint(save)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not (state / "done").exists()
    assert "no room" in capsys.readouterr().err


def test_restored_state_is_reported(monkeypatch):
    monkeypatch.setenv("SANDERLING_TASK_RESTORED", "1")
    assert task.is_restored()
