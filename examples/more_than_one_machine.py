"""
More than one machine: training in blocks
=========================================

If one process cannot hold the data, cut them into parts. Workers, which are processes or belong to
a Dask cluster, each read and train on their own parts. The certificate covers all parts together.
"""

# %%
# Make four parts of the notes that come with the library. On a cluster, you would pass names of
# files, such as ``"part-*.conll.gz"``. Workers import this file, so the code that trains is below
# ``if __name__ == "__main__":``.

from contextlib import ExitStack
from importlib.util import find_spec

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.distributed import fit_blocks

notes = load_notes()
parts = [(notes.X_train[k : k + 40], notes.y_train[k : k + 40]) for k in range(0, 160, 40)]
tagger = ChainSSVM(C=0.3, tol=0.05, random_state=0)

# %%
# Use two workers: those of a Dask cluster on this machine, or processes if Dask is not installed.
# The weights do not depend on the number of workers, not even in the last bit. They do depend on
# the number of blocks, which decides which sentences see each other's steps at once.


def train(n_blocks: tuple[int, ...]) -> list[ChainSSVM]:
    """Train once for each number of blocks."""
    with ExitStack() as stack:
        where: dict[str, object] = {"workers": 2}
        if find_spec("distributed"):
            from distributed import Client, LocalCluster

            # Threads instead of processes, for building this page; omit processes=False in yours.
            cluster = LocalCluster(2, processes=False, threads_per_worker=1, dashboard_address=None)
            stack.enter_context(cluster)
            where = {"client": stack.enter_context(Client(cluster))}
        return [fit_blocks(tagger, parts, blocks=n, **where) for n in n_blocks]


# %%
# The gap is certified over all sentences, whatever the number of blocks. More blocks take more
# rounds, each with less work for a worker.

if __name__ == "__main__":
    models = train((1, 2, 4))
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for n, model in zip((1, 2, 4), models, strict=True):
        rows = [row for row in model.history_ if row.gap == row.gap]
        gaps = [100 * row.relative_gap for row in rows]
        axes.plot([row.rounds for row in rows], gaps, marker="o", label=f"{n}")
        print(
            f"blocks: {n}, {rows[-1].rounds:.0f} rounds, {rows[-1].bytes / 1e6:.1f} MB, gap "
            f"{gaps[-1]:.2f} %, {100 * model.score(notes.X_test, notes.y_test):.1f} % right"
        )
    axes.set(xlabel="rounds", ylabel="certified gap, %", yscale="log")
    axes.legend(title="blocks", frameon=False)
    plt.show()
