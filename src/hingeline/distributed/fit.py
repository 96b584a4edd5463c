"""Train on more than one machine, or one process: the call that does it."""

import glob
import math
import os
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from sklearn.utils import check_random_state

from hingeline._checks import as_callbacks, positive, require, warn
from hingeline._jit import announce_compiling
from hingeline.core import registry
from hingeline.core.loop import Limits, Reporter, run
from hingeline.distributed.block import LOCAL_OPTIONS, Host
from hingeline.distributed.driver import Blocks
from hingeline.distributed.executors import LOST, Dask, Executor, Processes
from hingeline.distributed.shards import FilePart, choose_C, kind_of
from hingeline.estimators.base import forget_extras

MANY = 16  # Blocks at most, where nobody says how many.


def fit_blocks(
    estimator: Any,
    source: Any,
    *,
    client: Any = None,
    workers: int | None = None,
    blocks: int | None = None,
    options: dict[str, Any] | None = None,
    **reading: Any,
) -> Any:
    """Train an estimator on data in parts, in processes or on a Dask cluster.

    The optimum and its certificate are those of ``estimator.fit`` on all parts together. Parts are
    read and encoded where they are trained on; the driver holds no example. The weights are the
    same bits for any number of workers, for processes and Dask, and after the loss of a worker.

    Parameters
    ----------
    estimator : ChainSSVM, MulticlassSSVM or MultilabelSSVM
        Not fitted here, but a clone of it. ``solver`` must be ``"auto"`` or ``"sdm"``, which
        blocks run; ``slack`` is ``"max"`` or ``"squared"``, and C is finite. A block trains in one
        thread: ``n_jobs`` is for predictions.
    source : str, or list of str, of (X, y), of delayed objects, or a dask bag
        Files in any format that ``hingeline train`` reads, the name with ``*`` or ``?``, or names;
        or parts of data, each ``(X, y)`` as ``fit`` takes it. Of a bag, records are pairs (x, y).
    client : dask.distributed.Client or str, optional
        A client, or the address of a scheduler. None: processes on this machine.
    workers : int, optional; processes without a client; None: one a core
    blocks : int, optional
        Blocks that the parts are dealt to, in order. It decides the weights, the number of workers
        does not. None: as many as there are parts, 16 at most.
    options : dict, optional
        Of the solver ``"blocks"`` (:class:`hingeline.distributed.driver.Blocks`): ``combine``
        ("master", "line", "average", "add"), ``keep`` and ``share``.
    **reading
        How files are read: ``format``, ``columns``, ``use`` and ``label``, as on the command line.

    Returns
    -------
    estimator
        A fitted clone, with ``duality_gap_`` and all the rest; ``history_`` has rounds, bytes,
        seconds of work and of waiting, ``worker_memory_`` and ``driver_memory_`` are peaks in
        bytes.
    """
    shard = kind_of(estimator)
    _refuse(estimator)
    registry.check_options(Blocks, options, "blocks", estimator.slack)
    parts = _list_parts(source, reading)
    if blocks is None:
        blocks = min(len(parts), MANY)
    positive("blocks", blocks, integer=True)
    model, bare = clone(estimator), clone(estimator)
    # What blocks are sent: no callbacks, whose state stays at the driver, and no C of their own.
    bare.set_params(solver="sdm", callbacks=None, C=1.0, warm_start=False, verbose=0)
    cuts = [len(parts) * k // blocks for k in range(blocks + 1)]
    own = {k: (parts[cuts[k] : cuts[k + 1]],) for k in range(blocks)}
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    reporter = Reporter(type(model).__name__, model.verbose)
    with announce_compiling(), _open(client, workers, blocks) as executor:
        executor.open(blocks, Host)
        told = _ask(executor, "read", (bare,), own)
        known, columns = _merge(shard, model, told)
        vars(model).update({name: v for name, v in known.items() if name.endswith("_")})
        posed = {k: (columns[k],) for k in range(blocks)}
        sums = _ask(executor, "pose", (known,), posed)
        C = model.C_ = choose_C(model, sums)
        given = dict(options or {})
        keep = Blocks.Options(**given).keep if given.get("combine", "master") == "master" else 1
        start = (C, seed, keep)
        facts = _ask(executor, "begin", start, dict.fromkeys(range(blocks), ()))

        def rebuild(lost: list[int]) -> None:
            """Blocks on a new worker, as they were before the first round."""
            while True:
                steps: list[tuple[str, tuple[Any, ...], dict[int, Any]]] = [
                    ("read", (bare,), own),
                    ("pose", (known,), posed),
                    ("begin", start, dict.fromkeys(lost, ())),
                ]
                for method, common, each in steps:
                    mine = {k: each[k] for k in lost}
                    found = executor.call(method, (None, *common), mine)
                    if any(answer is LOST for answer in found.values()):
                        break
                else:
                    for k, (fact, _) in found.items():
                        text = f"the parts of block {k} have changed since the training began"
                        require(fact["data"] == facts[k]["data"], f"{text}: start again.")
                    return

        solver = Blocks(executor, rebuild, facts, given, warn)
        limits = Limits(
            tol=float(model.tol),
            max_iter=int(model.max_iter),
            max_time=model.max_time,
            callbacks=as_callbacks(model.callbacks),
            report=reporter,
            name=type(model).__name__,
            identity=lambda: {
                "blocks": blocks,
                "data": [fact["data"] for fact in facts],
                "C": repr(C),
                "formulation": f"{model.slack} slack, {model.rescale} rescaling",
                "options": repr(sorted(given.items())),
                "tol": repr(float(model.tol)),
                "random_state": seed,
            },
        )
        forget_extras(model)
        model._store(run(solver, limits))
        model.C_ = C
    return model


def _refuse(estimator: Any) -> None:
    """Refuse what blocks do not solve, in one sentence."""
    estimator.check_parameters()
    if estimator.solver not in ("auto", "sdm"):
        what = f"solver={estimator.solver!r} does not work in blocks"
        raise ValueError(f"{what}: leave it 'auto', which is 'sdm' in every block.")
    if estimator.slack not in Blocks.slacks:
        what = f"slack={estimator.slack!r} cannot be solved in blocks"
        raise ValueError(f"{what}: use {' or '.join(map(repr, Blocks.slacks))}.")
    for name in sorted({*LOCAL_OPTIONS} & {*(estimator.solver_options or ())}):
        raise ValueError(f"solver_options has {name!r}, which blocks do not use: leave it out.")
    if estimator.warm_start:
        raise ValueError("warm_start=True has no effect in blocks, which keep nothing: use fit.")
    if estimator.C == "auto" or math.inf == estimator.C:
        what = f"C={estimator.C!r} cannot be solved in blocks"
        raise ValueError(f"{what}: give a finite number.")


def _list_parts(source: Any, reading: dict[str, Any]) -> list[Any]:
    """Parts of the source: names of files, pairs (X, y), or what computes them."""
    if hasattr(source, "to_delayed"):
        source = source.to_delayed()
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        source = [name]
        if glob.has_magic(name):
            source = sorted(glob.glob(name))
            require(source, f"no file is called {name}: check the pattern.")
    if not isinstance(source, Sequence) or isinstance(source, tuple):
        what = f"source is a {type(source).__name__}"
        raise TypeError(f"{what}: give names of files, or a list of (X, y).")
    require(len(source), "source is empty: there are no parts.")
    how = tuple(sorted(reading.items()))
    named = [isinstance(part, (str, os.PathLike)) for part in source]
    if not all(named) and reading:
        raise TypeError(f"{', '.join(reading)} say how files are read, and source has no files.")
    return [
        FilePart(os.fspath(part), how) if is_name else part
        for part, is_name in zip(source, named, strict=True)
    ]


def _open(client: Any, workers: int | None, blocks: int) -> Executor:
    if client is not None:
        require(workers is None, "workers is for processes on this machine: leave it out.")
        return Dask(client)
    if workers is not None:
        positive("workers", workers, integer=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Processes(min(workers or cores or 1, blocks))


def _ask(executor: Executor, method: str, common: tuple[Any, ...], own: dict[int, Any]) -> Any:
    """Before training: a lost block is asked again, as it has done nothing yet."""
    answers: dict[int, Any] = {}
    left = own
    while left:
        found = executor.call(method, (None, *common), left)
        answers |= {k: answer[0] for k, answer in found.items() if answer is not LOST}
        left = {k: own[k] for k, answer in found.items() if answer is LOST}
        if left and method != "read":
            raise RuntimeError("a worker was lost while blocks were prepared: start again.")
    return [answers[k] for k in sorted(answers)]


def _merge(shard: Any, model: Any, told: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """What all blocks have in common, and each block's own; empty ones have nothing."""
    full = [k for k, one in enumerate(told) if one is not None]
    require(full, "all parts of the source are empty: there is nothing to train on.")
    known, each = shard.merge(model, [told[k] for k in full])
    own: list[Any] = [None] * len(told)
    for k, columns in zip(full, each, strict=True):
        own[k] = columns
    return known, own
