"""The helper for programs that `sanderling task run` runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
    assert os.readlink(state / "done") == "failed"
    assert "no room" in capsys.readouterr().err


FAILS_ONCE = '''
import sys, time
from sanderling import task

saves = 0

def save(directory):
    global saves
    saves += 1
    if saves == 1:
        raise OSError("no room")
    (directory / "saves").write_text(str(saves))

assert task.on_checkpoint(save)
until = time.monotonic() + 50
while saves < 3 and time.monotonic() < until:
    time.sleep(0.01)
sys.exit(0 if saves >= 3 else "the state was not requested again")
'''


def test_runner_requests_the_state_again_after_a_failed_save(tmp_path):
    (tmp_path / "task.py").write_text(FAILS_ONCE)
    command = [sys.executable, "-m", "sanderling", "task", "run", "--name", "t"]
    command += ["--driver", "hook", "--interval", "100ms", "--hook-timeout", "1h"]
    command += ["--key", str(tmp_path / "key"), "--backend", f"dir:{tmp_path / 'backend'}"]
    command += ["--", sys.executable, str(tmp_path / "task.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "the task could not write its state" in ran.stderr
    # The third one was requested, so that the second one is stored.
    assert "generation 1: " in ran.stderr


def test_restored_state_is_reported(monkeypatch):
    monkeypatch.setenv("SANDERLING_TASK_RESTORED", "1")
    assert task.is_restored()
