"""The one way this package compiles code.

``kernel`` makes an entry point: compiled at its first call, cached on disk, releasing the GIL.
``helper`` makes a function that kernels call; it stays a plain Python function outside them.
``build_as`` and ``by_class`` say what compiled code runs instead of a plain function.

Two things are done here once so that nobody has to remember them elsewhere:

* numba notices a change only in the file of the cached function itself, not in the helpers it
  calls. Here machine code is found by a key made of *all the code it was made from*: see
  :class:`_Dependencies`. An edit or an upgrade never meets stale machine code, and an edit that
  a kernel does not depend on (or a comment) never compiles it again.
* full ``fastmath`` lets the compiler assume that there are no infinities, and the dynamic
  programs use ``-inf`` as a mask. Only the flags without that assumption are set.

Environment
-----------
``HINGELINE_CACHE=0`` turns the disk cache off; ``HINGELINE_CACHE_DIR`` (or numba's own
``NUMBA_CACHE_DIR``) says where it lives. Without a writable folder kernels are compiled anew in
each process, which is slower but works. ``HINGELINE_COMPILER=numba`` compiles the way numba does.
"""

import contextlib
import hashlib
import marshal
import os
import pickle
import platform
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import sigutils
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.core.serialize import dumps
from numba.core.typing import templates
from numba.core.typing.templates import infer, infer_global
from numba.extending import is_jitted, typeof_impl

#: The latest numba whose inside :mod:`hingeline._compiler` knows. Whatever comes later compiles the
#: same kernels by its own way, which takes some three times as long.
LATEST_KNOWN = (0, 68)
_compiler: Any = None
if numba.version_info.short <= LATEST_KNOWN and os.environ.get("HINGELINE_COMPILER") != "numba":
    _compiler = import_module("hingeline._compiler")

try:
    import fcntl
except ImportError:  # Windows: nobody waits for anybody
    fcntl = None  # type: ignore[assignment]

F = TypeVar("F", bound=Callable[..., Any])

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

_PACKAGE = Path(__file__).resolve().parent
_KEEP_DAYS = 30  # Machine code that nobody asked for in so many days is removed.

#: Plain function -> the ``fastmath`` it is compiled with where kernels call it.
_HELPERS: dict[Callable[..., Any], Any] = {}
#: Plain function -> what builds the code that kernels run instead.
_BUILT_AS: dict[Callable[..., Any], Callable[..., Any]] = {}
#: Plain function -> class of its first argument -> the function that kernels run instead.
_BY_CLASS: dict[Callable[..., Any], Callable[[type], Callable[..., Any] | None]] = {}

#: Those of numba that decide about machine code.
_SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE")
#: What these contain is told by their versions, which are in every key.
_FOREIGN = sys.stdlib_module_names | {"numba", "numpy", "llvmlite", "scipy"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic, np.dtype)


def _without_text(code: CodeType) -> CodeType:
    """What a code object computes, without its file and lines."""
    constants = tuple(_without_text(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename="", co_firstlineno=0, co_linetable=b"", co_consts=constants)


def _names_in(code: CodeType) -> set[str]:
    """Names that a function looks up, those of functions inside it included."""
    inner = (_names_in(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


@cache
def _describe(function: FunctionType) -> tuple[bytes, set[str]]:
    """What a function computes, without comments and docstring, and the names it looks up."""
    code = _without_text(function.__code__)
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    return marshal.dumps(code, 0), _names_in(code)


class _Dependencies:
    """All the code that a kernel can reach when it is called with some types of arguments.

    From each function to the values of the global names, attributes of modules and closures that
    its code mentions; from a plain function to what kernels run instead of it. A name that is
    only an attribute but has a namesake among the globals counts too: that errs to the safe side.
    """

    def __init__(self, kinds: Iterable[Any], dispatcher: Any) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, Any] = {}  # kept, so that no id is given again
        self.classes: list[type] = []
        self.stubs: list[Callable[..., Any]] = []
        for found in _classes_in(kinds):
            self.visit(found)
        self.visit(dispatcher)

    def note(self, *parts: Any) -> None:
        for part in parts:
            text = part if isinstance(part, bytes) else str(part).encode()
            self.digest.update(len(text).to_bytes(8, "little") + text)

    def visit(self, value: Any) -> None:
        """Add a value and all that it leads to."""
        if isinstance(value, _PLAIN):
            self.note(type(value).__name__, repr(value))
        elif isinstance(value, ModuleType):
            self.note(value.__name__)  # what is used of it is in the names of the function
        elif isinstance(value, (set, frozenset)):
            self.note("set", *sorted(map(repr, value)))
        elif isinstance(value, np.ndarray):
            self.note("array", value.dtype.str, value.shape, value.tobytes())
        elif isinstance(value, (tuple, list, dict)):
            self.note(type(value).__name__, len(value))
            for item in value.items() if isinstance(value, dict) else value:
                self.visit(item)
        elif id(value) in self.seen:
            self.note(getattr(value, "__qualname__", type(value).__qualname__))
        else:
            self.seen[id(value)] = value
            self.visit_first(value)

    def visit_first(self, value: Any) -> None:
        if is_jitted(value):
            self.note("jitted")
            self.visit({**value.targetoptions, "pipeline_class": None})
            self.function(value.py_func)
        elif isinstance(value, FunctionType):
            self.visit(_HELPERS.get(value, "plain"))
            if value in _BUILT_AS:
                self.visit(_BUILT_AS[value])
            elif value in _BY_CLASS:
                self.stubs.append(value)
                for known in self.classes:
                    self.implementation(value, known)
            else:
                self.function(value)
        elif isinstance(value, type):
            self.visit_class(value)
        elif isinstance(value, (staticmethod, classmethod, property)):
            self.visit(value.fget if isinstance(value, property) else value.__func__)
        elif _is_foreign(value):
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
            self.note(type(value).__qualname__, name or repr(value))
        else:
            # What it computes is anybody's guess: the whole text of the module of its class.
            module = sys.modules[type(value).__module__]
            self.note(type(value).__qualname__, Path(str(module.__file__)).read_bytes())

    def function(self, function: FunctionType) -> None:
        if _is_foreign(function):
            self.note(function.__module__, function.__qualname__)
            return
        text, names = _describe(function)
        self.note(function.__module__, function.__qualname__, text)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.visit(cell.cell_contents)
        scopes = [function.__globals__]
        for scope in scopes:  # and those of modules among its values
            for name in sorted(names & scope.keys()):
                self.note(scope["__name__"], name)
                self.visit(scope[name])
                if isinstance(scope[name], ModuleType) and scope is scopes[0]:
                    own = scope[name].__name__.split(".")[0] not in _FOREIGN
                    scopes += [vars(scope[name])] if own else []

    def visit_class(self, found: type) -> None:
        self.note(found.__module__, found.__qualname__)
        if _is_foreign(found):
            return
        if issubclass(found, tuple):
            self.note(getattr(found, "_fields", ()))
            self.classes.append(found)
            for stub in self.stubs:
                self.implementation(stub, found)
            return
        for base in found.__bases__:
            self.visit(base)
        for name, value in vars(found).items():
            if name not in {"__doc__", "__dict__", "__weakref__", "__module__"}:
                self.note(name)
                self.visit(value)

    def implementation(self, stub: Callable[..., Any], found: type) -> None:
        chosen = _BY_CLASS[stub](found)
        if chosen is not None:
            self.note(stub.__name__, found.__qualname__)
            if chosen is stub and isinstance(chosen, FunctionType):
                self.function(chosen)
            else:
                self.visit(chosen)


def _is_foreign(value: Any) -> bool:
    if isinstance(value, BuiltinFunctionType):
        return True
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).split(".")[0] in _FOREIGN


def _classes_in(kinds: Iterable[Any]) -> Iterator[type]:
    """The tuple classes in the types of a signature."""
    for kind in kinds:
        if hasattr(kind, "instance_class"):
            yield kind.instance_class
        if isinstance(kind, types.BaseTuple):
            yield from _classes_in(kind.types)
        elif isinstance(kind, types.Optional):
            yield from _classes_in([kind.type])


def machine_code_key(dispatcher: Any, signature: Any) -> str:
    """The name under which the machine code of a kernel for some argument types is kept."""
    arguments, result = sigutils.normalize_signature(signature)
    walk = _Dependencies(arguments, dispatcher)
    walk.note(*map(str, arguments), result)
    for part in vars(_compiler).values() if _compiler else ():
        for value in vars(part).values() if isinstance(part, type) else [part]:
            if isinstance(value, FunctionType) and value.__module__ == _compiler.__name__:
                walk.note(_describe(value)[0])
    settings = (getattr(numba.config, name) for name in _SETTINGS)
    walk.note(numba.__version__, np.__version__, platform.python_version(), *settings)
    walk.note(*dispatcher.targetctx.codegen().magic_tuple())
    return walk.digest.hexdigest()[:32]


def _cache_folder() -> Path | None:
    """The folder of machine code, or None where nothing can be written."""
    if os.environ.get("HINGELINE_CACHE", "").lower() in {"0", "off", "no", "false"}:
        return None
    named = os.environ.get("HINGELINE_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    usual = {"win32": os.environ.get("LOCALAPPDATA"), "darwin": "~/Library/Caches"}
    home = usual.get(sys.platform, os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    folders = [Path(named)] if named else [_PACKAGE / "__pycache__"]
    if home and not named and Path(home).expanduser().is_absolute():  # "~" where there is no home
        folders.insert(0, Path(home).expanduser() / "hingeline")
    for base in folders:
        folder = base / "kernels"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


CACHE_FOLDER = _cache_folder()

#: Called before a kernel is compiled, with the file that will keep it, or None.
_LISTENERS: list[Callable[[Path | None], None]] = []
COMPILING = [0.0]  # Seconds that this process has spent on compiling, or on loading what was.
_ASKED_FOR = [0]  # Kernels that this process has compiled or loaded.
#: Kernels of a first fit with defaults: 4 to 7, by structure.
_USUAL = 6


def working_time() -> float:
    """Seconds by a clock that stands still while a kernel is compiled or loaded.

    It is the clock of whatever is told of a fit: how long it took would else depend on what the
    process and the disk had compiled before. Only differences mean something.
    """
    return time.perf_counter() - COMPILING[0]


@contextlib.contextmanager
def _take_turn(file: Path) -> Iterator[None]:
    """Wait while another process compiles the same kernel; whoever ends, or dies, lets go.

    A minute at most, for it may have been stopped. If both compile, nothing but time is lost.
    """
    place, until = int(file.stem[-8:], 16), time.monotonic() + 60.0
    with contextlib.suppress(OSError):  # a folder that knows no locks
        locks = _open_locks(file.parent)
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError, PermissionError):
                fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                break
            time.sleep(0.02)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.lockf(_open_locks(file.parent), fcntl.LOCK_UN, 1, place)


@cache  # and never closed: that would let go of all locks in it
def _open_locks(folder: Path) -> Any:
    return (folder / "locks").open("w")


class _KernelCache(NullCache):
    """Machine code on disk: a file for each kernel, types of arguments and text of the code.

    The name of a file says all that its content depends on, so that a file is never out of date,
    there is no index, and processes that write the same file write the same thing. Copies of
    the package in several folders share it.
    """

    def __init__(self, dispatcher: Any, folder: Path | None) -> None:
        self.dispatcher = dispatcher
        self.folder = folder
        self.keys: dict[Any, str] = {}

    def file(self, signature: Any) -> Path | None:
        kinds, _ = sigutils.normalize_signature(signature)
        kept = all(getattr(found, "cached", True) for found in _classes_in(kinds))
        if self.folder is None or not kept:
            return None
        function = self.dispatcher.py_func
        key = self.keys.get(signature) or machine_code_key(self.dispatcher, signature)
        self.keys[signature] = key  # the one before compiling: a global may be set meanwhile
        name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        return self.folder / f"{name}-{key}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        _ASKED_FOR[0] += 1
        file = self.file(sig)
        if file is not None:
            # Whatever is wrong with a file, the kernel can be compiled.
            with contextlib.suppress(
                OSError, EOFError, ImportError, AttributeError, pickle.PickleError
            ):
                content = memoryview(file.read_bytes())
                if zlib.crc32(content[:-4]).to_bytes(4, "little") == content[-4:]:
                    if time.time() - file.stat().st_mtime > 86400:
                        os.utime(file)  # it is in use
                    build = _compiler.put_together if _compiler else CompileResult._rebuild
                    return build(target_context, *pickle.loads(content))
        for listener in _LISTENERS:
            listener(file)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        file = self.file(sig)
        if file is None or cres.library.has_dynamic_globals or cres.lifted:
            return
        own = file.with_name(f"{uuid.uuid4().hex}.part")
        # A full disk, or another process reads the file on Windows.
        with contextlib.suppress(OSError):
            try:
                content = dumps(_compiler.take_apart(cres) if _compiler else cres._reduce())
                own.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
                own.replace(file)
            finally:
                own.unlink(missing_ok=True)
        _prune(file.parent)

    def compile_in_turn(self, compile: Callable[[Any], Any], signature: Any) -> Any:
        """Compile, or find what another process has compiled meanwhile."""
        began, before = time.perf_counter(), COMPILING[0]
        try:
            file = self.file(signature)
            if fcntl is None or file is None or file.exists():
                return compile(signature)
            with global_compiler_lock, _take_turn(file):
                return compile(signature)
        finally:  # kernels inside it are part of its time
            COMPILING[0] = before + time.perf_counter() - began


@cache  # once in a process that compiles
def _prune(folder: Path) -> None:
    for file in folder.glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _KEEP_DAYS * 86400:
                file.unlink()


@contextlib.contextmanager
def listen_to_compiling(listener: Callable[[Path | None], None]) -> Iterator[None]:
    """Call ``listener`` before a kernel is compiled, with the file that will keep it, or None."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


@contextlib.contextmanager
def count_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Say before a kernel is compiled which one it is of about how many; loaded ones count."""
    before = _ASKED_FOR[0]

    def tell(file: Path | None) -> None:
        number = _ASKED_FOR[0] - before
        say(f"compiling kernel {number}" + (f" of about {_USUAL}" if number <= _USUAL else ""))

    with listen_to_compiling(tell):
        yield


@contextlib.contextmanager
def announce_compiling(again: bool = True) -> Iterator[None]:
    """Say so, once, when a kernel that is called in this context has to be compiled.

    If not ``again``, say it only where nothing was said in this process before.
    """
    if _say_compiling in _LISTENERS:  # the context around this one says it
        yield
        return
    if again:
        _SAID.clear()
    with listen_to_compiling(_say_compiling):
        yield


_SAID: list[bool] = []


def _say_compiling(file: Path | None) -> None:
    if _SAID:
        return
    _SAID.append(True)
    where = "in every run: they are not kept on disk"
    if file is not None:
        where = "once; later runs find them on disk"
    elif CACHE_FOLDER is not None:
        where = "for this structure"
    print(f"hingeline: compiling kernels ({where})…", file=sys.stderr, flush=True)


_OPTIONS = {"no_cfunc_wrapper": True}
if _compiler:
    _OPTIONS["pipeline_class"] = _compiler.Compiler


def _compile(function: F, folder: Path | None, fastmath: Any = FASTMATH) -> F:
    dispatcher = numba.njit(nogil=True, fastmath=fastmath, **_OPTIONS)(function)
    dispatcher._cache = _KernelCache(dispatcher, folder)
    if is_jitted(dispatcher):  # not with NUMBA_DISABLE_JIT
        dispatcher.compile = partial(dispatcher._cache.compile_in_turn, dispatcher.compile)
    return dispatcher


def kernel(function: F) -> F:
    """Compile ``function`` as an entry point: cached on disk, without the GIL."""
    return _compile(function, CACHE_FOLDER)


def strict_kernel(function: F) -> F:
    """A kernel whose arithmetic is done as written."""
    return _compile(function, CACHE_FOLDER, False)


def uncached(function: F) -> F:
    """Compile without the disk cache: for code that may contain a user's own.

    Its text may be anywhere, so that nobody can say what the machine code depends on.
    """
    return _compile(function, None)


class _Implementations(dict[Any, Any]):
    """What has been compiled of a helper with its own ``fastmath``, whatever that of the caller."""

    @staticmethod
    def key(key: Any) -> Any:
        *arguments, flags = key
        return *arguments, getattr(flags, "apart_from_fastmath", flags)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.key(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self.key(key), value)


def _replace_in_kernels(stub: F, make: Callable[..., Any], fastmath: Any) -> F:
    """What numba's ``overload`` does; implementations may annotate arguments as they like."""
    options = {"fastmath": fastmath, **_OPTIONS, "no_cpython_wrapper": True, "nopython": True}
    template = templates.make_overload_template(stub, make, options, False, "never")
    template._impl_cache = _Implementations()
    infer(template)
    infer_global(stub, types.Function(template))
    return stub


def _helper(function: F, fastmath: Any) -> F:
    _HELPERS[function] = fastmath
    return _replace_in_kernels(function, lambda *arguments: function, fastmath)


def helper(function: F) -> F:
    """Mark a function that kernels may call; it remains plain Python for everyone else."""
    return _helper(function, FASTMATH)


def finite_helper(function: F) -> F:
    """A helper whose numbers are never NaN, which lets maxima run in whole vectors."""
    return _helper(function, FASTMATH | {"nnan"})


def strict_helper(function: F) -> F:
    """A helper whose arithmetic is done as written, so that every caller gets the same bits.

    Not to say ``fastmath`` at all would mean that of the caller.
    """
    return _helper(function, False)


def build_as(stub: F, build: Callable[..., Any], result: Any) -> F:
    """``stub``; kernels run what ``build(builder, *arguments)`` builds, with arrays as pointers.

    That is of the type ``result``, and nothing for ``types.void``.
    """
    numbers = {True: types.int64, False: types.float64}

    def define(typing_context: Any, *kinds: Any) -> Any:
        for kind in kinds:
            if isinstance(kind, types.Array) and (kind.ndim, kind.layout) != (1, "C"):
                raise TypingError(f"wants contiguous vectors, got {kind}.")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointers = [
                context.make_array(kind)(context, builder, value).data
                if isinstance(kind, types.Array)
                else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            built = build(builder, *pointers)
            return context.get_dummy_value() if built is None else built

        def widest(kind: Any) -> Any:
            whole = isinstance(kind, types.Integer)
            return kind if isinstance(kind, types.Array) else numbers[whole]

        return result(*map(widest, kinds)), generate

    _BUILT_AS[stub] = define
    template = templates.make_intrinsic_template(stub, define, stub.__name__)
    template.generic = _type_built
    infer(template)
    infer_global(stub, types.Function(template))
    return stub


def _type_built(template: Any, arguments: Any, keywords: Any) -> Any:
    """The signature without the names of arguments: there are no keywords to go by them."""
    found = templates._IntrinsicTemplate.generic(template, arguments, keywords)
    return found.replace(pysig=None)


def by_class(stub: F, choose: Callable[[type], Callable[..., Any] | None]) -> F:
    """Let kernels run what ``choose`` gives for the class of the first argument of ``stub``."""
    _BY_CLASS[stub] = choose

    def pick(first: Any, *rest: Any) -> Callable[..., Any] | None:
        return choose(first.instance_class) if isinstance(first, types.BaseNamedTuple) else None

    return _replace_in_kernels(stub, pick, FASTMATH)


def by_table(table: dict[type, Callable[..., Any]]) -> Any:
    """A function that runs what the table has for the class of its first argument."""

    def stub(first: Any, *rest: Any) -> Any:
        return table[type(first)](first, *rest)

    return by_class(stub, table.get)


def by_reference(python_class: type) -> type:
    """Decorate a NamedTuple of arrays that kernels are given but never make."""
    if not _compiler:
        return python_class

    @typeof_impl.register(python_class)
    def typeof(value: Any, c: Any) -> Any:
        kinds = (typeof_impl(item, c) for item in value)
        # An array that may not be written to is none of another kind: kernels write to no data.
        kinds = (k.copy(readonly=False) if isinstance(k, types.Array) else k for k in kinds)
        return _compiler.Reference(tuple(kinds), type(value))

    return python_class


def prefetch(array: Any, index: int) -> None:
    """Ask the processor to load ``array[index]`` soon; a hint that computes nothing."""


def ask_memory(builder: Any, place: Any) -> None:
    """Build that hint for a place in memory."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    place = builder.bitcast(place, byte)
    builder.call(function, [place, flag(0), flag(3), flag(1)])  # read, keep, data


build_as(prefetch, lambda b, data, index: ask_memory(b, b.gep(data, [index])), types.void)
