# The public names: __init__.py reads them here, and imports each when it is first used.

from hingeline.constraints.base import PUNCTUATION as PUNCTUATION
from hingeline.constraints.decode import constrained_decode as constrained_decode
from hingeline.constraints.files import load_constraints as load_constraints
from hingeline.constraints.penalties import CheckReport as CheckReport
from hingeline.constraints.penalties import Penalties as Penalties
from hingeline.constraints.penalties import SwitchEvaluator as SwitchEvaluator
from hingeline.constraints.penalties import check as check
from hingeline.constraints.penalties import learn_constraints as learn_constraints
from hingeline.constraints.rules import AtMostOneSegment as AtMostOneSegment
from hingeline.constraints.rules import AverageSegments as AverageSegments
from hingeline.constraints.rules import Before as Before
from hingeline.constraints.rules import ChangeOnlyAt as ChangeOnlyAt
from hingeline.constraints.rules import ChangeShare as ChangeShare
from hingeline.constraints.rules import EndsWith as EndsWith
from hingeline.constraints.rules import Follows as Follows
from hingeline.constraints.rules import MinLength as MinLength
from hingeline.constraints.rules import NoRepeats as NoRepeats
from hingeline.constraints.rules import Occurs as Occurs
from hingeline.constraints.rules import OnlyWords as OnlyWords
from hingeline.constraints.rules import Predicate as Predicate
from hingeline.constraints.rules import Share as Share
from hingeline.constraints.rules import StartsWith as StartsWith
from hingeline.constraints.rules import Words as Words
from hingeline.constraints.switches import CompiledConstraints as CompiledConstraints
