# The public names: __init__.py reads them here, and imports each when it is first used.
# isort: off

from hingeline.callbacks import Checkpoint as Checkpoint, EarlyStopping as EarlyStopping
from hingeline.core.results import HistoryRow as HistoryRow, PassState as PassState
from hingeline.estimators.chain import ChainCRF as ChainCRF, ChainSSVM as ChainSSVM
from hingeline.estimators.custom import SSVM as SSVM
from hingeline.estimators.dependency import DependencySSVM as DependencySSVM
from hingeline.estimators.graph import Graph as Graph, GraphSSVM as GraphSSVM
from hingeline.estimators.multiclass import MulticlassSSVM as MulticlassSSVM
from hingeline.estimators.multilabel import MultilabelSSVM as MultilabelSSVM
from hingeline.estimators.paths import C_path as C_path, Path as Path, nu_path as nu_path
from hingeline.estimators.segment import SegmentSSVM as SegmentSSVM
from hingeline.evaluation.metrics import scorer as scorer
from hingeline.modelfile.estimators import load as load
from hingeline.semisupervised.estimator import SemiSupervisedSSVM as SemiSupervisedSSVM
from hingeline.structures.custom import Structure as Structure
from hingeline.taxonomy import Taxonomy as Taxonomy

__version__: str
