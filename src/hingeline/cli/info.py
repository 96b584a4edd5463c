"""``hingeline info``: what is in a model file."""

import json
import math
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from hingeline._words import bound_text
from hingeline.cli import app, files
from hingeline.cli.app import blame, check_target

WHY_NO_GAP = "the labels of unlabelled sequences were chosen with the weights, which is not convex"
#: How a step of a semi-supervised fit was chosen.
_RULES = {
    "dev": "the best on the held-out data",
    "violations": "the first step that removes nearly all violations that can be removed",
    "last": "the last",
}


def info(
    model: app.Model,
    top: Annotated[int, Option(min=0, help="List the n strongest features of each label.")] = 0,
    transitions: Annotated[
        bool, Option("--transitions", help="List the weights of pairs of neighbouring labels.")
    ] = False,
    weights: Annotated[Path | None, Option(help="Write all weights (.tsv or .tsv.gz).")] = None,
    arrays: Annotated[bool, Option("--arrays", help="List the arrays in the file.")] = False,
    as_json: app.Json = False,
) -> None:
    """Show what a model file holds: parameters, labels, certificate, and where it came from."""
    from hingeline.evaluation.inspection import top_features, transition_table, write_weights
    from hingeline.modelfile.files import read_header

    check_target("--weights", weights or "-", model)
    header, tensors = read_header(model)
    kind = header.get("kind", header.get("estimator", "unknown"))
    facts: dict[str, Any] = {"file": str(model), "holds": kind, "bytes": model.stat().st_size}
    facts["arrays"] = {n: f"{t.dtype} {list(t.shape)}" for n, t in tensors.items()}
    wanted = {"--top": top, "--transitions": transitions, "--weights": weights}
    named = [option for option, value in wanted.items() if value]
    if kind == "checkpoint":
        files.require(not named, f"{', '.join(named)}: {model} is a checkpoint: name a model.")
        facts |= {"passes": header.get("passes"), "identity": header.get("identity")}
    else:
        estimator = files.load_model(model)
        facts |= _facts(estimator)
        if files.holds_sets(estimator):
            what = f"{', '.join(named[:1])} does not work for sets of labels"
            files.require(named in ([], ["--top"]), f"{what}: read pairwise_coef_ in Python.")
            facts["labels"] = files.layout_of(estimator, model).labels
            facts["pairs of labels"] = len(estimator.edges_)
        facts |= describe_annealing(estimator)
        if "state/weights" in tensors:
            facts["training state"] = f"{tensors['state/weights'].shape[0]} examples"
        with blame(", ".join(named)):
            if top:
                facts["top features"] = _rows(top_features(estimator, top))
            if transitions:
                facts["transitions"] = _rows(transition_table(estimator))
            if weights is not None:
                facts["weights written"] = write_weights(weights, estimator)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    if not arrays:
        facts.pop("arrays")
    if "annealing" in facts:  # which is told by itself
        for name in ("semisupervised", "unlabelled", "constraints"):
            facts["metadata"].pop(name, None)
        facts["annealing"] = files.align(facts["annealing"]).splitlines()
    for name in {"top features", "transitions"} & facts.keys():
        cells = ([f"{c:+.4f}" if isinstance(c, float) else c for c in row] for row in facts[name])
        facts[name] = ["\t".join(row) for row in cells]
    if "parameters" in facts:
        _shorten(facts, estimator)
    for name, value in sorted(facts.items(), key=lambda fact: fact[0] == "arrays"):
        if isinstance(value, dict):
            value = [f"{key}: {entry}" for key, entry in value.items()]
        elif name not in ("annealing", "top features", "transitions"):
            value = f"{value:,}" if isinstance(value, int) else value
            typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
            continue
        typer.echo("\n  ".join([f"{name}:", *value]))


def _shorten(facts: dict[str, Any], estimator: Any) -> None:
    """Leave out parameters at their defaults, and tell gap and origin as a reader wants them."""
    from hingeline.core.results import relative
    from hingeline.estimators.base import positive_part

    usual = {name: p.default for name, p in signature(type(estimator)).parameters.items()}
    given = facts["parameters"].items()
    facts["parameters"] = {k: v for k, v in given if v != _plain(usual[k])} or "all at defaults"
    share = relative(estimator.duality_gap_, positive_part(estimator))
    if math.isfinite(share):
        facts["gap"] = f"{estimator.duality_gap_:.6g}, {bound_text(share)} of the primal"
    origin = facts["metadata"]
    for key, value in origin.items():
        match key, value:
            case "layout", {"format": str(name), "columns": [*columns], "label": label}:
                of = f", columns {', '.join(map(str, columns))}, label {label}" if label else ""
                origin[key] = f"{name}{of}"
            case "data" | "dev", _:
                parts = value if isinstance(value, list) else [value]
                if all(isinstance(part, dict) for part in parts):  # a pipe has no hash
                    told = ([str(v) for v in part.values() if v is not None] for part in parts)
                    origin[key] = ", ".join(map(" ".join, told))
            case "versions" | "label_counts", dict():
                origin[key] = ", ".join(f"{k} {v}" for k, v in value.items())
            case "calibration", {"method": str(method)}:  # not its curves
                origin[key] = method


def _facts(estimator: Any) -> dict[str, Any]:
    """Parameters, labels and certificate, which may be of the outputs found only."""
    found = {"primal": estimator.restricted_objective_, "gap": estimator.restricted_gap_}
    if math.isnan(estimator.restricted_objective_):
        found = {}
    return {
        "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
        **({"C": _plain(estimator.C_)} if hasattr(estimator, "C_") else {}),
        "labels": [str(label) for label in estimator.classes_.tolist()],
        "features": int(estimator.n_features_in_),
        "primal": _plain(estimator.primal_objective_),
        "dual": _plain(estimator.dual_objective_),
        "gap": _plain(estimator.duality_gap_),
        **{f"{name} over the outputs found": _plain(value) for name, value in found.items()},
        "stopped": estimator.stop_reason_,
        "passes": estimator.n_iter_,
        "metadata": getattr(estimator, "metadata_", {}),
    }


def _rows(rows: Any) -> list[list[Any]]:
    return [[v if isinstance(v, float) else str(v) for v in row] for row in rows]


def _plain(value: Any) -> Any:
    """What JSON can hold: NaN and infinity as text."""
    finite = isinstance(value, float) and math.isfinite(value)
    return value if finite or value is None or isinstance(value, (int, str)) else str(value)


def describe_annealing(model: Any) -> dict[str, Any]:
    """What a model file says of a semi-supervised fit; nothing where it makes no sense."""
    metadata = getattr(model, "metadata_", {})
    names = ("C_u", "objective", "violations", "dev_score")
    try:
        record = metadata["semisupervised"]
        cells = ([row[name] for name in names] for row in record["steps"])
        steps = [[math.nan if cell is None else float(cell) for cell in row] for row in cells]
        selected = range(len(steps))[int(record["selected"])]
        text, rules = metadata.get("unlabelled"), metadata.get("constraints")
        size, constraints = "an unknown number of sequences", "unknown"
        if text is not None:
            size = f"{int(text['sequences']):,} sequences, {int(text['tokens']):,} tokens"
        if rules is not None:
            count = len(rules["titles"])
            constraints = f"{count} of {rules['name']}" if count else "none"
        chosen = choice_text([step[0] for step in steps], selected, metadata.get("select"))
    except (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError):
        return {}
    table = [["C_u", "objective", "violations", "dev", ""]]
    for k, (C_u, objective, violations, dev) in enumerate(steps):
        row = [f"{C_u:g}", f"{objective:.6g}", f"{violations:.6g}"]
        row.append("" if math.isnan(dev) else f"{dev:.4f}")
        table.append([*row, "chosen" if k == selected else ""])
    facts = {"unlabelled": size, "constraints": constraints, "chosen": chosen}
    return facts | {"why no gap": WHY_NO_GAP, "annealing": table}


def choice_text(C_u: Sequence[float], selected: int, rule: Any) -> str:
    """Which of the steps was chosen, and how where that is known."""
    step = f"step {selected} of {len(C_u) - 1}, C_u={C_u[selected]:g}"
    what = step if selected else "the labelled sequences alone"
    return f"{what}, {_RULES[rule]}" if rule in _RULES else what
