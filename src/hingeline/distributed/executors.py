"""Where blocks live: in processes of this machine, or on the workers of a Dask cluster.

An executor is a star: the driver sends requests to workers and takes their answers; workers never
speak to each other. A worker holds one *host*, made there by a function of the caller's, and the
host holds the blocks. A worker that dies takes the state of its blocks with it: the answer for
them is `LOST` once, and from then on they are empty blocks somewhere else.
What is sent to a block, and in which order answers come back, does not depend on the workers.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from hingeline import _checks

#: A block is given up when it is lost so many times in a row in calls of the same method.
LOSSES = 5


def dumps(value: Any) -> bytes:
    """Pickle what users define in a notebook or a script whole: workers need not import it."""
    from numba import cloudpickle  # by workers not before they must: it takes most of their start

    return bytes(cloudpickle.dumps(value))


class LOST:  # a class stays one object when it is pickled
    """The answer for a block whose worker is gone. The block is empty again at the next call."""


class WorkersLost(RuntimeError):
    """No worker is left, or none that lives long enough."""


class Executor(AbstractContextManager["Executor"]):
    """Blocks 0, 1, … on workers, and calls to them. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._home: list[Any] = []  # the worker of every block; None when it must find one
        self.sent = self.received = 0  # bytes so far
        memory = "make the blocks smaller or give the workers more memory"
        self._why = f"most likely for lack of memory: {memory}"

    def open(self, n_blocks: int, make: Callable[[], Any]) -> None:
        """Deal out blocks 0 … n_blocks − 1, all of them empty.

        ``make``, which can be pickled, makes the host of a worker when it is first called. Its
        ``call(method, common, own)`` has an answer for each of the blocks that are keys of ``own``.
        """
        _checks.positive("n_blocks", n_blocks, integer=True)
        _checks.require(not self._home, "The executor is open already: close it first.")
        self._make = dumps(make)
        self._equipped: set[Any] = set()  # workers that have a host
        self._untold: set[int] = set()  # blocks that were lost since they were last called
        self._losses: Counter[tuple[int, str]] = Counter()  # in a row, by block and method
        self._home = [None] * n_blocks
        self._find_homes()

    def call(
        self, method: str, common: Any = None, own: Mapping[int, Any] | None = None
    ) -> dict[int, Any]:
        """Call the hosts of some blocks, all workers at the same time; the answers, in order.

        ``common`` is sent once to every worker, ``own`` has an argument for each block that is
        called; None calls all. `LOST` is the answer for blocks that died with their worker since
        they were last called: they are empty at the next call. What a host raises is raised here,
        with a note that names the worker; of several exceptions that of the earliest block.
        `WorkersLost` if a block dies with its worker again and again, or no worker is left.
        """
        if not self._home:
            raise RuntimeError("The executor is closed: no blocks can be called.")
        own = dict.fromkeys(range(len(self._home))) if own is None else own
        self._find_homes()
        parts: dict[Any, dict[int, Any]] = {}
        for k in sorted(own):
            if k not in self._untold:
                parts.setdefault(self._home[k], {})[k] = own[k]
        make = dict.fromkeys(parts.keys() - self._equipped, self._make)
        requests = {worker: dumps((make.get(worker), method, parts[worker])) for worker in parts}
        shared = dumps(common)
        answers: dict[int, Any] = {}
        errors: dict[int, Exception] = {}
        replies = self._exchange(shared, requests)
        self._equipped |= replies.keys()
        for worker, reply in replies.items():
            self.sent += len(shared) + len(requests[worker])
            self.received += len(reply or b"")
            try:
                found: Any = LOST if reply is None else pickle.loads(reply)
            except Exception as unreadable:
                found = _Failure(unreadable, "")
            if found is LOST:
                self._lose(worker)
            elif isinstance(found, _Failure):
                error, text = found
                error.__cause__ = RuntimeError(f"in the worker:\n{text}") if text else None
                blocks = ", ".join(map(str, parts[worker]))
                error.add_note(f"on worker {self._describe(worker)}, blocks {blocks}")
                errors[getattr(error, "block", min(parts[worker]))] = error
            else:
                answers.update(found)
        if errors:
            raise errors[min(errors)]
        for k in sorted(own):
            if k in self._untold:
                answers[k] = LOST
                self._losses[k, method] += 1
            else:
                del self._losses[k, method]
        self._untold -= own.keys()
        if given_up := [str(k) for k in own if self._losses[k, method] >= LOSSES]:
            blocks = f"block{'s' * (len(given_up) > 1)} {', '.join(given_up)}"
            often = f"died {LOSSES} times in a row in {method!r}, {self._why}"
            raise WorkersLost(f"The worker of {blocks} {often}.")
        return {k: answers[k] for k in sorted(own)}

    def rebalance(self) -> list[int]:
        """Move blocks to workers with fewer, which may have joined late; those are empty there."""
        return []

    def _lose(self, worker: Any) -> None:
        """Take the blocks from a worker that is gone, or has lost them."""
        self._equipped.discard(worker)
        for k, home in enumerate(self._home):
            if home == worker:
                self._home[k] = None
                self._untold.add(k)

    @abstractmethod
    def _find_homes(self) -> None:
        """Lose the blocks of dead workers, then give a living one to each block without."""

    @abstractmethod
    def _exchange(self, common: bytes, requests: dict[Any, bytes]) -> dict[Any, bytes | None]:
        """What workers reply to their requests; None from those that died."""

    def _describe(self, worker: Any) -> str:
        return str(worker)

    @abstractmethod
    def n_alive(self) -> int:
        """Count the workers that are alive now."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind: no process, no task, no state. A second time does nothing."""

    def __exit__(self, *_: object) -> None:
        self.close()


class Calls:
    """Calls to blocks, all or some. What they were told is kept: lost ones are told it again."""

    def __init__(self, executor: Executor, n_blocks: int, tell: Callable[[str], None]) -> None:
        self.executor, self.tell, self.blocks = executor, tell, list(range(n_blocks))
        #: Method, what is common and what each block is told; what they must answer again.
        self.log: list[tuple[str, tuple[Any, ...], dict[int, Any], dict[int, Any]]] = []
        self.seconds, self.waited = [0.0] * n_blocks, 0.0  # of work, by block, and of the driver

    def ask(
        self,
        method: str,
        common: tuple[Any, ...] = (None,),
        each: Iterable[Any] | None = None,
        log: bool = True,
        same: str = "",
    ) -> list[Any]:
        """Let blocks do something, which each is told its part of; their answers, in order.

        ``same`` names a part of the answer that must be the same when a block is asked again.
        """
        own: dict[int, tuple[Any, ...]] = dict.fromkeys(self.blocks, ())
        if each is not None:
            own = {k: (told,) for k, told in zip(self.blocks, each, strict=True)}
        began, busy = time.perf_counter(), 0.0
        answers: dict[int, Any] = {}
        while left := {k: own[k] for k in own if k not in answers}:
            found = self.executor.call(method, common, left)
            answers |= {k: answer for k, answer in found.items() if answer is not LOST}
            if lost := [k for k in found if found[k] is LOST]:
                self.tell(f"a worker was lost; {len(lost)} blocks are rebuilt")
                self.repeat(lost)
        for k, (_, seconds) in answers.items():
            self.seconds[k] += seconds
            busy = max(busy, seconds)
        self.waited += max(time.perf_counter() - began - busy, 0.0)
        if log:
            kept = {k: (same, answer[0][same]) for k, answer in answers.items()} if same else {}
            self.log.append((method, common, own, kept))
        return [answers[k][0] for k in sorted(answers)]

    def repeat(self, lost: list[int]) -> None:
        """Let blocks that are new do all of it again, until none of them is lost meanwhile."""
        at = 0
        while at < len(self.log):
            method, common, own, kept = self.log[at]
            found = self.executor.call(method, common, {k: own[k] for k in lost if k in own})
            at = 0 if LOST in found.values() else at + 1
            for k, (name, value) in kept.items() if at else ():
                text = f"the parts of block {k} have changed since the training began"
                same = k not in found or found[k][0][name] == value
                _checks.require(same, f"{text}: start again.")


class _Failure(NamedTuple):
    """An exception of a host, and its traceback in words."""

    error: Exception
    text: str


# On the worker -----------------------------------------------------------------------------------


def _reply(hosts: dict[Any, Any], key: Any, request: bytes, common: bytes) -> bytes:
    """Make the host if asked to, call it, and pickle its answer, or what it raised, or LOST."""
    try:
        make, method, own = pickle.loads(request)
        if make is not None:
            hosts.pop(key, None)
            hosts[key] = pickle.loads(make)()
        if key not in hosts:
            return pickle.dumps(LOST)
        found = hosts[key].call(method, pickle.loads(common), own)
        try:
            return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
        except Exception:  # something of the user's own
            return dumps(found)
    except Exception as error:
        return _pickle_error(error)


def _pickle_error(error: Exception) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(dumps(error))
    except Exception:  # its class asks for more than its message, or holds what cannot be sent
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return dumps(_Failure(error, text))


# Processes of this machine -----------------------------------------------------------------------

#: Threads of linear algebra: more than one in each process would wait for each other, and the sums
#: of more come out otherwise. Dask sets the same.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: How a worker ends that finds itself starting workers, because its script has no main guard.
_NO_GUARD = 97


class Processes(Executor):
    """Blocks in processes of this machine: block k in process k modulo ``n_workers``."""

    def __init__(self, n_workers: int) -> None:
        super().__init__()
        _checks.positive("n_workers", n_workers, integer=True)
        self.n_workers = n_workers
        self._workers: dict[int, tuple[Any, Connection]] = {}

    def _find_homes(self) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            sys.exit(_NO_GUARD)  # this is a worker, which is about to run its parent's script again
        for slot in range(min(self.n_workers, len(self._home))):
            if slot in self._workers and not self._workers[slot][0].is_alive():
                self._lose(slot)
            if slot not in self._workers:
                context = multiprocessing.get_context("spawn")
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs,), daemon=True)
                # Ctrl-C does not reach processes that begin now; it comes here when they have.
                held = hasattr(signal, "pthread_sigmask")
                before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if held else ()
                known = {name: os.environ[name] for name in _ONE_THREAD if name in os.environ}
                os.environ.update(_ONE_THREAD)
                try:
                    process.start()
                finally:
                    for name in _ONE_THREAD:
                        del os.environ[name]
                    os.environ.update(known)
                    if held:
                        signal.pthread_sigmask(signal.SIG_SETMASK, before)
                theirs.close()
                self._workers[slot] = process, ours
        self._home = [k % self.n_workers for k in range(len(self._home))]

    def _exchange(self, common: bytes, requests: dict[Any, bytes]) -> dict[Any, bytes | None]:
        replies: dict[Any, bytes | None] = {}
        waiting = {}
        try:
            for slot, request in requests.items():
                pipe = self._workers[slot][1]
                waiting[pipe] = slot
                try:
                    pipe.send_bytes(request)
                    pipe.send_bytes(common)
                except OSError:
                    replies[waiting.pop(pipe)] = None
            while waiting:
                ready: list[Any] = wait(list(waiting))  # a dead worker's pipe too: it has an end
                for pipe in ready:
                    try:
                        reply = pipe.recv_bytes()
                    except (EOFError, OSError):
                        reply = None
                    replies[waiting.pop(pipe)] = reply
        finally:
            # After Ctrl-C: what they would say now, nobody waits for.
            for slot in waiting.values():
                self._lose(slot)
        return replies

    def _lose(self, worker: Any) -> None:
        """End a process that is dead or busy, too."""
        super()._lose(worker)
        process, pipe = self._workers.pop(worker)
        process.kill()
        process.join()
        pipe.close()
        if process.exitcode == 1:  # an exception outside of any host
            self._why = "and what it wrote above says why"
        if process.exitcode == _NO_GUARD:
            raise RuntimeError(
                "The script starts worker processes whenever it is imported, also by the workers: "
                'put the lines that train under `if __name__ == "__main__":`.'
            )

    def _describe(self, worker: Any) -> str:
        return f"{worker} (process {self._workers[worker][0].pid})"

    def n_alive(self) -> int:
        return sum(process.is_alive() for process, _ in self._workers.values())

    def close(self) -> None:
        self._home = []
        workers, self._workers = list(self._workers.values()), {}
        try:
            for _, pipe in workers:
                pipe.close()  # upon which idle workers end by themselves
            for process, _ in workers:
                process.join(2)
        finally:
            for process, _ in workers:
                process.kill()
                process.join()


def _serve(pipe: Connection) -> None:
    """Answer requests until the parent closes the pipe, or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle

    def end_with_parent() -> None:
        wait([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    hosts: dict[Any, Any] = {}
    try:
        while True:
            request, common = pipe.recv_bytes(), pipe.recv_bytes()
            pipe.send_bytes(_reply(hosts, None, request, common))
    except (EOFError, OSError):
        pass


# Dask --------------------------------------------------------------------------------------------

#: Seconds without any worker after which a cluster is given up.
PATIENCE = 30.0
#: Seconds after which a worker that is paused, or sends no heartbeat, counts as lost.
STUCK = 120.0
_POLL = 0.5
#: What has more bytes is scattered: it does not belong into the scheduler's graph of tasks.
_LARGE = 1_000_000


class Dask(Executor):
    """Blocks on the workers of a Dask cluster, one task per worker and call.

    Blocks whose worker is lost go to the workers that then have fewest, newcomers among them. A
    worker that is paused for lack of memory, or sends no heartbeat, is lost after two minutes.

    ``client`` is a ``distributed.Client``, which stays open, or the address of a scheduler.
    """

    def __init__(self, client: Any) -> None:
        super().__init__()
        try:
            import distributed
        except ImportError:
            raise ImportError("Dask is not installed: pip install 'hingeline[dask]'.") from None
        self._dask = distributed
        self._token = uuid.uuid4().hex
        self._serial = 0
        self._signs: dict[str, tuple[Any, float]] = {}  # of life, and when each was new
        self._stuck: set[str] = set()
        self._ours = isinstance(client, str)
        if isinstance(client, str):
            try:
                client = distributed.Client(client, set_as_default=False)
            except (OSError, ValueError) as error:
                raise WorkersLost(f"No Dask scheduler answers at {client}: {error}.") from None
        elif not isinstance(client, distributed.Client) or client.asynchronous:
            raise TypeError("client must be a dask.distributed.Client (not asynchronous) or a str.")
        self._client = client

    def _alive(self) -> list[str]:
        """Addresses of the workers but those that are stuck; an error if no scheduler answers."""
        with suppress(OSError, self._dask.CancelledError):
            if self._client.status == "running":
                return sorted(self._client.nthreads().keys() - self._stuck)
        if self._client.status in ("closing", "closed", "newly-created"):
            raise RuntimeError("The Dask client is closed: give one that is connected.")
        raise WorkersLost("The Dask scheduler is gone: restart it, then the training.")

    def _watch(self) -> list[str]:
        """Look for signs of life, and list the workers that are alive."""
        now = time.monotonic()
        with suppress(OSError, self._dask.CancelledError):
            for worker, state in self._client.scheduler_info(n_workers=-1)["workers"].items():
                well = state["status"] == "running"
                sign = state["last_seen"] if well else state["status"]
                if self._signs.get(worker, (None, now))[0] != sign:
                    self._signs[worker] = sign, now
        self._stuck = {worker for worker, (_, since) in self._signs.items() if now > since + STUCK}
        return self._alive()

    def rebalance(self) -> list[int]:
        alive = self._alive()
        load = Counter(self._home)
        moves = {}
        for k, home in reversed(list(enumerate(self._home))):
            least = min(alive, key=lambda worker: (load[worker], worker), default=home)
            if load[home] > load[least] + 1:
                moves[k] = least
                load.update({home: -1, least: 1})
        if moves:
            self.call("drop", (None,), dict.fromkeys(moves, ()))
            for k, worker in moves.items():
                self._home[k] = worker
        return sorted(moves)

    def _find_homes(self) -> None:
        alive = self._alive()
        for worker in set(self._home) - {None, *alive}:
            self._lose(worker)
        if None not in self._home:
            return
        end = time.monotonic() + PATIENCE
        while not alive:
            if time.monotonic() > end:
                raise WorkersLost(f"The Dask cluster has had no worker for {PATIENCE:.0f} seconds.")
            time.sleep(_POLL)
            alive = self._watch()
        load = Counter(self._home)
        for k, home in enumerate(self._home):
            if home is None:
                self._home[k] = min(alive, key=lambda worker: (load[worker], worker))
                load[self._home[k]] += 1

    def _exchange(self, common: bytes, requests: dict[Any, bytes]) -> dict[Any, bytes | None]:
        self._serial += 1
        replies: dict[Any, bytes | None] = {}
        waiting: dict[Any, str] = {}
        try:
            shared = self._place(common, list(requests))
            for worker, request in requests.items():
                task = self._client.submit(
                    _run_on_dask,
                    (self._token, worker),
                    self._serial,
                    self._place(request, [worker]),
                    shared,
                    workers=[worker],
                    allow_other_workers=False,
                    pure=False,
                    retries=0,
                )
                waiting[task] = worker
            while waiting:
                lost = TimeoutError, self._dask.CancelledError
                with self._client.as_current(), suppress(*lost):
                    self._dask.wait(list(waiting), _POLL, return_when="FIRST_COMPLETED")
                ended = [task for task in waiting if task.status != "pending"]
                for task in ended:
                    replies[waiting[task]] = self._fetch(task, waiting[task])
                    del waiting[task]
                if not ended:
                    alive = self._watch()
                    for task in [task for task, worker in waiting.items() if worker not in alive]:
                        task.cancel()
                        replies[waiting.pop(task)] = None
        except OSError:
            self._alive()
            raise
        finally:
            # After Ctrl-C: what they would say now, nobody waits for.
            for task, worker in waiting.items():
                with suppress(Exception):
                    task.cancel()
                self._lose(worker)
        return replies

    def _place(self, message: bytes, workers: list[str]) -> Any:
        """Put a large message on the workers that want it; what they get in its stead."""
        if len(message) > _LARGE:
            with suppress(KeyError, OSError, TimeoutError):  # one of them died just now
                return self._client.scatter(message, workers=workers, broadcast=True, hash=False)
        return message

    def _fetch(self, task: Any, worker: str) -> bytes | None:
        """Take the reply of a task that ended; None if its worker died with it."""
        while True:
            try:
                return task.result(timeout=10)
            except TimeoutError:  # if its worker died just now, Dask waits for another like it
                if worker not in self._alive():
                    return None
            except (self._dask.CancelledError, self._dask.KilledWorker):
                self._alive()
                return None
            except Exception as error:  # before our own function ran: it could not be imported
                return _pickle_error(error)

    def n_alive(self) -> int:
        with suppress(RuntimeError):
            return len(self._alive())
        return 0

    def close(self) -> None:
        opened, self._home = bool(self._home), []
        try:
            if opened and self._client.status == "running":
                with suppress(OSError, KeyError, RuntimeError):
                    if alive := self._alive():  # one that is stuck would not answer
                        self._client.run(_forget, self._token, workers=alive, on_error="ignore")
        finally:
            if self._ours:
                self._client.close()


#: On a worker of Dask: hosts by executor and address, and the last request that each has seen.
_HOSTS: dict[Any, Any] = {}
_SEEN: dict[Any, int] = {}


def _run_on_dask(key: tuple[str, str], serial: int, request: bytes, common: bytes) -> bytes:
    """Answer a request, once: a task that Dask runs again would change its blocks again."""
    if _SEEN.get(key) == serial:
        return dumps(LOST)
    _SEEN[key] = serial
    reply = _reply(_HOSTS, key, request, common)
    if key not in _SEEN:  # the executor was closed in the meantime
        _HOSTS.pop(key, None)
    return reply


def _forget(token: str) -> None:
    for key in [key for key in _SEEN if key[0] == token]:
        _SEEN.pop(key)
        _HOSTS.pop(key, None)
