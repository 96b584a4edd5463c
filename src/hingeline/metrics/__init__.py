"""How good labels are: tokens, spans, sequences and sets, with confidence intervals."""

from hingeline.metrics.bootstrap import bootstrap_intervals
from hingeline.metrics.evaluation import Evaluation, evaluate
from hingeline.metrics.multilabel import MultilabelScores, multilabel_scores
from hingeline.metrics.scores import (
    Score,
    SpanScores,
    confusion_matrix,
    per_label,
    span_f1_score,
    span_scores,
    token_accuracy,
)

__all__ = [
    "Evaluation",
    "MultilabelScores",
    "Score",
    "SpanScores",
    "bootstrap_intervals",
    "confusion_matrix",
    "evaluate",
    "multilabel_scores",
    "per_label",
    "span_f1_score",
    "span_scores",
    "token_accuracy",
]
