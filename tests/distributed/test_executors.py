"""Executors: the same answers for any number of workers, and after any of them has died."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hingeline.distributed import executors
from hingeline.distributed.executors import LOST, Dask, Executor, Processes
from toy_host import BadHost, ToyHost

pytestmark = [pytest.mark.subprocess, pytest.mark.slow]


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture(autouse=True)
def as_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C, which jobs in the background ignore, and scripts that find the toy host."""
    paths = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A Dask cluster of two workers, which are started again when they die."""
    if find_spec("distributed.client") is None:  # the folder of this file has the package's name
        pytest.skip("dask is not installed")
    import dask

    import distributed

    with (
        # A worker that dies again 15 seconds later would not be started again.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["processes", "dask"])
def start(request: pytest.FixtureRequest) -> Callable[[int], Executor]:
    """Make an executor with some workers."""
    if request.param == "processes":
        return Processes
    client = request.getfixturevalue("client")

    def scale(n_workers: int) -> Executor:
        if len(client.nthreads()) != n_workers:
            client.cluster.scale(n_workers)
            assert wait_until(lambda: len(client.nthreads()) == n_workers, 20)
        return Dask(client)

    return scale


@pytest.fixture
def two(start: Callable[[int], Executor]) -> Iterator[Executor]:
    """Four blocks on two workers: 0 and 2 together, 1 and 3 together."""
    with start(2) as executor:
        executor.open(4, ToyHost)
        yield executor


def kill(executor: Executor, *victims: int) -> list[int]:
    """Have blocks kill their workers; those that are lost, in the order of blocks."""
    pids = executor.call("pid")
    lost = [k for k in pids if pids[k] in {pids[v] for v in victims}]
    answers = executor.call("die", victims)
    assert [k for k in answers if answers[k] is LOST] == lost
    return lost


# Calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_answers_come_in_the_order_of_blocks_for_any_number_of_workers(start, n_workers):
    with start(n_workers) as executor:
        executor.open(5, partial(ToyHost, 10))
        assert executor.call("count") == dict.fromkeys(range(5), 11)
        assert list(executor.call("add", 100, {4: 1, 0: 2, 3: 3}).items()) == [
            (0, 102),
            (3, 103),
            (4, 101),
        ]
        assert executor.call("count", own={1: None}) == {1: 12}
        assert executor.call("count") == {0: 12, 1: 13, 2: 12, 3: 12, 4: 12}
        pids = executor.call("pid")
        assert [pids[k] == pids[k % n_workers] for k in range(5)] == [True] * 5
        assert len(set(pids.values())) == n_workers == executor.n_alive()


def test_what_is_common_is_sent_once_to_each_worker(two):
    two.call("count")
    before = two.sent
    two.call("add", b"x" * 1_000_000, dict.fromkeys(range(4), b"y"))
    assert 2_000_000 < two.sent - before < 2_010_000
    assert 4_000_000 < two.received < 4_010_000
    assert two.call("commons_seen") == dict.fromkeys(range(4), 3)


def test_workers_have_one_thread_of_linear_algebra(monkeypatch):
    """Inner products of long vectors are other bits with two: those of Dask's workers are these."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with Processes(1) as executor:
        executor.open(1, ToyHost)
        assert executor.call("threads") == {0: {1}}
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_there_are_no_more_workers_than_blocks():
    with Processes(3) as executor:
        executor.open(1, ToyHost)
        assert executor.call("count") == {0: 1}
        assert executor.n_alive() == 1


def test_what_a_notebook_defines_reaches_the_workers(two):
    class Local:
        def __radd__(self, other: Any) -> Any:
            return type(self), other

    assert two.call("add", 7, {2: Local()}) == {2: (Local, 7)}


# Errors -----------------------------------------------------------------------------------------


def test_the_earliest_error_is_raised_and_names_its_worker(two):
    two.call("count")
    pid = two.call("pid")[1]
    with pytest.raises(ValueError, match="block 1 is bad") as caught:
        two.call("fail", [1, 2, 3])
    assert "on worker" in caught.value.__notes__[0]
    assert "in fail" in str(caught.value.__cause__)
    assert isinstance(two, Dask) or str(pid) in caught.value.__notes__[0]
    assert caught.value.__notes__[0].endswith("blocks 1, 3")
    assert two.call("count") == {0: 3, 1: 2, 2: 2, 3: 2}  # only block 0 had no error before it


def test_an_exception_of_any_kind_arrives(two):
    with pytest.raises(RuntimeError, match="Picky: this and that"):
        two.call("fail_oddly")
    with pytest.raises(TypeError, match="pickle"):
        two.call("answer_oddly")
    with pytest.raises(AttributeError, match="no_such_method"):
        two.call("no_such_method")
    with pytest.raises(TypeError, match="pickle"):
        two.call("add", threading.Lock())
    assert two.call("count") == dict.fromkeys(range(4), 1)


def test_a_host_that_cannot_be_made_says_why(start):
    with start(2) as executor:
        executor.open(3, BadHost)
        with pytest.raises(OSError, match="no such corpus") as caught:
            executor.call("count")
        assert caught.value.__notes__[0].endswith("blocks 0, 2")


def test_bad_arguments_and_calls_out_of_order():
    with pytest.raises(ValueError, match="n_workers"):
        Processes(0)
    with Processes(1) as executor:
        with pytest.raises(RuntimeError, match="closed"):
            executor.call("count")
        with pytest.raises(ValueError, match="n_blocks"):
            executor.open(0, ToyHost)
        executor.open(1, ToyHost)
        with pytest.raises(ValueError, match="open already"):
            executor.open(1, ToyHost)


# Deaths -----------------------------------------------------------------------------------------


def test_a_killed_worker_loses_its_blocks_once_and_no_others(two):
    two.call("count")
    assert kill(two, 2) == [0, 2]
    assert two.call("count") == {0: 1, 1: 3, 2: 1, 3: 3}
    lost = kill(two, 0)  # a second time; with Dask the others may have moved in
    assert {0, 2} <= set(lost)
    after = {k: 1 if k in lost else (5, 2)[k % 2 == 0] for k in range(4)}
    assert two.call("count") == after
    assert kill(two, 0, 1, 2, 3) == [0, 1, 2, 3]  # all at once
    assert two.call("count") == dict.fromkeys(range(4), 1)
    assert wait_until(lambda: two.n_alive() == 2)


def test_a_loss_is_told_for_every_block_when_it_is_next_called(two):
    pids = two.call("pid")
    two.call("count")
    assert two.call("die", [0], {0: None, 1: None}) == {0: LOST, 1: 2}
    assert two.call("count", own={0: None}) == {0: 1}
    assert two.call("count") == {0: 2, 1: 3, 2: LOST, 3: 2}
    assert two.call("count") == {0: 3, 1: 4, 2: 1, 3: 3}
    pids = two.call("pid")
    os.kill(pids[1], signal.SIGKILL)  # while nobody calls
    assert wait_until(lambda: not is_alive(pids[1]))
    time.sleep(0.2)
    lost = [k for k in pids if pids[k] == pids[1]]
    assert two.call("count", own={3: None}) == {3: LOST}
    answers = two.call("count")
    assert [k for k in answers if answers[k] is LOST] == [k for k in lost if k != 3]
    assert answers[3] == 1
    assert two.call("count")[3] == 2


def test_a_block_that_always_kills_its_worker_is_given_up(start):
    with start(2) as executor:
        executor.open(2, ToyHost)
        for _ in range(4):
            assert executor.call("die", [1], {1: None}) == {1: LOST}
            # Other calls go well in between; block 0 may have died with it.
            executor.call("count")
        with pytest.raises(RuntimeError, match=r"block 1 died 5 times in a row in 'die'.* memory"):
            executor.call("die", [1], {1: None})


def test_a_process_that_ends_by_itself_is_not_called_short_of_memory(monkeypatch):
    monkeypatch.setattr(executors, "LOSSES", 1)
    with Processes(1) as executor:
        executor.open(1, ToyHost)
        with pytest.raises(RuntimeError, match="what it wrote above says why"):
            executor.call("leave")


def test_losses_that_are_not_in_a_row_are_forgiven():
    with Processes(1) as executor:
        executor.open(1, ToyHost)
        for _ in range(3):
            for _ in range(2):
                assert executor.call("die", [0]) == {0: LOST}
            assert executor.call("die", []) == {0: 1}


def test_a_slow_worker_is_waited_for(two):
    assert two.call("sleep", 0, {0: 1.5}) == {0: 1}
    began = time.monotonic()
    assert two.call("sleep", 0, {0: 3, 1: 3}) == {0: 2, 1: 1}
    assert time.monotonic() - began < 5.9  # at the same time


# Ends -------------------------------------------------------------------------------------------


def interrupt_soon() -> None:
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()


def test_ctrl_c_comes_through_at_once_and_leaves_nothing_behind(start):
    with start(2) as executor:
        executor.open(3, ToyHost)
        pids = executor.call("pid")
        executor.call("count")
        began = time.monotonic()
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            executor.call("sleep", 4, {0: None, 1: 0})
        assert time.monotonic() - began < 3
        # Whoever goes on finds the blocks that were busy lost, and only those.
        assert executor.call("count") == {0: LOST, 1: 3, 2: LOST}
        assert executor.call("count") == {0: 1, 1: 4, 2: 1}
        pids |= executor.call("pid")
    if isinstance(executor, Processes):
        assert not any(is_alive(pid) for pid in pids.values())


def test_closing_twice_ends_all_processes():
    executor = Processes(2)
    executor.close()
    executor.open(2, ToyHost)
    executor.call("die", [0, 1])
    executor.close()
    executor.open(2, ToyHost)
    pids = executor.call("pid")
    executor.close()
    executor.close()
    assert executor.n_alive() == 0
    assert not any(is_alive(pid) for pid in pids.values())
    with pytest.raises(RuntimeError, match="closed"):
        executor.call("count")


ORPHANS = """
import sys
from hingeline.distributed.executors import Processes
from toy_host import ToyHost

if __name__ == "__main__":
    executor = Processes(2)
    executor.open(2, ToyHost)
    executor.call("write_and_sleep", sys.argv[1])
"""


def test_busy_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    with subprocess.Popen([sys.executable, script, tmp_path]) as parent:
        files = [tmp_path / "0", tmp_path / "1"]
        assert wait_until(lambda: all(file.exists() and file.read_text() for file in files), 30)
        parent.kill()
    pids = [int(file.read_text()) for file in files]
    assert wait_until(lambda: not any(map(is_alive, pids)))


NO_GUARD = """
from hingeline.distributed.executors import Processes
from toy_host import ToyHost

with Processes(2) as executor:
    executor.open(2, ToyHost)
    print(executor.call("count"))
"""


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(NO_GUARD)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert 'put the lines that train under `if __name__ == "__main__":`' in done.stderr


def test_dask_is_not_imported_before_it_is_asked_for():
    code = "import sys, hingeline.distributed.executors; print('distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Dask -------------------------------------------------------------------------------------------


def hosts_left(client: Any) -> list[int]:
    def count() -> int:
        return len(executors._HOSTS) + len(executors._SEEN)

    return list(client.run(count).values())


def test_closing_takes_the_hosts_from_the_cluster_and_leaves_it_alive(client):
    executor = Dask(client)
    executor.open(3, ToyHost)
    executor.call("count")
    assert sum(hosts_left(client)) > 0
    with Dask(client) as other:  # two at the same time know nothing of each other
        other.open(3, ToyHost)
        assert other.call("count") == {0: 1, 1: 1, 2: 1}
    assert executor.call("count") == {0: 2, 1: 2, 2: 2}
    executor.close()
    executor.close()
    assert sum(hosts_left(client)) == 0
    assert client.status == "running"


def test_a_busy_host_is_forgotten_too(client):
    with Dask(client) as executor:
        executor.open(1, ToyHost)
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            executor.call("sleep", 2)
    time.sleep(2)
    assert sum(hosts_left(client)) == 0


def test_a_worker_that_joins_late_gets_blocks(client):
    client.cluster.scale(1)
    assert wait_until(lambda: len(client.nthreads()) == 1, 20)
    with Dask(client) as executor:
        executor.open(5, ToyHost)
        (old,) = set(executor.call("pid").values())
        assert executor.call("count") == dict.fromkeys(range(5), 1)
        assert executor.rebalance() == []
        client.cluster.scale(2)
        assert wait_until(lambda: executor.n_alive() == 2, 20)
        assert executor.rebalance() == [3, 4]
        assert executor.rebalance() == []
        assert executor.call("count") == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1}
        assert [pid == old for pid in executor.call("pid").values()] == [True] * 3 + [False] * 2
        assert kill(executor, 0) == [0, 1, 2]
        assert old not in executor.call("pid").values()


def set_status(dask_worker: Any, name: str) -> None:
    from distributed import Status

    dask_worker.memory_manager.memory_pause_fraction = False  # or it would go on by itself
    dask_worker.status = Status[name]


@pytest.mark.parametrize("harm", ["paused", "stopped"])
def test_a_worker_that_is_stuck_counts_as_lost(client, monkeypatch, harm):
    """Paused for want of memory, or without a heartbeat."""
    client.cluster.scale(2)
    assert wait_until(lambda: len(client.nthreads()) == 2, 20)
    monkeypatch.setattr(executors, "STUCK", 2.0)
    with Dask(client) as executor:
        executor.open(2, ToyHost)
        pids = executor.call("pid")
        executor.call("count")
        (address,) = {executor._home[1]}
        if harm == "paused":
            client.run(set_status, name="paused", workers=[address])
        else:
            os.kill(pids[1], signal.SIGSTOP)
        try:
            assert executor.call("count") == {0: 2, 1: LOST}
            assert executor.call("count") == {0: 3, 1: 1}
            assert executor.n_alive() == 1
        finally:
            if harm == "stopped":
                os.kill(pids[1], signal.SIGCONT)
            else:
                client.run(set_status, name="running", workers=[address])
        assert wait_until(lambda: len(executor._watch()) == 2)
        assert executor.rebalance() == [1]
        assert executor.call("count") == {0: 4, 1: 1}


def test_large_messages_do_not_go_into_the_graph(client, recwarn):
    with Dask(client) as executor:
        executor.open(3, ToyHost)
        large = b"x" * 20_000_000
        assert executor.call("add", large, dict.fromkeys(range(3), b"y"))[2] == large + b"y"
        assert len(executor.call("add", b"", {1: large})[1]) == len(large)
    assert not [w for w in recwarn if "large graph" in str(w.message)]


def test_a_host_that_vanished_is_a_loss(client):
    """As when a worker comes back under its old address."""
    with Dask(client) as executor:
        executor.open(2, ToyHost)
        executor.call("count")
        client.run(clear_hosts)
        assert executor.call("count") == {0: LOST, 1: LOST}
        assert executor.call("count") == {0: 1, 1: 1}


def clear_hosts() -> None:
    executors._HOSTS.clear()


def test_a_task_that_is_run_again_changes_nothing(client):
    request = executors.dumps((executors.dumps(ToyHost), "count", {0: None}))
    common = executors.dumps(None)
    try:
        first = executors._run_on_dask(("token", "here"), 1, request, common)
        again = executors._run_on_dask(("token", "here"), 1, request, common)
    finally:
        executors._forget("token")
    assert pickle.loads(first) == {0: 1}
    assert pickle.loads(again) is LOST
    assert not executors._HOSTS


def test_a_cluster_without_workers_is_given_up(client, monkeypatch):
    import distributed

    monkeypatch.setattr(executors, "PATIENCE", 1.0)
    cluster = distributed.LocalCluster(1, processes=False, dashboard_address=None)
    with cluster, Dask(cluster.scheduler_address) as executor:
        executor.open(2, ToyHost)
        assert executor.call("count") == {0: 1, 1: 1}
        cluster.scale(0)
        assert wait_until(lambda: executor.n_alive() == 0)
        with pytest.raises(RuntimeError, match="no worker for 1 seconds"):
            executor.call("count")
    with pytest.raises(RuntimeError, match="client is closed"):
        executor.open(1, ToyHost)


SCHEDULER = """
import time
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(1, processes=False, protocol="tcp", dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(60)
"""


def test_a_scheduler_that_goes_away_during_a_call(client):
    with subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, text=True
    ) as scheduler:
        with Dask(scheduler.stdout.readline().strip()) as executor:
            executor.open(1, ToyHost)
            assert executor.call("count") == {0: 1}
            threading.Timer(0.7, scheduler.kill).start()
            began = time.monotonic()
            with pytest.raises(RuntimeError, match="scheduler is gone"):
                executor.call("sleep", 10)
            with pytest.raises(RuntimeError, match="scheduler is gone"):
                executor.call("count")
            assert executor.n_alive() == 0
        assert time.monotonic() - began < 9


def test_what_is_no_client_is_refused(client):
    import distributed

    with pytest.raises(TypeError, match=r"must be a dask\.distributed\.Client"):
        Dask(3)
    with pytest.raises(RuntimeError, match="No Dask scheduler answers at nowhere://1"):
        Dask("nowhere://1")
    other = distributed.Client(client.cluster.scheduler_address, set_as_default=False)
    with Dask(other) as executor:
        executor.open(1, ToyHost)
        other.close()
        with pytest.raises(RuntimeError, match="client is closed"):
            executor.call("count")
