import contextlib
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.changelog import owner as module
from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.owner import Ownership, read_owner
from tailrace.model.errors import Fenced, StateOwned, StateUnreadable
from tests.changelog.support import child, hear, say


@pytest.fixture(params=["{}", "memory://owner-test{}"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def test_the_epoch_grows_by_one_at_every_takeover(uri: str) -> None:
    fs, root = open_filesystem(uri)
    for epoch in (1, 2, 3):
        owned = Ownership.acquire(fs, root, "me")
        assert owned.epoch == epoch
        owned.check(now=True)
        owned.release()
        owned.release()


def test_the_epoch_is_above_the_floor(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    owned = Ownership.acquire(fs, root, "me", floor=41)
    assert owned.epoch == 42
    owned.release()


def test_a_second_owner_is_refused_by_name(uri: str) -> None:
    fs, root = open_filesystem(uri)
    owned = Ownership.acquire(fs, root, "the first pipeline")
    with pytest.raises(StateOwned, match="the first pipeline") as raised:
        Ownership.acquire(fs, root, "the second", wait=0.1)
    assert str(os.getpid()) in raised.value.message
    assert raised.value.remedy
    owned.check(now=True)
    owned.release()


def test_whoever_waits_gets_it_at_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, root = open_filesystem(str(tmp_path))
    owned = Ownership.acquire(fs, root, "first")
    waits = threading.Event()
    sleep = time.sleep

    def noticed(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noticed)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(Ownership.acquire, fs, root, "second", wait=60)
        assert waits.wait(60)
        assert not second.done()
        owned.release()
        taken = second.result(60)
    assert taken.epoch == 2
    taken.release()


def test_a_killed_owner_is_succeeded_at_once(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    with child("owning", str(tmp_path), "victim", "3600") as process:
        hear(process)
        say(process, "acquire 0")
        assert hear(process) == "epoch 1"
        process.send_signal(signal.SIGKILL)
        # A zombie that nobody has reaped yet is dead too.
        owned = Ownership.acquire(fs, root, "heir", wait=60, lease=3600)
        assert owned.epoch == 2
        owned.release()


def test_a_frozen_owner_is_succeeded_after_its_lease_and_fenced_when_it_thaws(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    with child("owning", str(tmp_path), "sleeper", "0.6") as process:
        hear(process)
        say(process, "acquire 0")
        assert hear(process) == "epoch 1"
        process.send_signal(signal.SIGSTOP)
        owned = Ownership.acquire(fs, root, "heir", wait=60, lease=0.6)
        assert owned.epoch == 2
        process.send_signal(signal.SIGCONT)
        say(process, "check")
        answer = hear(process)
        assert answer.startswith("Fenced")
        assert "heir" in answer
        say(process, "release")
        hear(process)
        owned.check(now=True)
        assert (found := read_owner(fs, root)) is not None
        assert found.heartbeat > 0
        owned.release()


def test_a_living_owner_keeps_it_though_a_clock_makes_its_heartbeat_look_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, root = open_filesystem(str(tmp_path))
    with child("owning", str(tmp_path), "owner", "1") as process:
        hear(process)
        say(process, "acquire 0")
        hear(process)
        real, begun = time.time, time.monotonic()

        def ahead() -> float:
            # Ahead by an hour for two seconds: long enough for a takeover that believes the clock.
            return real() + (3600 if time.monotonic() - begun < 2 else 0)

        monkeypatch.setattr(time, "time", ahead)
        with pytest.raises(StateOwned):
            # It watches for 1.5 s, and a beat comes every 0.2 s.
            Ownership.acquire(fs, root, "impatient", wait=1, lease=6)
        say(process, "check")
        assert hear(process) == "ok"


def test_of_processes_that_start_at_the_same_moment_exactly_one_wins(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(child("owning", str(tmp_path), f"p{n}", "60")) for n in range(5)]
        for process in crowd:
            assert hear(process) == "ready"
        for round_ in range(1, 13):
            for process in crowd:
                say(process, "acquire 0")
            answers = [hear(process) for process in crowd]
            winners = [n for n, answer in enumerate(answers) if answer == f"epoch {round_}"]
            refused = [answer for answer in answers if answer.startswith("StateOwned")]
            assert (len(winners), len(refused)) == (1, 4), answers
            say(crowd[winners[0]], "release")
            assert hear(crowd[winners[0]]) == "ok"


def test_an_owner_file_that_is_damaged_stops_everyone(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    Ownership.acquire(fs, root, "me").release()
    (tmp_path / "owner" / "00000001.json").write_text("{")
    with pytest.raises(StateUnreadable):
        Ownership.acquire(fs, root, "me")


def test_an_owner_on_another_host_is_judged_by_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, root = open_filesystem(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_place", lambda: "elsewhere")
        patch.setattr(socket, "gethostname", lambda: "far-host")
        far = Ownership.acquire(fs, root, "far", lease=2)
    with pytest.raises(StateOwned, match="far-host"):
        Ownership.acquire(fs, root, "near", wait=0.1, lease=2)
    far._stopped.set()
    owned = Ownership.acquire(fs, root, "near", wait=60, lease=2)
    with pytest.raises(Fenced):
        far.check(now=True)
    owned.release()
