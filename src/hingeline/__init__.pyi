# The public names: __init__.py reads them here, and imports each when it is first used.

from hingeline.callbacks import Checkpoint as Checkpoint
from hingeline.callbacks import EarlyStopping as EarlyStopping
from hingeline.core.results import HistoryRow as HistoryRow
from hingeline.core.results import PassState as PassState
from hingeline.estimators.chain import ChainCRF as ChainCRF
from hingeline.estimators.chain import ChainSSVM as ChainSSVM
from hingeline.estimators.custom import SSVM as SSVM
from hingeline.estimators.dependency import DependencySSVM as DependencySSVM
from hingeline.estimators.graph import Graph as Graph
from hingeline.estimators.graph import GraphSSVM as GraphSSVM
from hingeline.estimators.multiclass import MulticlassSSVM as MulticlassSSVM
from hingeline.estimators.multilabel import MultilabelSSVM as MultilabelSSVM
from hingeline.estimators.paths import C_path as C_path
from hingeline.estimators.paths import Path as Path
from hingeline.estimators.paths import nu_path as nu_path
from hingeline.estimators.segment import SegmentSSVM as SegmentSSVM
from hingeline.evaluation.metrics import scorer as scorer
from hingeline.modelfile.estimators import load as load
from hingeline.semisupervised.estimator import SemiSupervisedSSVM as SemiSupervisedSSVM
from hingeline.structures.custom import Structure as Structure
from hingeline.taxonomy import Taxonomy as Taxonomy

__version__: str
