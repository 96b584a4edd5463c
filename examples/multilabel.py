"""Sets of labels: what scoring pairs of labels adds, and which labels go together.

Run: python examples/multilabel.py [--picture FILE.png]
"""

import argparse
import time

import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import train_test_split

from hingeline import MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Documents with topics; two further labels follow from the topics, not from the words."""
    X, Y = make_multilabel_classification(
        n_samples=1200, n_features=40, n_classes=6, n_labels=2, length=60, random_state=0
    )
    either = Y[:, 0] ^ Y[:, 1]  # just one of the two: no sum of word weights says so
    both = Y[:, 2] & Y[:, 3]
    return X / 10.0, np.column_stack([Y, either, both])


def main() -> None:
    """Train with all pairs of labels, with a tree of pairs, and without any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", help="write the affinities of labels here (.png or .svg)")
    options = parser.parse_args()
    X, Y = make_data()
    X_train, X_test, Y_train, Y_test = train_test_split(X, Y, test_size=0.5, random_state=0)
    print("edges     Hamming  example-F1  whole sets   gap      seconds")
    for edges in ("none", "tree", "full"):
        began = time.perf_counter()
        model = MultilabelSSVM(C=0.3, edges=edges, random_state=0).fit(X_train, Y_train)
        seconds = time.perf_counter() - began
        scores = multilabel_scores(Y_test, model.predict(X_test))
        gap = model.duality_gap_ / model.primal_objective_
        print(
            f"{edges:8s}  {scores.hamming_loss:.4f}   {scores.example_f1:.4f}      "
            f"{scores.subset_accuracy:.4f}       {100 * gap:.2f} %   {seconds:.2f}"
        )
    found = model.certify(X_test)
    print(f"best sets proven for {np.mean(found.exact):.0%} of the test examples")
    if options.picture:
        from hingeline.report import label_affinities, plot_affinities

        names = [*(f"topic {k}" for k in range(6)), "0 or 1, not both", "2 and 3"]
        plot_affinities(label_affinities(model), names, path=options.picture)
        print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
