"""A multi-class SVM on scikit-learn's digits: use it like LinearSVC, and read its certificate.

Run: python examples/multiclass_digits.py
"""

import time
import warnings

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import LinearSVC

from hingeline import MulticlassSSVM

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0)


def fit_and_certify() -> None:
    """Train, and say how far from the optimum the weights can be at most."""
    MulticlassSSVM(C=0.1, random_state=0).fit(X_train[:50], y_train[:50])  # compile first
    began = time.perf_counter()
    model = MulticlassSSVM(C=0.1, tol=1e-4, random_state=0).fit(X_train, y_train)
    print(f"test accuracy   {model.score(X_test, y_test):.4f}")
    print(f"training        {time.perf_counter() - began:.2f} s, {model.n_iter_} passes")
    print(f"objective       {model.primal_objective_:.6f}")
    print(f"optimum is in   [{model.dual_objective_:.6f}, {model.primal_objective_:.6f}]")
    print(f"certified gap   {model.duality_gap_ / model.primal_objective_:.1e} of the objective")
    print(f"coef_           {model.coef_.shape}, intercept_ {model.intercept_.shape}")


def compare_with_linear_svc() -> None:
    """The same problem in LIBLINEAR, which does not say how close it came."""
    rival = LinearSVC(C=0.1, multi_class="crammer_singer", tol=1e-4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of scikit-learn deprecate the option
        rival.fit(X_train, y_train)
    print(f"LinearSVC       {rival.score(X_test, y_test):.4f} (Crammer and Singer's problem too)")


def search_for_c() -> float:
    """It is a scikit-learn estimator: pipelines and searches work."""
    pipeline = make_pipeline(MinMaxScaler(), MulticlassSSVM(random_state=0))
    grid = {"multiclassssvm__C": [0.001, 0.01, 0.1, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=4).fit(X_train, y_train)
    for c, score in zip(
        grid["multiclassssvm__C"], search.cv_results_["mean_test_score"], strict=True
    ):
        print(f"C = {c:<11g} cross-validated accuracy {score:.4f}")
    print(f"best            {search.best_params_}, test {search.score(X_test, y_test):.4f}")
    return float(search.best_params_["multiclassssvm__C"])


def costly_mistakes(c: float) -> None:
    """A cost matrix: taking an 8 for a 1 costs five times as much. Accuracy pays for it."""
    cost = [[float(true != predicted) for predicted in range(10)] for true in range(10)]
    cost[8][1] = 5.0
    for name, loss in (("zero-one loss", "zero_one"), ("cost matrix", cost)):
        model = MulticlassSSVM(C=c, loss=loss, random_state=0).fit(X_train, y_train)
        confused = int(((y_test == 8) & (model.predict(X_test) == 1)).sum())
        accuracy = model.score(X_test, y_test)
        print(f"{name:15s} 8 taken for 1: {confused} times, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    fit_and_certify()
    compare_with_linear_svc()
    costly_mistakes(search_for_c())
