"""``hingeline info`` and ``import``: what is in a model file, and models of other tools."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hingeline import MultilabelSSVM
from hingeline.cli.annealed import Annealed
from hingeline.cli.app import Json, app, blaming
from hingeline.cli.label_sets import refuse
from hingeline.cli.predict import load_model
from hingeline.cli.samples import Layout, layout_of
from hingeline.evaluation.inspection import top_features, transition_table, write_weights
from hingeline.evaluation.metrics import align
from hingeline.modelfile import read_header
from hingeline.modelfile.foreign import import_crfsuite, import_liblinear


@app.command()
def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.hinge).")],
    top: Annotated[int, typer.Option(min=0, help="Strongest features of every label to list.")] = 0,
    transitions: Annotated[
        bool, typer.Option("--transitions", help="List the weights of neighbouring labels.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="Write all weights as a table (.tsv, .tsv.gz).")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a model file holds: parameters, labels, certificate, where it came from."""
    with blaming():
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
        facts |= {
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
        if isinstance(estimator, MultilabelSSVM):
            _about_sets(model, estimator, facts, top, transitions, weights)
        annealed = Annealed.of(estimator)
        if annealed is not None:
            facts |= annealed.facts()
        if "state/weights" in tensors:
            facts["training state"] = f"{tensors['state/weights'].shape[0]} examples"
        with blaming():
            if top:
                facts["top features"] = [list(row) for row in _rows(top_features(estimator, top))]
            if transitions:
                facts["transitions"] = [list(row) for row in _rows(transition_table(estimator))]
            if weights is not None:
                facts["weights written"] = write_weights(weights, estimator)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if name == "annealing":
            typer.echo(f"{name}:")
            typer.echo("\n".join(f"  {line}" for line in align(value).splitlines()))
        elif name in ("top features", "transitions"):
            typer.echo(f"{name}:")
            for row in value:
                typer.echo(
                    "  " + "\t".join(f"{c:+.4f}" if isinstance(c, float) else c for c in row)
                )
        elif isinstance(value, dict):
            typer.echo(f"{name}:")
            for key, entry in value.items():
                if "annealing" in facts and key == "semisupervised":
                    continue  # the same table once more
                typer.echo(f"  {key}: {entry}")
        else:
            text = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name}: {text}")


def _about_sets(
    path: Path, model: Any, facts: dict[str, Any], top: int, transitions: bool, weights: Any
) -> None:
    """Names and pairs of the labels; their weights are of other shapes than the tables show."""
    given = {"--top": top, "--transitions": transitions, "--weights": weights is not None}
    refuse("read coef_ and pairwise_coef_ in Python", [name for name, v in given.items() if v])
    facts["labels"] = layout_of(model, path).labels
    facts["pairs of labels"] = len(model.edges_)


def _rows(rows: Any) -> list[tuple[Any, ...]]:
    """Rows of dataclasses as tuples of text and numbers."""
    return [
        tuple(v if isinstance(v, float) else str(v) for v in vars(row).values()) for row in rows
    ]


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are none as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and value - value == 0.0:
        return value
    return str(value)


class Origin(StrEnum):
    """Tools whose models can be taken over."""

    crfsuite = "crfsuite"
    liblinear = "liblinear"


@app.command(name="import")
def import_model(
    origin: Annotated[Origin, typer.Argument(metavar="TOOL", help="crfsuite or liblinear.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="`crfsuite dump` text, or a LIBLINEAR model.")
    ],
    model: Annotated[Path, typer.Option("--model", "-m", help="Model file to write (.hinge).")],
) -> None:
    """Take over a model of CRFsuite or LIBLINEAR; it predicts the same."""
    with blaming():
        if origin is Origin.crfsuite:
            estimator, layout = import_crfsuite(file), Layout("crfsuite", "sequences")
        else:
            estimator, layout = import_liblinear(file), Layout("svmlight", "flat", zero_based=False)
        estimator.save(model, metadata={"layout": layout.to_dict(), "imported": file.name})
    typer.echo(f"{model}: {len(estimator.classes_)} labels, {estimator.n_features_in_:,} features")
