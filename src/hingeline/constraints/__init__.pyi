# The public names: __init__.py reads them here, and imports each when it is first used.
# isort: off

from hingeline.constraints.base import PUNCTUATION as PUNCTUATION
from hingeline.constraints.decode import constrained_decode as constrained_decode
from hingeline.constraints.files import load_constraints as load_constraints
from hingeline.constraints.penalties import CheckReport as CheckReport, Penalties as Penalties
from hingeline.constraints.penalties import SwitchEvaluator as SwitchEvaluator, check as check
from hingeline.constraints.penalties import learn_constraints as learn_constraints
from hingeline.constraints.rules import AtMostOneSegment as AtMostOneSegment
from hingeline.constraints.rules import AverageSegments as AverageSegments, Before as Before
from hingeline.constraints.rules import ChangeOnlyAt as ChangeOnlyAt, ChangeShare as ChangeShare
from hingeline.constraints.rules import EndsWith as EndsWith, Follows as Follows
from hingeline.constraints.rules import MinLength as MinLength, NoRepeats as NoRepeats
from hingeline.constraints.rules import Occurs as Occurs, OnlyWords as OnlyWords
from hingeline.constraints.rules import Predicate as Predicate, Share as Share
from hingeline.constraints.rules import StartsWith as StartsWith, Words as Words
from hingeline.constraints.switches import CompiledConstraints as CompiledConstraints
