"""A user's own structure: three methods to start with, more for speed.

Methods are plain Python (they work at once) or ``@njit`` static methods (compiled into the same
solver source). The choice is made by looking: if all methods are compiled, so are the solvers.
"""

from collections import namedtuple
from collections.abc import Callable, Sequence
from inspect import signature
from itertools import count
from typing import Any

import numpy as np
from numba.extending import is_jitted
from numba.np.unsafe.ndarray import to_fixed_tuple

from hingeline._checks import Array, require
from hingeline._jit import uncached
from hingeline.core.primitives import Compiled, register

Function = Callable[..., Any]

#: What methods are called with, by name; a loss also without x.
_REQUIRED = {
    "joint_feature": ("x", "y"),
    "loss": ("x", "y_true", "y"),
    "decode": ("x", "w", "y_true", "loss_scale"),
}
_OPTIONAL = ("plane_score", "plane_add", "plane_sqdist", "decode_by_loss", "decode_best")

_KINDS: dict[tuple[Any, ...], Any] = {}  # of problems, by the compiled methods in them
_NUMBERS = count()
#: Fields of a compiled structure's problem: arrays end to end, and where each begins; y is int32.
LAID_OUT = "x x_start x_shape y y_start"


class Structure:
    """Base class of a user's own structure.

    An output is an int vector. Required, as methods or as ``@staticmethod @njit`` functions:

    ``joint_feature(x, y)``
        the feature vector f(x, y), float64, always of the same length
    ``loss(y_true, y)``, or ``loss(x, y_true, y)`` where the cost of a mistake depends on x
        l(y) ≥ 0, zero for the true output
    ``decode(x, w, y_true, loss_scale)``
        an output that maximises ``w·f(x, y) + loss_scale·loss(y_true, y)``. In prediction
        ``loss_scale`` is 0 and ``y_true`` an empty vector.

    Optional, for speed: ``plane_score(x, y_true, y, w)`` (``w·(f(x, y_true) − f(x, y))``),
    ``plane_add(x, y_true, y, step, w)`` (adds step times that difference to w, in place) and
    ``plane_sqdist(x, y, z)`` (``‖f(x, y) − f(x, z)‖²``). Optional, for slack rescaling and squared
    slack: ``decode_by_loss(x, w, y_true)``, which returns an array of all loss values and an int
    array with, in each row, the best-scoring output of that loss. Optional, for summed slack with
    more violators than the argmax: ``decode_best(x, w, y_true, loss_scale, k)``, which returns
    the k best outputs under the value that ``decode`` maximises, best first, as rows of an int
    array; fewer where there are no more.

    Set ``exact = False`` if ``decode`` may miss the maximum: the fit then reports no gap.

    Compiled methods want every x to be an array of one dtype and number of dimensions (1 to 3).
    ``hingeline.testing.check_structure`` tests whether the methods fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import SSVM, Structure
    >>> class Multiclass(Structure):
    ...     def joint_feature(self, x, y):
    ...         f = np.zeros((3, len(x)))
    ...         f[y[0]] = x
    ...         return f.ravel()
    ...
    ...     def loss(self, y_true, y):
    ...         return float(y_true[0] != y[0])
    ...
    ...     def decode(self, x, w, y_true, loss_scale):
    ...         scores = w.reshape(3, -1) @ x
    ...         if loss_scale:
    ...             scores = scores + loss_scale * (np.arange(3) != y_true[0])
    ...         return np.array([np.argmax(scores)])
    >>> X = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([-1.0, -1.0])]
    >>> SSVM(Multiclass(), C=10.0).fit(X, [0, 1, 2]).predict(X)
    [array([0], dtype=int32), array([1], dtype=int32), array([2], dtype=int32)]
    """

    exact: bool = True

    def pack(self, y: Any) -> Array:
        """An output as an int32 vector; override together with :meth:`unpack` for other types."""
        try:
            vector = np.atleast_1d(np.asarray(y))
        except ValueError:  # ragged
            vector = np.empty((0, 0))
        if vector.ndim != 1 or vector.dtype.kind not in "iu":
            what = "an output must be an int or a vector of ints: convert it, or override"
            own = f"{type(self).__name__}.pack() and .unpack()"
            raise TypeError(f"{what} {own}; got {type(y).__name__}.")
        return vector.astype(np.int32)

    def unpack(self, vector: Array) -> Any:
        """The output that a vector stands for."""
        return vector


def methods_of(structure: Structure) -> dict[str, Callable[..., Any]]:
    """The structure's methods, checked for the required ones."""
    what = "structure must be an instance of a subclass of hingeline.Structure"
    require(isinstance(structure, Structure), f"{what}, got {structure!r}.", TypeError)
    given = {name: getattr(structure, name, None) for name in (*_REQUIRED, *_OPTIONAL)}
    found = {name: method for name, method in given.items() if method is not None}
    missing = [name for name in _REQUIRED if name not in found]
    what = f"{type(structure).__name__} lacks {', '.join(missing)}"
    require(not missing, f"{what}: a structure needs {', '.join(_REQUIRED)}.", TypeError)
    for name, wanted in _REQUIRED.items():
        own = signature(getattr(found[name], "py_func", found[name]))
        known = wanted[name == "loss" and not takes_input(found[name]) :]
        try:
            own.bind(*known)
        except TypeError:
            what = f"{type(structure).__name__}.{name}{own} must take ({', '.join(known)})."
            raise TypeError(what) from None
    return found


def takes_input(loss: Any) -> bool:
    """Whether a loss is a function of x, too: it has three parameters without a default."""
    parameters = signature(getattr(loss, "py_func", loss)).parameters.values()
    return sum(each.default is each.empty for each in parameters) == 3


def find_loss(structure: Structure) -> Function:
    """The structure's loss as a function of x, the true output and another."""
    loss = methods_of(structure)["loss"]
    return loss if takes_input(loss) else lambda x, y_true, y: loss(y_true, y)


def is_compiled(structure: Structure) -> bool:
    """Whether all methods are numba functions, so that solvers are compiled around them."""
    return all(is_jitted(method) for method in methods_of(structure).values())


def _layout(arrays: Sequence[Array]) -> tuple[Array, Array]:
    sizes = np.array([a.size for a in arrays], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return np.concatenate([a.ravel() for a in arrays]), starts


def uniform_arrays(structure: Structure, X: Sequence[Any]) -> list[Array]:
    """Inputs of a compiled structure as arrays of one dtype and number of dimensions."""
    arrays = [np.asarray(x) for x in X]
    for i, a in enumerate(arrays):
        if a.dtype.kind not in "fiub" or not 1 <= a.ndim <= 3 or a.ndim != arrays[0].ndim:
            what = (
                f"X[{i}]: the methods of {type(structure).__name__} are compiled, so every x must"
            )
            what += " be a numeric array with the same number of dimensions (1 to 3)"
            raise TypeError(f"{what}; use plain Python methods for other inputs.")
    dtype = np.result_type(*{a.dtype for a in arrays})
    return [np.ascontiguousarray(a, dtype=dtype) for a in arrays]


def find_parts(dimensions: int) -> tuple[Function, Function]:
    """How compiled code gets x back in its own shape, and the true output."""

    def get(problem: Any, i: int) -> Array:
        shape = to_fixed_tuple(problem.x_shape[i], dimensions)
        return problem.x[problem.x_start[i] : problem.x_start[i + 1]].reshape(shape)

    return get, lambda problem, i: problem.y[problem.y_start[i] : problem.y_start[i + 1]]


def _primitives(
    methods: dict[str, Function], get: Function, gold: Function, wrap: Function
) -> dict[str, Function]:
    """The primitives of :mod:`hingeline.core.primitives` from a user's methods."""
    joint_feature, loss, best = (methods[name] for name in _REQUIRED)
    get, gold = wrap(get), wrap(gold)

    def score_difference(x: Any, y_true: Array, y: Array, w: Array) -> float:
        return np.sum(w * (joint_feature(x, y_true) - joint_feature(x, y)))

    def add_difference(x: Any, y_true: Array, y: Array, step: float, w: Array) -> None:
        w += step * (joint_feature(x, y_true) - joint_feature(x, y))

    def square_difference(x: Any, y: Array, z: Array) -> float:
        return np.sum((joint_feature(x, y) - joint_feature(x, z)) ** 2)

    cost = loss if takes_input(loss) else wrap(lambda x, y_true, y: loss(y_true, y))
    score = methods.get("plane_score") or wrap(score_difference)
    add = methods.get("plane_add") or wrap(add_difference)
    square = methods.get("plane_sqdist") or wrap(square_difference)

    def decode(problem: Any, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
        x = get(problem, i)
        y_true = gold(problem, i)
        y_out[:] = best(x, w, y_true, loss_scale)
        return np.sum(w * joint_feature(x, y_out)) + loss_scale * cost(x, y_true, y_out)

    def truth(problem: Any, i: int, y_out: Array) -> None:
        y_out[:] = gold(problem, i)

    def plane_add(problem: Any, i: int, y: Array, step: float, w: Array) -> None:
        add(get(problem, i), gold(problem, i), y, step, w)

    own_by_loss: Any = methods.get("decode_by_loss")
    own_best: Any = methods.get("decode_best")

    def decode_by_loss(problem: Any, i: int, w: Array) -> Any:
        losses, ys = own_by_loss(get(problem, i), w, gold(problem, i))
        return losses, ys.astype(np.int32)

    def decode_best(problem: Any, i: int, w: Array, loss_scale: float, ys: Array) -> int:
        rows = own_best(get(problem, i), w, gold(problem, i), loss_scale, ys.shape[0])
        for k in range(len(rows)):
            ys[k] = rows[k]
        return len(rows)

    made: dict[str, Function] = {
        "output_length": lambda problem, i: len(gold(problem, i)),
        "plane_loss": lambda problem, i, y: cost(get(problem, i), gold(problem, i), y),
        "plane_score": lambda problem, i, y, w: score(get(problem, i), gold(problem, i), y, w),
        "plane_sqdist": lambda problem, i, y, z, scratch: square(get(problem, i), y, z),
    }
    optional = [own for own in (decode_by_loss, decode_best) if own.__name__ in methods]
    return made | {own.__name__: own for own in (decode, truth, plane_add, *optional)}


def make_kind(fields: str, primitives: Any) -> Any:
    """A type of problems by which kernels find a user's methods; what is compiled is not cached."""
    make: Any = namedtuple
    # numba takes tuples for the same whose classes have one name.
    kind = make(f"OwnProblem{next(_NUMBERS)}", fields)
    kind.cached = False  # nobody can say what machine code with these methods in it depends on
    register(kind, **primitives)
    return kind


def compile_problem(structure: Structure, X: Sequence[Any], Y: Sequence[Array]) -> Compiled:
    """Examples of a user's structure, as a problem of a type that has its methods."""
    methods = methods_of(structure)
    lengths = np.array([len(y) for y in Y], dtype=np.int64)
    fast, exact = is_compiled(structure), bool(structure.exact)
    if fast:
        X = arrays = uniform_arrays(structure, X)
        dimensions = arrays[0].ndim
        key = (*methods.values(), dimensions)
        if key not in _KINDS:  # a second fit must not compile again
            own = _primitives(methods, *find_parts(dimensions), uncached)
            _KINDS[key] = make_kind(LAID_OUT, own)
        shapes = np.array([a.shape for a in arrays], dtype=np.int64)
        problem = _KINDS[key](*_layout(arrays), shapes, *_layout(Y))
    else:
        parts = (lambda problem, i: problem.x[i]), (lambda problem, i: problem.y[i])
        own = _primitives(methods, *parts, lambda function: function)
        problem = make_kind("x y", own)(list(X), list(Y))
    n_weights = len(methods["joint_feature"](X[0], Y[0]))
    return Compiled(problem, lengths, n_weights, exact=exact, bounded=exact, interpreted=not fast)
