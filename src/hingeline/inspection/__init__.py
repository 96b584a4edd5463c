"""What a model has learned and why it says what it says, as rows that data frames take."""

from hingeline.inspection.explanation import Contribution, Explanation, explain
from hingeline.inspection.weights import (
    FeatureWeight,
    TransitionWeight,
    top_features,
    transition_table,
)

__all__ = [
    "Contribution",
    "Explanation",
    "FeatureWeight",
    "TransitionWeight",
    "explain",
    "top_features",
    "transition_table",
]
