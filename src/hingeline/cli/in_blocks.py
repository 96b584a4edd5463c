"""Commands on many files: blocks of them in processes of this machine, or on a Dask cluster."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from hingeline._checks import require
from hingeline.cli import files
from hingeline.core.loop import Reporter
from hingeline.data.labelled import Layout

#: Options of ``train`` that blocks have no use for, and what to do instead.
_REFUSED = {
    "grid": "train once for every C",
    "cv": "leave it out, or train on one machine",
    "cv_output": "leave it out, or train on one machine",
    "keep_state": "train again to add data",
}


def check_options(names: dict[str, Any], workers: str) -> dict[str, Any]:
    """Refuse options that do not work with --workers; the arguments that say where blocks live."""
    for name, remedy in _REFUSED.items():
        if name in names:
            what = f"--{name.replace('_', '-')} does not work with --workers"
            raise ValueError(f"{what}: {remedy}.")
    require("-" not in names["data"], "--workers cannot read the standard input: name files.")
    if workers.isdecimal() and int(workers):
        return {"workers": int(workers)}
    what = "must be a number of processes, or the address of a Dask scheduler"
    require(":" in workers, f"--workers: {what} (tcp://host:8786), got {workers!r}.")
    return {"client": workers}


def check_estimator(estimator: Any) -> None:
    """Refuse parameters that do not work in blocks, before anything is read."""
    from hingeline.distributed.fit import refuse

    try:
        refuse(estimator)
    except TypeError as error:  # not of blocks at all
        raise ValueError(f"--workers: {error}") from None


@contextmanager
def blame_workers() -> Iterator[None]:
    """One sentence where there is no worker, or no Dask."""
    from hingeline.distributed.executors import WorkersLost

    try:
        yield
    except (WorkersLost, ImportError) as error:
        raise ValueError(f"--workers: {error}") from None


def learn(
    model: Any,
    names: list[str],
    reading: tuple[Any, ...],
    where: dict[str, Any],
    blocks: int | None,
) -> None:
    """Train in blocks; ``reading`` is format, columns, use and label."""
    from hingeline.distributed.fit import list_parts, train_blocks

    with blame_workers():
        train_blocks(model, list_parts(names, *reading), blocks, None, **where)


def layout_of(model: Any) -> Layout:
    """Where inputs and labels are in the files of a model that was trained in blocks."""
    return Layout(**model.metadata_["layout"])


def read_held_out(model: Any, path: str | None) -> Any:
    """The file of ``--dev`` for a model that is being trained in blocks."""
    named = getattr(model, "encoder_", None) is not None
    return files.read_held_out(path, layout_of(model), None if named else model.n_features_in_)


class _Host:
    """Does a command's work for files, on a worker."""

    def __init__(self, work: Callable[[str], Any]) -> None:
        self.work = work

    def call(self, method: str, common: Any, own: Mapping[int, str]) -> dict[int, Any]:
        return {k: self.work(name) for k, name in own.items()}


def map_files(
    work: Callable[[str], Any], names: list[str], workers: str | None, reporter: Reporter
) -> Iterator[Any]:
    """What ``work`` makes of every file, in order; each worker has one file at a time."""
    if workers is None:
        yield from map(work, names)
        return
    from hingeline.distributed.executors import LOST, Dask, Executor, Processes

    where = check_options({"data": names}, workers)
    with blame_workers():
        n = min(where.get("workers", 1), len(names))
        executor: Executor = Dask(where["client"]) if "client" in where else Processes(n)
        with executor:
            executor.open(len(names), partial(_Host, work))
            done = 0
            while done < len(names):
                wave = range(done, min(done + max(executor.n_alive(), 1), len(names)))
                found: dict[int, Any] = dict.fromkeys(wave, LOST)
                while left := {k: names[k] for k in wave if found[k] is LOST}:
                    found |= executor.call("work", None, left)
                done += len(wave)
                reporter.state = f"{done} of {len(names)} files, {executor.n_alive()} workers"
                yield from found.values()
