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

    The optimum and its certificate are those of ``estimator.fit`` on all parts together. Parts are
    read and encoded where they are trained on; the driver holds no example. The weights are the
    same bits for any number of workers, for processes and Dask, and after the loss of a worker.

    Parameters
    ----------
    estimator : ChainSSVM, MulticlassSSVM, MultilabelSSVM, GraphSSVM or SSVM
        Not fitted here, but a clone of it, which its callbacks see. ``solver`` must be ``"auto"``
        or ``"sdm"``, which blocks run; ``slack`` is ``"max"`` or ``"squared"``, and C is finite. A
        block trains in one thread: ``n_jobs`` is for predictions.
    source : str, or list of str, of (X, y), of delayed objects, or a dask bag
        Files in any format that ``hingeline train`` reads: names, also with ``*`` or ``?``, or such
        as ``s3://…`` where fsspec is installed; or parts of data, each ``(X, y)`` or
        ``(X, y, sample_weight)`` as ``fit`` takes it. Of a bag, records are pairs (x, y).
    client : dask.distributed.Client or str, optional
        A client, or the address of a scheduler. None: processes on this machine.
    workers : int, optional; processes without a client; None: one a core
    blocks : int, optional
        Blocks that the parts are dealt to, in order. It decides the weights, the number of workers
        does not. None: as many as there are parts, 16 at most.
    options : dict, optional
        Of the solver ``"blocks"`` (:class:`hingeline.distributed.driver.Blocks`): ``latency`` and
        ``bandwidth`` of round trips, in seconds and bytes a second, which with the size of the data
        decide about rounds, or ``pieces``.
    format, columns, use, label : how files are read, as on the command line

    Returns
    -------
    estimator
        A fitted clone, with ``duality_gap_`` and all the rest; ``history_`` has rounds, bytes,
        seconds of work and of waiting, ``worker_memory_`` and ``driver_memory_`` are peaks in
        bytes. ``metadata_`` says how files were read: a model file with it (``save(path,
        metadata=model.metadata_)``) is like one of ``hingeline train``.
    """
    # Not before it is asked for: workers import the package, and some of them need little of it.
    from hingeline.distributed import fit

    fit.kind_of(estimator)
    model = fit.copy_bare(estimator)
    model.callbacks = estimator.callbacks
    parts = fit.list_parts(source, format, columns, use, label)
    fit.train_blocks(model, parts, blocks, options, client=client, workers=workers)
    return model
