"""What a model file says of a semi-supervised fit, and why it has no certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hingeline.semisupervised.estimator import SELECTIONS

WHY_NO_GAP = (
    "the labels of unlabelled sequences were chosen with the weights, and both together are not a "
    "convex problem, which has no certificate"
)
_RULES = {
    "dev": "the best on the held-out data",
    "violations": "the first that removes nine tenths of the violations that any step removes",
    "last": "the last",
}


@dataclass(frozen=True)
class Step:
    """What is shown of an annealing step."""

    C_u: float
    objective: float
    violations: float
    dev_score: float


@dataclass(frozen=True)
class Annealed:
    """The record of a semi-supervised fit in a model file."""

    steps: list[Step]
    selected: int
    rule: str  # empty where nothing says how the step was chosen
    unlabelled: str
    constraints: str

    @classmethod
    def of(cls, model: Any) -> Annealed | None:
        """The record of a model; None where there is none, or none that makes sense."""
        metadata = getattr(model, "metadata_", {})
        if "semisupervised" not in metadata:
            return None
        try:
            record = metadata["semisupervised"]
            steps = [
                Step(*(_number(row[name]) for name in Step.__dataclass_fields__))
                for row in record["steps"]
            ]
            selected = range(len(steps))[int(record["selected"])]
            rule = metadata.get("select")
            return cls(
                steps,
                selected,
                rule if rule in SELECTIONS else "",
                _unlabelled(metadata.get("unlabelled")),
                _constraints(metadata.get("constraints")),
            )
        except (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError):
            return None

    def facts(self) -> dict[str, Any]:
        """For ``hingeline info``."""
        return {
            "unlabelled": self.unlabelled,
            "constraints": self.constraints,
            "chosen": choice_words(self.steps, self.selected, self.rule),
            "why no gap": WHY_NO_GAP,
            "annealing": [
                ["C_u", "objective", "violations", "dev", ""],
                *(
                    [
                        f"{step.C_u:g}",
                        f"{step.objective:.6g}",
                        f"{step.violations:.6g}",
                        "" if math.isnan(step.dev_score) else f"{step.dev_score:.4f}",
                        "chosen" if k == self.selected else "",
                    ]
                    for k, step in enumerate(self.steps)
                ),
            ],
        }


def without_certificate(model: Any) -> Any:
    """A model as it was stored; what a semi-supervised fit left loses its gap, and says why.

    The file has the certificate of the weights for fixed labels, which is not one of the problem
    that was solved.
    """
    found = Annealed.of(model)
    if found is not None:
        model.primal_objective_ = found.steps[found.selected].objective
        model.dual_objective_ = model.duality_gap_ = math.nan
        model.history_ = []  # of the last weights for fixed labels alone
        model.stop_reason_ = (
            f"{WHY_NO_GAP} ({found.unlabelled} unlabelled; constraints: {found.constraints}; "
            f"chosen: {choice_words(found.steps, found.selected, found.rule)})"
        )
    return model


def choice_words(steps: Sequence[Any], selected: int, rule: str) -> str:
    """Which step was chosen, and how."""
    what = f"step {selected} of {len(steps) - 1}, C_u={steps[selected].C_u:g}"
    if selected == 0:
        what = "the labelled sequences alone"
    return f"{what}{', ' if rule else ''}{_RULES.get(rule, '')}"


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _unlabelled(found: Any) -> str:
    if found is None:
        return "an unknown number of sequences"
    return f"{int(found['sequences']):,} sequences, {int(found['tokens']):,} tokens"


def _constraints(found: Any) -> str:
    if found is None:
        return "unknown"
    count = len(found["titles"])
    return f"{count} of {found['name']}" if count else "none"
