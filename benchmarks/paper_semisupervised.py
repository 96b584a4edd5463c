"""Semi-supervised structural SVMs with constraints, beside the numbers of their paper.

`--part citations`: table 2. 5, 20 or 300 labelled citations, 1,000 unlabelled, 100 for
development, 100 for testing, five random partitions of the 500 labelled ones (numpy's
``default_rng(seed).permutation``, seeds 0 to 4) and, as ``published``, the split of
constraint-driven learning. Test citations are not used in training. C is chosen on the development
data for the supervised models, and the others take it from there; DASO and posterior regularisation
have a fixed one (`semisupervised_tasks.py`).
Log-linear models predict the most probable label of every token, which suits the measure; the most
probable labelling is given as ``test_viterbi``. `--features`: citations with features of
neighbours, in result files of their own. `--costs scale`: every structural SVM with its default
parameters, in result files of their own, too. `trans-learned`: with the weights that ours learns;
`trans-default`: with its default C_u and rounds.
`--part umass`: the same for another collection of citations, of which 1,000 lose their labels.
`--part seminars`: announcements of seminars in place of the paper's apartments, token F1 by field.
`--part features`, `--part annealed`: sets of features, and settings of DASO, on the development
data of citations, without a look at test scores.
`--part daso`: from the result files of `daso-searched`, the features that are better on each run's
development data.
`--part figures`: objective and accuracy against C_u, as figures 1 and 2, from the result files.

Results are written after every run and `--resume` goes on from there. Of ours three choices of the
annealing step are given: the one that needs no labels, which is the default and counts; the best on
the development data; and the best on test, as the paper does and nobody else can. A fourth column
has the constraints at prediction, too, which is the default, at the default step, and
`test_constrained_dev` at the step whose predictions under constraints are best on dev.
"printed" is the method as printed: its start, its C_u and its limit of switches, and weights of
1000; best step on the development data.
Token scores are in per cent; `segments` is the F1 of whole segments.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from harness import (
    Timing,
    argument_parser,
    console,
    entry_point,
    kept_rows,
    print_table,
    result_path,
    timed,
    write_results,
)
from hingeline import ChainCRF
from hingeline.semisupervised.annealing import choose_by_violations
from hingeline.semisupervised.estimator import label_under
from semisupervised_tasks import (
    AS_PRINTED,
    FEATURES,
    Annealed,
    Part,
    Run,
    accuracy,
    annealed,
    baseline,
    citations,
    crf,
    field_f1,
    segment_f1,
    semi_supervised,
    seminars,
    ssvm,
    umass,
)

SYSTEMS = ("sdm", "ours", "printed", "crf", "codl", "trans", "trans-default", "trans-learned",
           "pr", "daso", "daso-searched")  # fmt: skip
SIZES = {"citations": (5, 20, 300), "umass": (5, 10, 20), "seminars": (5, 25)}
#: Table 2: baseline CRF and SDM, DASO, SSVM-SDM, PR, CODL, Trans-SSVM.
PAPER = {
    5: {"crf": 63.1, "sdm": 66.82, "daso": 75.2, "ours": 74.74, "pr": 62.7, "codl": 71.0,
        "trans": 72.8},
    20: {"crf": 79.1, "sdm": 78.25, "daso": 84.9, "ours": 86.2, "pr": 76.0, "codl": 79.4,
         "trans": 81.4},
    300: {"crf": 89.9, "sdm": 91.54, "daso": 91.1, "ours": 92.92, "pr": 87.29, "codl": 88.8,
          "trans": 92.8},
}  # fmt: skip
COSTS = (0.1, 1.0)
CRF_COSTS = (0.3, 1.0, 3.0, 10.0)
KEYS = {"citations": "accuracy", "umass": "accuracy", "seminars": "mean"}
Row = dict[str, Any]


def measured(part: str, given: Any, predicted: Any) -> dict[str, float]:
    """Accuracy, F1 of segments and, of announcements, F1 by field."""
    found = {"accuracy": accuracy(given, predicted), "segments": segment_f1(given, predicted)}
    if part == "seminars":
        found |= field_f1(given, predicted)
    return found


def scores(data: Part, part: str, model: Any) -> dict[str, float]:
    """Scores of a model's best labelling, or of the most probable labels of a log-linear one."""
    if isinstance(model, ChainCRF):
        found = model.predict_marginals(data.features)
        predicted: Any = [model.classes_[p.argmax(axis=1)] for p in found]
    else:
        predicted = model.predict(data.features)
    return measured(part, data.labels, predicted)


def models_of(baseline: Any) -> list[Any]:
    """The model of every round of a baseline."""
    return [baseline.base_.with_weights(weights) for weights in baseline.round_weights_]


def best_of(run: Run, part: str, models: Any) -> tuple[int, float]:
    """Number and score of the best model on the development data."""
    found = [scores(run.dev, part, model)[KEYS[part]] for model in models]
    best = max(range(len(found)), key=found.__getitem__)
    return best, found[best]


def of_test(run: Run, part: str, model: Any) -> Row:
    """Scores on the test part, and of a log-linear model also those of its best labelling."""
    row = {"test": scores(run.test, part, model)}
    if isinstance(model, ChainCRF):
        labels = model.predict(run.test.features)
        row["test_viterbi"] = measured(part, run.test.labels, labels)
    return row


def supervised(run: Run, part: str, system: str, costs: Any, n_jobs: int) -> Row:
    """The supervised model with the best C on the development data."""
    make = ssvm if system == "sdm" else crf
    models = [make(C, n_jobs).fit(run.train.features, run.train.labels) for C in costs]
    best, dev = best_of(run, part, models)
    return {"C": costs[best], "dev": dev, "C_tried": list(costs)} | of_test(run, part, models[best])


def ours(run: Run, part: str, C: Any, n_jobs: int, options: dict[str, Any]) -> Row:
    """The annealing path and its three choices."""
    model, seconds = timed(semi_supervised, run, C, n_jobs, **options)
    key = KEYS[part]
    models = model.step_models_
    path = [scores(run.test, part, m) for m in models]
    devs = [scores(run.dev, part, m)[key] for m in models]
    free = choose_by_violations(model.steps_)
    chosen = max(range(len(path)), key=devs.__getitem__)
    best = max(range(len(path)), key=lambda k: path[k][key])

    def under_rules(data: Part, k: int) -> dict[str, float]:
        labels = label_under(models[k], model.constraints_, data.features, words=data.words)
        return measured(part, data.labels, labels)

    devs_under = [under_rules(run.dev, k)[key] for k in range(len(models))]
    chosen_under = max(range(len(path)), key=devs_under.__getitem__)
    return {
        "C": C,
        "fit_cpu_seconds": seconds.cpu,
        "dev": devs[chosen],
        "test": path[chosen] if options else path[free],
        "test_dev": path[chosen],
        "test_constrained": under_rules(run.test, free),
        "test_constrained_dev": under_rules(run.test, chosen_under),
        "test_best": path[best],
        "C_u": {"dev": model.steps_[chosen].C_u, "label_free": model.steps_[free].C_u,
                "best": model.steps_[best].C_u},
        "steps": [
            {"C_u": s.C_u, "objective": s.objective, "penalty": s.penalty if k else None,
             "dev": devs[k], "test": path[k][key], "segments": path[k]["segments"],
             "violations": s.violations, "alternations": s.alternations,
             "switches": s.switches, "seconds": s.time}
            for k, s in enumerate(model.steps_)
        ],
    }  # fmt: skip


def compared(run: Run, part: str, system: str, C: Any, n_jobs: int) -> Row:
    """A baseline, its best round on the development data, and its last one, without labels."""
    model, seconds = timed(baseline, run, system, C, n_jobs)
    models = models_of(model)
    best, dev = best_of(run, part, models)
    row = {"C": model.base_.C, "dev": dev, "round": best, "rounds": len(models)}
    row |= {"fit_cpu_seconds": seconds.cpu, "test_last": scores(run.test, part, models[-1])}
    if system.startswith("trans"):
        labels = label_under(models[-1], model.constraints, run.test.features, words=run.test.words)
        row["test_constrained"] = measured(part, run.test.labels, labels)
    return row | of_test(run, part, models[best])


#: The three best settings of the search on the development data of partition 0.
SEARCHED = ("corpus, C 30, hot", "corpus, C 10, hot", "corpus, C 30, hot, heavier")


def searched(run: Run, part: str, n_jobs: int) -> Row:
    """DASO as the search found it, its best setting and round on the run's development data."""
    tried = {name: models_of(annealed(run, ANNEALED[name], n_jobs)) for name in SEARCHED}
    found = {name: best_of(run, part, models) for name, models in tried.items()}
    setting = max(SEARCHED, key=lambda name: found[name][1])
    best, dev = found[setting]
    row = {"setting": setting, "C": tried[setting][best].C, "dev": dev, "round": best}
    row["dev_tried"] = {name: score for name, (_, score) in found.items()}
    return row | of_test(run, part, tried[setting][best])


def measure(part: str, options: argparse.Namespace) -> list[Row]:
    """All runs that are asked for and not there yet."""
    other = part == "citations" and options.features != "plain"
    name = f"few_labels_{part}" + f"_{options.features.replace(' ', '_')}" * other
    name += "_default" * (options.costs == ["scale"])
    rows: list[Row] = kept_rows(name, quick=options.quick) if options.resume else []
    done = {(row["labelled"], row["partition"], row["system"]): row for row in rows}
    names = ["published"] if options.published else options.partitions
    for partition, size in product(names, options.sizes or SIZES[part]):
        make = {"seminars": seminars, "umass": umass}.get(
            part, partial(citations, features=options.features)
        )
        wanted = [s for s in options.systems if (size, str(partition), s) not in done]
        if wanted:
            run = make(size, partition)
            for system in wanted:
                row, seconds = _run_one(run, part, system, size, done, options)
                row = {"labelled": size, "partition": run.name, "system": system} | row
                row |= {"seconds": seconds.wall, "cpu_seconds": seconds.cpu}
                console.print(
                    f"{size} labelled, partition {run.name}, {system}: "
                    f"dev {row['dev']:.2f} test {row['test'][KEYS[part]]:.2f} "
                    f"({seconds.wall:.0f} s, CPU {seconds.cpu:.0f} s)"
                )
                done[size, run.name, system] = row
                rows.append(row)
                write_results(name, rows, quick=options.quick)
    return rows


#: What DASO was tried with, from one setting on which the others change a thing.
ANNEALED = {
    "as run": Annealed(),
    "corpus": Annealed(rules="corpus"),
    "learned": Annealed(rules="learned"),
    "C 1": Annealed(C=1.0, weights=(1.0,)),
    "C 3": Annealed(C=3.0, weights=(0.3,)),
    "C 30": Annealed(C=30.0, weights=(0.03,)),
    "C 100": Annealed(C=100.0, weights=(0.01,)),
    "weight 0.03": Annealed(weights=(0.03,)),
    "weight 0.3": Annealed(weights=(0.3,)),
    "weight 1": Annealed(weights=(1.0,)),
    "4 rounds": Annealed(rounds=4),
    "falling": Annealed(10.0, (1.0, 0.5, 0.2), (0.03, 0.1, 0.3)),
    "corpus, falling": Annealed(10.0, (1.0, 0.5, 0.2), (0.03, 0.1, 0.3), "corpus"),
    "corpus, C 30": Annealed(C=30.0, weights=(0.03,), rules="corpus"),
    "corpus, C 30, weight 0.1": Annealed(C=30.0, rules="corpus"),
    "corpus, C 100, weight 0.03": Annealed(C=100.0, weights=(0.03,), rules="corpus"),
    "corpus, C 30, 3 rounds": Annealed(C=30.0, rules="corpus", rounds=3),
    "corpus, C 30, hot": Annealed(30.0, (2.0, 1.0), (0.03, 0.1), "corpus"),
    "corpus, C 30, warm": Annealed(30.0, (1.5, 1.0), (0.03, 0.1), "corpus"),
    "corpus, C 30, in three": Annealed(30.0, (2.0, 1.4, 1.0), (0.03, 0.06, 0.1), "corpus"),
    "corpus, C 30, hotter": Annealed(30.0, (4.0, 2.0, 1.0), (0.01, 0.03, 0.1), "corpus"),
    "corpus, C 30, hot, heavier": Annealed(30.0, (2.0, 1.0), (0.1, 0.3), "corpus"),
    "corpus, C 30, slow": Annealed(30.0, (3.0, 2.0, 1.4, 1.0), (0.03, 0.05, 0.07, 0.1), "corpus"),
    "corpus, C 10, hot": Annealed(10.0, (2.0, 1.0), (0.1, 0.3), "corpus"),
    "learned, C 3": Annealed(C=3.0, weights=(0.3,), rules="learned"),
    "learned, C 30": Annealed(C=30.0, weights=(0.03,), rules="learned"),
    "learned, weight 0.03": Annealed(weights=(0.03,), rules="learned"),
    "learned, weight 0.3": Annealed(weights=(0.3,), rules="learned"),
    "learned, weight 1": Annealed(weights=(1.0,), rules="learned"),
    "learned, falling": Annealed(10.0, (1.0, 0.5, 0.2), (0.03, 0.1, 0.3), "learned"),
    "learned, 4 rounds": Annealed(rules="learned", rounds=4),
    "hot": Annealed(10.0, (4.0, 2.0, 1.0, 0.5), (0.003, 0.01, 0.03, 0.1)),
}


def search(options: argparse.Namespace) -> None:
    """Sets of features, or settings of DASO, on the development data; nothing is tested."""
    of_features = options.part == "features"
    name = f"few_labels_search_{options.part}"
    rows: list[Row] = kept_rows(name, quick=options.quick) if options.resume else []
    done = {(row["setting"], row["features"], row["labelled"], row["partition"]) for row in rows}
    known = [n for n in FEATURES if n != "seminars"] if of_features else list(ANNEALED)
    sizes = options.sizes or [20]
    for setting, size, seed in product(options.settings or known, sizes, options.partitions):
        features = setting if of_features else options.features
        if (setting, features, size, seed) in done:
            continue
        run = citations(size, seed, features)
        row: Row = {"setting": setting, "features": features, "labelled": size, "partition": seed}
        if of_features:
            models = [ssvm(C, options.n_jobs).fit(*run.train.pair) for C in options.costs]
            best, row["supervised"] = best_of(run, "citations", models)
            model, seconds = timed(semi_supervised, run, options.costs[best], options.n_jobs)
            models = model.step_models_
        else:
            model, seconds = timed(annealed, run, ANNEALED[setting], options.n_jobs)
            models = models_of(model)
            row["settings"] = ANNEALED[setting]._asdict()
            mean = np.mean([m.weights_ for m in models[1:]], axis=0)
            row["mean_of_rounds"] = scores(run.dev, "citations", models[0].with_weights(mean))[
                "accuracy"
            ]
        row["rounds"] = [scores(run.dev, "citations", m)["accuracy"] for m in models]
        row |= {"dev": max(row["rounds"]), "cpu_seconds": seconds.cpu}
        console.print(f"{setting}, {size} labelled, partition {seed}: {row['dev']:.2f}")
        rows.append(row)
        write_results(name, rows, quick=options.quick)
    lines = []
    names = dict.fromkeys((row["setting"], row["features"]) for row in rows)
    for (setting, features), size in product(names, sizes):
        kind = setting, features, size
        mine = [r for r in rows if (r["setting"], r["features"], r["labelled"]) == kind]
        if mine:
            first = statistics.mean(r.get("supervised", r["rounds"][0]) for r in mine)
            best = statistics.mean(r["dev"] for r in mine)
            lines.append(
                [f"{setting}: {features}", str(size), f"{first:.2f}", f"{best:.2f}", str(len(mine))]
            )
    columns = ("setting", "labelled", "supervised", "dev", "partitions")
    print_table("development accuracy", columns, lines)


def _run_one(
    run: Run, part: str, system: str, size: int, done: Any, options: argparse.Namespace
) -> tuple[Row, Timing]:
    if system in ("sdm", "crf"):
        costs = CRF_COSTS if system == "crf" else options.costs
        return timed(supervised, run, part, system, costs, options.n_jobs)
    if system == "daso-searched":
        return timed(searched, run, part, options.n_jobs)
    known = done.get((size, run.name, "sdm"))
    C = known["C"] if known else options.costs[-1]
    if system in ("ours", "printed"):
        given: dict[str, Any] = dict(AS_PRINTED) if system == "printed" else {}
        if system == "ours" and options.schedule:
            given["C_u"] = options.schedule
        return timed(ours, run, part, C, options.n_jobs, given)
    return timed(compared, run, part, system, C, options.n_jobs)


def tables(part: str, rows: list[Row]) -> None:
    """Means over partitions, beside the paper's numbers."""
    key = KEYS[part]
    ways = {
        "ours": ["test", "test_dev", "test_best", "test_constrained", "test_constrained_dev"],
        "printed": ["test"],
    }
    ways |= {name: ["test", "test_viterbi"] for name in ("crf", "pr", "daso", "daso-searched")}
    trans = ["test", "test_last", "test_constrained"]
    ways |= {name: trans for name in SYSTEMS if name.startswith("trans")}
    lines = []
    for size in sorted({row["labelled"] for row in rows}):
        for system in SYSTEMS:
            mine = [
                row
                for row in rows
                if row["labelled"] == size
                and row["system"] == system
                and row["partition"] != "published"
            ]
            for way in ways.get(system, ["test"]):
                found = [row[way] for row in mine if way in row]
                if not found:
                    continue
                values = [one[key] for one in found]
                segments = [one.get("segments", float("nan")) for one in found]
                times = [row.get("fit_cpu_seconds", row["cpu_seconds"]) for row in mine]
                spread = statistics.stdev(values) if len(values) > 1 else float("nan")
                paper = (
                    PAPER.get(size, {}).get(system.removesuffix("-searched"))
                    if part == "citations"
                    else None
                )
                lines.append(
                    [
                        f"{size} {system} {way.removeprefix('test').strip('_')}",
                        f"{statistics.mean(values):.2f}",
                        f"{spread:.2f}",
                        f"{statistics.mean(segments):.2f}",
                        str(len(values)),
                        "" if paper is None else f"{paper:.2f}",
                        f"{statistics.median(times):.1f}",
                    ]
                )
    columns = ("system", key, "deviation", "segment F1", "partitions", "paper", "CPU s")
    print_table(f"{part}: test {key} in per cent", columns, lines)


def better_features(quick: bool) -> None:
    """DASO on two sets of features: every run takes the better one on its development data."""
    runs: dict[tuple[int, str], list[Row]] = {}
    for features in ("wide_shapes", "wider_shapes"):
        for row in kept_rows(f"few_labels_citations_{features}", quick=quick):
            runs.setdefault((row["labelled"], row["partition"]), []).append(row)
    tables("citations", [max(pair, key=lambda row: row["dev"]) for pair in runs.values()])


def figures(quick: bool) -> None:
    """Figure 1 (citations) and 2 (announcements): one partition, objective and test score."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for number, part in enumerate(("citations", "seminars"), start=1):
        path = result_path(f"few_labels_{part}", quick)
        if not path.is_file():
            continue
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in rows if row["system"] == "ours"]
        sizes = sorted({row["labelled"] for row in rows})
        if not sizes:
            continue
        figure = Figure(figsize=(9, 2.6 * len(sizes)), layout="constrained")
        axes = figure.subplots(len(sizes), 2, squeeze=False)
        for size, (left, right) in zip(sizes, axes, strict=True):
            row = next(row for row in rows if row["labelled"] == size)
            steps = row["steps"][1:]
            costs = [step["C_u"] for step in steps]
            tests = [step["test"] for step in steps]
            left.loglog(costs, [step["objective"] for step in steps], marker=".")
            right.semilogx(costs, tests, marker=".", label="test")
            right.semilogx(costs, [step["dev"] for step in steps], ls=":", label="dev")
            top = tests.index(max(tests))
            right.plot(costs[top], tests[top], "s", fillstyle="none", ms=10)
            for axis, text in ((left, "primal objective"), (right, KEYS[part])):
                axis.set(xlabel="C_u", ylabel=text)
                axis.set_title(f"{size} labelled, partition {row['partition']}", fontsize=9)
            right.legend(fontsize=8)
        FigureCanvasAgg(figure)
        target = result_path(f"paper_semisupervised_figure{number}", quick, ".png")
        figure.savefig(target, dpi=110)
        console.print(f"written: results/{target.name}")


def _cost(text: str) -> Any:
    return text if text == "scale" else float(text)


def main() -> None:
    """Run the parts asked for."""
    parser = argument_parser(__doc__)
    parts = (*SIZES, "figures", "features", "annealed", "daso")
    parser.add_argument("--part", choices=parts, required=True)
    parser.add_argument("--settings", nargs="+", help="what to search; everything by default")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of labelled sequences")
    parser.add_argument("--partitions", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--published", action="store_true", help="the published split instead")
    parser.add_argument("--features", choices=tuple(FEATURES), default="plain")
    parser.add_argument(
        "--costs", type=_cost, nargs="+", default=list(COSTS), help='C to try; "scale": the default'
    )
    parser.add_argument("--schedule", type=float, nargs="+", help="C_u of ours")
    parser.add_argument("--resume", action="store_true", help="keep the runs in the result file")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if options.part == "figures":
        figures(options.quick)
        return
    if options.part in ("features", "annealed"):
        search(options)
        return
    if options.part == "daso":
        better_features(options.quick)
        return
    if options.quick:
        options.sizes, options.partitions, options.schedule = [5], [0], [1.0]
    tables(options.part, measure(options.part, options))


if __name__ == "__main__":
    entry_point(main)
