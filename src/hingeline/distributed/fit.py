"""The fit of a model in blocks: what is refused, parts of the data, and calls to workers."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

from sklearn.base import clone

from hingeline._checks import bind_callbacks, draw_seed, effective_n_jobs, positive, require, warn
from hingeline._jit import announce_compiling
from hingeline.core import registry
from hingeline.core.loop import Limits, Reporter, run
from hingeline.data.formats import detect_format
from hingeline.data.labelled import expand, open_once
from hingeline.data.text import ParseError
from hingeline.distributed.block import UNUSED, Host
from hingeline.distributed.driver import Blocks
from hingeline.distributed.executors import LOST, Calls, Dask, Executor, Processes
from hingeline.distributed.shards import FilePart, choose_C, kind_of, merge_layouts
from hingeline.estimators.base import forget_extras

MANY = 16  # Blocks at most, where nobody says how many.


def train_blocks(model: Any, parts: list[Any], blocks: Any, options: Any, **where: Any) -> None:
    """Fit the model itself, on ``client`` or ``workers``."""
    shard = refuse(model)
    registry.check_options(Blocks, options, "blocks", model.slack, place="options")
    if blocks is None:
        blocks = min(len(parts), MANY)
    positive("blocks", blocks, integer=True)
    # What blocks are sent: no callbacks, whose state stays at the driver, and no number for C.
    C = model.C if isinstance(model.C, str) else 1.0
    bare = copy_bare(model).set_params(solver="sdm", C=C, warm_start=False, verbose=0)
    cuts = [len(parts) * k // blocks for k in range(blocks + 1)]
    seed = draw_seed(model.random_state)
    with announce_compiling(), _open(blocks, **where) as executor:
        executor.open(blocks, Host)
        calls = Calls(executor, blocks, warn)
        told = calls.ask("read", (None, bare), [parts[lo:hi] for lo, hi in pairwise(cuts)])
        calls.blocks = [k for k, one in enumerate(told) if one is not None]
        known, columns = _merge(shard, model, [told[k] for k in calls.blocks])
        vars(model).update({name: v for name, v in known.items() if name.endswith("_")})
        sums = calls.ask("pose", (None, known), columns)
        C = model.C_ = choose_C(model, sums)
        given = dict(options or {})
        facts = calls.ask("begin", (None, C, seed), same="data")
        solver = Blocks(calls, facts, given)
        limits = Limits(
            tol=float(model.tol),
            max_iter=int(model.max_iter),
            max_time=model.max_time,
            callbacks=bind_callbacks(model),
            report=Reporter(type(model).__name__, model.verbose),
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


def copy_bare(estimator: Any) -> Any:
    """A clone without callbacks, which may hold what cannot be copied."""
    given = estimator.get_params(deep=False) | {"callbacks": None}
    return clone(type(estimator)(**given))


def refuse(estimator: Any) -> Any:
    """Refuse what blocks do not solve, in one sentence; the kind of shard for the rest."""
    shard = kind_of(estimator)
    estimator.check_parameters()
    slack, C = estimator.slack, estimator.C
    what = f"solver={estimator.solver!r} does not work in blocks"
    known = estimator.solver in ("auto", "sdm")
    require(known, f"{what}: leave it 'auto', which is 'sdm' in every block.")
    what, names = f"slack={slack!r} cannot be solved in blocks", map(repr, Blocks.slacks)
    require(slack in Blocks.slacks, f"{what}: use {' or '.join(names)}.")
    for name in sorted(UNUSED & {*(estimator.solver_options or ())}):
        raise ValueError(f"solver_options has {name!r}, which blocks do not use: leave it out.")
    what = "scheme='auto' needs all labels together, which blocks do not have"
    named = getattr(estimator, "scheme", None) != "auto"
    require(named, f"{what}: give the scheme by its name, such as scheme='IOB2'.")
    what = "warm_start=True has no effect in blocks, which keep nothing"
    require(not estimator.warm_start, f"{what}: use fit.")
    what = f"C={C!r} cannot be solved in blocks"
    require(C not in ("auto", math.inf), f"{what}: give a finite number, or 'scale'.")
    return shard


def list_parts(source: Any, *how: Any) -> list[Any]:
    """Parts of the source: files, read as ``how`` says from the format on, or as given."""
    if hasattr(source, "to_delayed"):
        source = source.to_delayed()
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if not isinstance(source, Sequence) or isinstance(source, tuple):
        ways = "give names of files, or a list of (X, y)"
        raise TypeError(f"source is a {type(source).__name__}: {ways}.")
    require(len(source), "source is empty: there are no parts.")
    named = [isinstance(part, (str, os.PathLike)) for part in source]
    told = zip(FilePart._fields[1:], how, strict=False)
    given = ", ".join(name for name, value in told if value not in (None, "auto"))
    if not all(named) and given:
        raise TypeError(f"{given} say how files are read, but source has no files.")
    parts: list[Any] = []
    for part, is_name in zip(source, named, strict=True):
        names = expand(os.fspath(part)) if is_name else []
        parts += [FilePart(name, *how) for name in names] or [part]
    if all(named) and parts[0].format == "auto":
        with suppress(OSError, ParseError):  # workers may see files that the driver does not
            first = parts[0].path, detect_format(open_once(parts[0].path))
            return [part._replace(first=first) for part in parts]
    return parts


class _Worker:
    """Does some work for items, instead of a host of blocks."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def call(self, method: str, common: Any, own: Mapping[int, Any]) -> dict[int, Any]:
        return {k: self.work(item) for k, item in own.items()}


def map_over(
    work: Callable[[Any], Any], items: list[Any], tell: Callable[[int, int], None], **where: Any
) -> Iterator[Any]:
    """What ``work`` makes of every item, in order; each worker has one item at a time.

    ``tell`` hears how many are done, and how many workers are alive.
    """
    with _open(len(items), **where) as executor:
        executor.open(len(items), partial(_Worker, work))
        done = 0
        while done < len(items):
            wave = range(done, min(done + max(executor.n_alive(), 1), len(items)))
            found: dict[int, Any] = dict.fromkeys(wave, LOST)
            while left := {k: items[k] for k in wave if found[k] is LOST}:
                found |= executor.call("work", None, left)
            done += len(wave)
            tell(done, executor.n_alive())
            yield from found.values()


def _open(blocks: int, client: Any = None, workers: int | None = None) -> Executor:
    if client is not None:
        require(workers is None, "workers is for processes on this machine: leave it out.")
        return Dask(client)
    if workers is not None:
        positive("workers", workers, integer=True)
    return Processes(min(workers or effective_n_jobs(-1), blocks))


def _merge(shard: Any, model: Any, told: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """What all blocks with examples have in common, and what each has of its own."""
    require(told, "all parts of the source are empty: there is nothing to train on.")
    origins = [one["origin"] for one in told]
    vars(model).pop("metadata_", None)
    if origins[0] is None:
        return shard.merge(model, told)
    require(None not in origins, "some parts are files and others are not: give one kind.")
    layout = merge_layouts(origins)
    known, each = shard.merge(model, told)
    return known | {"metadata_": {"layout": asdict(layout)}}, each
