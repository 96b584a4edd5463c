"""Training on more than one machine, or one process: :func:`fit_blocks`."""

from collections.abc import Sequence
from typing import Any

__all__ = ["fit_blocks"]


def fit_blocks(
    estimator: Any,
    source: Any,
    *,
    client: Any = None,
    workers: int | None = None,
    blocks: int | None = None,
    options: dict[str, Any] | None = None,
    format: str = "auto",
    columns: Sequence[str] | None = None,
    use: Sequence[str] | None = None,
    label: str | None = None,
) -> Any:
    """Train an estimator on data in parts, in processes or on a Dask cluster.

    The optimum and its certificate are those of ``estimator.fit`` on all parts together. Each
    worker reads and encodes its own parts; the driver holds no example. The weights are the same,
    bit for bit, for any number of workers, for processes and Dask, and after the loss of a worker.

    Parameters
    ----------
    estimator : ChainSSVM, MulticlassSSVM, MultilabelSSVM, GraphSSVM or SSVM
        A clone of it is fitted, and its callbacks see the clone. ``solver`` must be ``"auto"`` or
        ``"sdm"``, which blocks run, ``slack`` must be ``"max"`` or ``"squared"``, and C finite. A
        block trains in one thread: ``n_jobs`` is for predictions.
    source : str, or list of str, of (X, y), of delayed objects, or a dask bag
        Names of files in any format that ``hingeline train`` reads, also with ``*`` or ``?``, and
        names such as ``s3://…`` if fsspec is installed; or parts of data, each ``(X, y)`` or
        ``(X, y, sample_weight)`` as ``fit`` takes it. The records of a bag are pairs (x, y).
    client : dask.distributed.Client or str, optional
        A client, or the address of a scheduler. None: processes on this machine.
    workers : int, optional; number of processes without a client; None: one per core
    blocks : int, optional
        Number of blocks to which the parts are dealt, in order. The weights depend on it, but not
        on the number of workers. None: as many as there are parts, 16 at most.
    options : dict, optional
        Of the solver ``"blocks"`` (:class:`hingeline.distributed.driver.Blocks`): ``latency`` and
        ``bandwidth`` of round trips, in seconds and bytes per second, which together with the size
        of the data determine the rounds, or ``pieces``.
    format, columns, use, label : how files are read, as on the command line

    Returns
    -------
    estimator
        A fitted clone, with ``duality_gap_`` and all other attributes; ``history_`` has rounds,
        bytes, and seconds of work and of waiting; ``worker_memory_`` and ``driver_memory_`` are
        peaks in bytes. ``metadata_`` says how files were read: with it, a model file
        (``save(path, metadata=model.metadata_)``) is like one written by ``hingeline train``.
    """
    # Not before it is asked for: workers import the package, and some of them need little of it.
    from hingeline.distributed import fit

    fit.kind_of(estimator)
    model = fit.copy_bare(estimator)
    model.callbacks = estimator.callbacks
    parts = fit.list_parts(source, format, columns, use, label)
    fit.train_blocks(model, parts, blocks, options, client=client, workers=workers)
    return model
