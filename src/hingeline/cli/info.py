"""``hingeline info``: what is in a model file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hingeline.cli import app
from hingeline.cli.app import CommandError, blame
from hingeline.cli.samples import holds_sets, layout_of, load_model
from hingeline.evaluation.inspection import top_features, transition_table, write_weights
from hingeline.evaluation.metrics import align
from hingeline.modelfile.files import read_header

WHY_NO_GAP = (
    "the labels of unlabelled sequences were chosen with the weights, and both together are not a "
    "convex problem, which has no certificate"
)
#: How a step of a semi-supervised fit was chosen.
_RULES = {
    "dev": "the best on the held-out data",
    "violations": "the first that removes nine tenths of the violations that any step removes",
    "last": "the last",
}


def info(
    model: app.Model,
    top: Annotated[
        int, typer.Option(min=0, help="List this many of the strongest features of each label.")
    ] = 0,
    transitions: Annotated[
        bool, typer.Option("--transitions", help="List the weights of neighbouring labels.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="Write all weights as a table (.tsv, .tsv.gz).")
    ] = None,
    as_json: app.Json = False,
) -> None:
    """Show what a model file holds: parameters, labels, certificate, and where it came from."""
    with blame():
        header, tensors = read_header(model)
    kind = header.get("kind", header.get("estimator", "unknown"))
    facts: dict[str, Any] = {
        "file": str(model),
        "holds": kind,
        "bytes": model.stat().st_size,
        "arrays": {n: f"{t.dtype} {list(t.shape)}" for n, t in tensors.items()},
    }
    if kind == "checkpoint":
        facts |= {"passes": header.get("passes"), "identity": header.get("identity")}
    else:
        estimator = load_model(model)
        facts |= _facts(estimator)
        if holds_sets(estimator):
            options = {"--top": top, "--transitions": transitions, "--weights": weights}
            for name in (name for name, value in options.items() if value):
                raise CommandError(
                    f"{name} is not for sets of labels: read coef_ and pairwise_coef_ in Python."
                )
            facts["labels"] = layout_of(estimator, model).labels
            facts["pairs of labels"] = len(estimator.edges_)
        annealed = Annealed.of(estimator)
        if annealed is not None:
            facts |= annealed.facts()
        if "state/weights" in tensors:
            facts["training state"] = f"{tensors['state/weights'].shape[0]} examples"
        with blame():
            if top:
                facts["top features"] = _rows(top_features(estimator, top))
            if transitions:
                facts["transitions"] = _rows(transition_table(estimator))
            if weights is not None:
                facts["weights written"] = write_weights(weights, estimator)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for name, value in facts.items():
            _print_fact(name, value, facts)


def _facts(estimator: Any) -> dict[str, Any]:
    return {
        "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
        "labels": [str(label) for label in estimator.classes_.tolist()],
        "features": int(estimator.n_features_in_),
        "primal": _plain(estimator.primal_objective_),
        "dual": _plain(estimator.dual_objective_),
        "gap": _plain(estimator.duality_gap_),
        "primal over the outputs found": _plain(estimator.restricted_objective_),
        "gap over the outputs found": _plain(estimator.restricted_gap_),
        "stopped": estimator.stop_reason_,
        "passes": estimator.n_iter_,
        "metadata": getattr(estimator, "metadata_", {}),
    }


def _print_fact(name: str, value: Any, facts: dict[str, Any]) -> None:
    if name == "annealing":
        typer.echo(f"{name}:")
        typer.echo("\n".join(f"  {line}" for line in align(value).splitlines()))
    elif name in ("top features", "transitions"):
        typer.echo(f"{name}:")
        for row in value:
            typer.echo("  " + "\t".join(f"{c:+.4f}" if isinstance(c, float) else c for c in row))
    elif isinstance(value, dict):
        typer.echo(f"{name}:")
        for key, entry in value.items():
            if "annealing" in facts and key == "semisupervised":
                continue  # the same table once more
            typer.echo(f"  {key}: {entry}")
    else:
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


def _rows(rows: Any) -> list[list[Any]]:
    """Rows of dataclasses as lists of text and numbers."""
    return [[v if isinstance(v, float) else str(v) for v in vars(row).values()] for row in rows]


def _plain(value: Any) -> Any:
    """What JSON can hold: NaN and infinity as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


# Semi-supervised fits -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Annealed:
    """The record of a semi-supervised fit in a model file."""

    steps: list[dict[str, float]]  # C_u, objective, violations and dev_score of each
    selected: int
    rule: str  # empty where nothing says how the step was chosen
    unlabelled: str
    constraints: str

    @classmethod
    def of(cls, model: Any) -> Annealed | None:
        """The record of a model; None where there is none, or none that makes sense."""
        metadata = getattr(model, "metadata_", {})
        try:
            record = metadata["semisupervised"]
            names = ("C_u", "objective", "violations", "dev_score")
            steps = [
                {name: math.nan if row[name] is None else float(row[name]) for name in names}
                for row in record["steps"]
            ]
            rule = metadata.get("select")
            return cls(
                steps,
                range(len(steps))[int(record["selected"])],
                rule if rule in _RULES else "",
                _unlabelled_text(metadata.get("unlabelled")),
                _constraints_text(metadata.get("constraints")),
            )
        except (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError):
            return None

    def why_no_gap(self) -> str:
        """Why there is no certificate, and what was learnt from."""
        return (
            f"{WHY_NO_GAP} ({self.unlabelled} unlabelled; constraints: {self.constraints}; "
            f"chosen: {self.choice()})"
        )

    def choice(self) -> str:
        """Which step was chosen, and how."""
        C_u = [step["C_u"] for step in self.steps]
        return choice_text(C_u, self.selected, self.rule)

    def facts(self) -> dict[str, Any]:
        """What ``hingeline info`` shows."""
        table = [["C_u", "objective", "violations", "dev", ""]]
        for k, step in enumerate(self.steps):
            C_u, objective, violations, dev = step.values()
            score = "" if math.isnan(dev) else f"{dev:.4f}"
            row = [f"{C_u:g}", f"{objective:.6g}", f"{violations:.6g}", score]
            table.append([*row, "chosen" if k == self.selected else ""])
        return {
            "unlabelled": self.unlabelled,
            "constraints": self.constraints,
            "chosen": self.choice(),
            "why no gap": WHY_NO_GAP,
            "annealing": table,
        }


def choice_text(C_u: Sequence[float], selected: int, rule: str) -> str:
    """Which of the steps was chosen, and how."""
    what = f"step {selected} of {len(C_u) - 1}, C_u={C_u[selected]:g}"
    if selected == 0:
        what = "the labelled sequences alone"
    return f"{what}, {_RULES[rule]}" if rule else what


def _unlabelled_text(found: Any) -> str:
    if found is None:
        return "an unknown number of sequences"
    return f"{int(found['sequences']):,} sequences, {int(found['tokens']):,} tokens"


def _constraints_text(found: Any) -> str:
    if found is None:
        return "unknown"
    count = len(found["titles"])
    return f"{count} of {found['name']}" if count else "none"
