"""The one way this package compiles code.

``kernel`` makes an entry point: compiled at its first call, cached on disk, releasing the GIL.
``helper`` makes a function that kernels call; it stays a plain Python function outside them.
``built_as`` and ``by_class`` say what compiled code runs instead of a plain function.

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
each process, which is slower but works.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import marshal
import os
import pickle
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache, reduce
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeVar

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import Linkage
from numba import _dynfunc, types
from numba.core import cgutils, sigutils, typed_passes, untyped_passes
from numba.core import ir as numba_ir
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, _pass_registry, register_pass
from numba.core.environment import lookup_environment
from numba.core.event import trigger_event
from numba.core.imputils import impl_ret_borrowed
from numba.core.lowering import Lower
from numba.core.serialize import dumps
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import (
    _IntrinsicTemplate,
    infer,
    infer_global,
    make_intrinsic_template,
    make_overload_template,
)
from numba.extending import (
    NativeValue,
    is_jitted,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

F = TypeVar("F", bound=Callable[..., Any])

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

_PACKAGE = Path(__file__).resolve().parent
#: Machine code that nobody asked for in so many days is removed.
_KEEP_DAYS = 30


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
    """Walks over all the code that a kernel can reach when it is called with some classes.

    From each function to the values of the global names, attributes of modules and closures that
    its code mentions; from a plain function to what kernels run instead of it. A name that is
    only an attribute but has a namesake among the globals counts too: that errs to the safe side.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self.digest = hashlib.sha256()
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # so that no id in ``seen`` is given again
        self.classes: list[type] = []
        self.stubs: list[Callable[..., Any]] = []
        for found in classes:
            self.visit(found)

    def note(self, *parts: Any) -> None:
        for part in parts:
            text = part if isinstance(part, bytes) else str(part).encode()
            self.digest.update(len(text).to_bytes(8, "little") + text)

    def visit(self, value: Any) -> None:
        """Add a value and all that it leads to."""
        if isinstance(value, _PLAIN):
            self.note(type(value).__name__, repr(value))
            return
        if isinstance(value, ModuleType):
            self.note(value.__name__)  # what is used of it is in the names of the function
            return
        if isinstance(value, (set, frozenset)):
            self.note("set", *sorted(map(repr, value)))
            return
        if isinstance(value, np.ndarray):
            self.note("array", value.dtype.str, value.shape, value.tobytes())
            return
        if isinstance(value, (tuple, list, dict)):
            self.note(type(value).__name__, len(value))
            for item in value.items() if isinstance(value, dict) else value:
                self.visit(item)
            return
        if id(value) in self.seen:
            self.note(getattr(value, "__qualname__", type(value).__qualname__))
            return
        self.seen.add(id(value))
        self.kept.append(value)
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
        elif isinstance(value, (staticmethod, classmethod)):
            self.visit(value.__func__)
        elif isinstance(value, property):
            self.visit(value.fget)
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
        scope = function.__globals__
        modules = []
        for name in sorted(names & scope.keys()):
            value = scope[name]
            self.note(name)
            self.visit(value)
            if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _FOREIGN:
                modules.append(value)
        for module in modules:
            for name in sorted(names & vars(module).keys()):
                self.note(module.__name__, name)
                self.visit(vars(module)[name])

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
    walk = _Dependencies(_classes_in(arguments))
    walk.note(*map(str, arguments), result)
    walk.visit(dispatcher)
    names = list(globals())
    for name in names[names.index("_Library") : names.index("_OPTIONS")]:  # "Compiling once"
        part = globals()[name]
        for value in vars(part).values() if isinstance(part, type) else [part]:
            if isinstance(value, FunctionType):
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

_LISTENERS: list[Callable[[bool], None]] = []


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

    def file(self, signature: Any) -> Path:
        assert self.folder is not None
        function = self.dispatcher.py_func
        key = self.keys.get(signature) or machine_code_key(self.dispatcher, signature)
        self.keys[signature] = key  # the one before compiling: a global may be set meanwhile
        name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        return self.folder / f"{name}-{key}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        if self.folder is not None:
            file = self.file(sig)
            # Whatever is wrong with a file, the kernel can be compiled.
            with contextlib.suppress(
                OSError, EOFError, ImportError, AttributeError, pickle.PickleError
            ):
                payload = pickle.loads(file.read_bytes())
                if time.time() - file.stat().st_mtime > 86400:
                    os.utime(file)  # it is in use
                return CompileResult._rebuild(target_context, *payload)
        for listener in _LISTENERS:
            listener(self.folder is not None)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        if self.folder is None or cres.library.has_dynamic_globals or cres.lifted:
            return
        file = self.file(sig)
        own = file.with_name(f"{uuid.uuid4().hex}.part")
        try:
            own.write_bytes(dumps(cres._reduce()))
            own.replace(file)
        except OSError:  # a full disk, or another process reads the file on Windows
            with contextlib.suppress(OSError):
                own.unlink()
        _prune(self.folder)


@cache  # once in a process that compiles
def _prune(folder: Path) -> None:
    for file in folder.glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _KEEP_DAYS * 86400:
                file.unlink()


@contextlib.contextmanager
def listen_to_compiling(listener: Callable[[bool], None]) -> Iterator[None]:
    """Call ``listener`` before a kernel is compiled, with whether it will be kept on disk."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def announce_compiling() -> AbstractContextManager[None]:
    """Say so, once, when a kernel that is called in this context has to be compiled."""
    said: list[bool] = []

    def say(kept: bool) -> None:
        if not said:
            said.append(True)
            if kept:
                where = "once; later runs find them on disk"
            elif CACHE_FOLDER is not None:
                where = "for this structure"
            else:
                where = "in every run: they are not kept on disk"
            print(f"hingeline: compiling kernels ({where})…", file=sys.stderr, flush=True)

    return listen_to_compiling(say)


# numba optimises each function together with all that it calls and makes machine code of it, so
# that the innermost loops go through LLVM once for every function above them. Here a helper is
# nothing but a text; an entry point collects the texts of all helpers below it and hands them to
# LLVM once. The way from Python to that text is numba's own, without the passes and the bookkeeping
# that kernels have no use for.


class _Library(JITCodeLibrary):
    """The code of one function; only that of an entry point is optimised and made to run."""

    def __init__(self, codegen: Any, name: str, is_entry_point: bool) -> None:
        super().__init__(codegen, name)
        self.is_entry_point = is_entry_point
        self._shared_module: Any = None

    def add_llvm_module(self, ll_module: Any) -> None:
        self._optimize_functions(ll_module)
        self._final_module.link_in(ll_module)

    def text(self) -> Any:
        """The code of a helper alone, to be linked as often as it is called."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        return self._final_module

    def link_below(self, module: Any) -> None:
        """Add the code of all functions that this one calls, and of those that they call."""
        found = set()
        todo = self._linking_libraries[::-1]
        while todo:
            library = todo.pop()
            if library in found:
                continue
            found.add(library)
            self._reload_init.update(library._reload_init)
            if isinstance(library, _Library) and not library.is_entry_point:
                todo += library._linking_libraries[::-1]
                module.link_in(library.text(), preserve=True)
            else:
                module.link_in(library._get_module_for_linking(), preserve=True)

    def _get_module_for_linking(self) -> Any:
        if self.is_entry_point:
            return super()._get_module_for_linking()
        if self._shared_module is None:  # numba links into a user's function only what that calls
            self._shared_module = self.text().clone()
            self.link_below(self._shared_module)
        return self._shared_module

    def finalize(self) -> None:
        self._raise_if_finalized()
        if self.is_entry_point:
            self._codegen._check_llvm_bugs()
            self.link_below(self._final_module)
            self._optimize_final_module()
            self._final_module.verify()
            self._finalize_final_module()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return super().get_pointer_to_function(name) if self.is_entry_point else 0


class _Lower(Lower):
    """From numba's representation to LLVM's, without counting references where none is owned."""

    def owns_references(self) -> bool:
        """Whether an array may be freed here: one that a call gives, or that is returned."""

        def is_counted(kind: Any) -> bool:
            return self.context.data_model_manager[kind].contains_nrt_meminfo()

        borrowing = {"cast", "phi", "getattr", "getitem", "static_getitem", "build_tuple"}
        kinds = self.fndesc.typemap
        return is_counted(self.fndesc.restype) or any(
            isinstance(assignment.value, numba_ir.Expr)
            and assignment.value.op not in borrowing
            and is_counted(kinds[assignment.target.name])
            for block in self.blocks.values()
            for assignment in block.find_insts(numba_ir.Assign)
        )

    # A tuple by reference is an argument, or a field of one that is read where a function begins:
    # the same all the way, so that no variable is needed.

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        if isinstance(self.typeof(name), _Reference):
            assert self.references.setdefault(name, value) is value
        else:
            super().storevar(value, name, argidx)

    def loadvar(self, name: str) -> Any:
        return self.references[name] if name in self.references else super().loadvar(name)

    def delvar(self, name: str) -> None:
        if name not in self.references:
            super().delvar(name)

    def lower(self) -> None:
        self.references: dict[str, Any] = {}
        if not self.owns_references():
            self.context.enable_nrt = False  # of this function: the context is a copy
        super().lower()
        self.context.enable_nrt = True  # for the wrapper, which counts what Python owns


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "hingeline_lowering"
    lowering_class = _Lower

    def run_pass(self, state: Any) -> bool:
        is_entry_point = not state.flags.no_cpython_wrapper
        codegen = state.targetctx.codegen()
        state.library = _Library(codegen, state.func_id.func_qualname, is_entry_point)
        state.library.enable_object_caching()
        if not is_entry_point:
            state.targetctx.get_executable = _name_for_callers  # of this function: it is a copy
        super().run_pass(state)
        if is_entry_point:
            for variable in state.library._final_module.global_variables:
                environment = lookup_environment(variable.name)
                if environment is not None:
                    codegen.set_env(variable.name, environment)
        return True


def _name_for_callers(library: Any, fndesc: Any, env: Any) -> Any:
    """The object by which numba finds the code of a helper; it cannot be called from Python."""
    name = fndesc.qualname.split(".")[-1]
    return _dynfunc.make_function(fndesc.lookup_module(), name, "", 0, env, (library,))


# A NamedTuple of fifteen arrays is more than a hundred numbers to numba, which passes each of them
# to each function and puts them together again there: more than half of what it writes for LLVM.
# Those that are :func:`by_reference` are an address. A function reads the fields that it names
# where it begins, before it can have written to any memory, so that all of them are as good as
# values. Kernels cannot make such tuples, and do not own what is in them: the caller does.


class _Reference(types.NamedTuple):
    """The type of a tuple that stays where it is; ``value`` is that of the tuple itself."""

    def __init__(self, kinds: tuple[Any, ...], python_class: type) -> None:
        super().__init__(kinds, python_class)
        self.value = types.NamedTuple(kinds, python_class)
        self.name = f"*{self.value.name}"


@register_model(_Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Reference) -> None:
        super().__init__(manager, kind, manager.lookup(kind.value).get_value_type().as_pointer())


#: Where CPython keeps the items of a tuple, and NumPy the address of the data of an array. Behind
#: that stand the number of dimensions, the addresses of the shape and of the strides.
_TUPLE_ITEMS = tuple.__basicsize__
_ARRAY_DATA = object.__basicsize__


@unbox(_Reference)
def _unbox_reference(kind: _Reference, value: Any, c: Any) -> NativeValue:
    builder = c.builder
    word = c.context.get_value_type(types.intp)

    def word_at(place: Any, offset: int) -> Any:
        place = builder.gep(builder.bitcast(place, c.pyapi.voidptr), [word(offset)])
        return builder.load(builder.bitcast(place, word.as_pointer()))

    def read_array(array_kind: types.Array) -> Any:
        """A function that lays out one kind of array: there are many arrays of few kinds."""
        layout = c.context.get_value_type(array_kind)
        signature = ir.FunctionType(ir.VoidType(), [word, layout.as_pointer()])
        name = f"read.{array_kind.ndim}.{array_kind.dtype}"
        if name in builder.module.globals:
            return builder.module.globals[name]
        function = ir.Function(builder.module, signature, name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inner = ir.IRBuilder(function.append_basic_block())
        place = inner.inttoptr(function.args[0], word.as_pointer())

        def load(address: Any, index: int) -> Any:
            return inner.load(inner.gep(address, [word(index)]))

        start = 8 * _ARRAY_DATA // word.width
        shape, strides = (inner.inttoptr(load(place, start + k), word.as_pointer()) for k in (2, 3))
        array = c.context.make_array(array_kind)(c.context, inner)
        lengths = [load(shape, k) for k in range(array_kind.ndim)]
        array.meminfo = array.meminfo.type(None)
        array.parent = array.parent.type(None)
        array.nitems = reduce(inner.mul, lengths)
        array.itemsize = word(c.context.get_abi_sizeof(c.context.get_data_type(array_kind.dtype)))
        array.data = inner.inttoptr(load(place, start), array.data.type)
        array.shape = cgutils.pack_array(inner, lengths)
        array.strides = cgutils.pack_array(
            inner, [load(strides, k) for k in range(array_kind.ndim)]
        )
        inner.store(array._getvalue(), function.args[1])
        inner.ret_void()
        return function

    errors = []

    def read_tuple(kinds: Iterable[Any], items: Any, place: Any) -> None:
        for index, item in enumerate(kinds):
            found = word_at(items, _TUPLE_ITEMS + word.width // 8 * index)
            field = cgutils.gep_inbounds(builder, place, 0, index)
            if isinstance(item, types.Array):
                builder.call(read_array(item), [found, field])
                continue
            found = builder.inttoptr(found, c.pyapi.pyobj)
            if isinstance(item, types.BaseTuple) and not isinstance(item, _Reference):
                read_tuple(item, found, field)
            else:
                native = c.unbox(item, found)
                assert native.cleanup is None
                builder.store(native.value, field)
                errors.append(native.is_error)

    place = cgutils.alloca_once(builder, c.context.get_value_type(kind.value))
    read_tuple(kind, value, place)
    return NativeValue(place, is_error=reduce(builder.or_, errors, cgutils.false_bit))


@lower_getattr_generic(_Reference)
def _read_field(context: Any, builder: Any, kind: _Reference, value: Any, name: str) -> Any:
    index = kind.fields.index(name)
    fields = vars(builder.function).setdefault("fields_read", {})
    if (value, index) not in fields:
        with builder.goto_entry_block():
            fields[value, index] = builder.load(cgutils.gep_inbounds(builder, value, 0, index))
    return impl_ret_borrowed(context, builder, kind.types[index], fields[value, index])


def by_reference(python_class: type) -> type:
    """Decorate a NamedTuple of arrays that kernels are given but never make."""

    @typeof_impl.register(python_class)
    def typeof(value: Any, c: Any) -> _Reference:
        kinds = (typeof_impl(item, c) for item in value)
        # An array that may not be written to is none of another kind: kernels write to no data.
        kinds = (k.copy(readonly=False) if isinstance(k, types.Array) else k for k in kinds)
        return _Reference(tuple(kinds), type(value))

    return python_class


class _Flags(Flags):
    """Flags of a function; those that its callees see are one object wherever they are equal.

    numba finds the compiled callee by the flags of the caller too. It compares them thousands of
    times, and would compile a helper again for a caller that differs only in its wrapper.
    A copy of shared ones is private: numba changes it, for the code of an array expression.
    """

    shared: ClassVar[dict[str, _Flags]] = {}
    apart_from_fastmath = ""
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def copy(self) -> _Flags:
        flags = _Flags(self)
        if self.apart_from_fastmath:
            return flags
        flags.no_cpython_wrapper = True
        flags.release_gil = False
        values = flags.values()
        flags = self.shared.setdefault(repr(values), flags)
        flags.apart_from_fastmath = repr({**values, "fastmath": None})
        return flags


class _Passes(PassManager):
    @global_compiler_lock
    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:
        pss.analysis = self._analysis
        name = f"{pss.name()} [{internal_state.func_id.func_qualname}]"
        with trigger_event("numba:run_pass", data={"name": name}):
            changed = pss.run_pass(internal_state)
        if changed and _pass_registry.get(type(pss)).mutates_CFG:
            internal_state.func_ir.blocks = canonicalize_cfg(internal_state.func_ir.blocks)


class _Compiler(CompilerBase):
    def __init__(self, *arguments: Any) -> None:
        *before, flags, local_types = arguments
        super().__init__(*before, _Flags(flags), local_types)

    def compile_extra(self, function: Any) -> Any:
        if not gc.isenabled():
            return super().compile_extra(function)
        gc.disable()  # looking for garbage would take a twelfth of the time
        try:
            return super().compile_extra(function)
        finally:
            gc.enable()

    def define_pipelines(self) -> list[PassManager]:
        passes = _Passes("hingeline")
        has_functions = any(isinstance(c, CodeType) for c in self.state.func_id.code.co_consts)
        for one in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            *([untyped_passes.InlineClosureLikes] if has_functions else []),
            untyped_passes.RewriteSemanticConstants,
            untyped_passes.DeadBranchPrune,
            untyped_passes.GenericRewrites,
            untyped_passes.RewriteDynamicRaises,
            *([untyped_passes.MakeFunctionToJitFunction] if has_functions else []),
            untyped_passes.ReconstructSSA,
            typed_passes.NopythonTypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.InlineOverloads,
            typed_passes.NopythonRewrites,
            typed_passes.IRLegalization,
            _Lowering,
            typed_passes.NoPythonBackend,
        ):
            passes.add_pass(one, one._name)
        passes.finalize()
        return [passes]


_OPTIONS = {"no_cfunc_wrapper": True, "pipeline_class": _Compiler}


def _compile(function: F, folder: Path | None) -> F:
    dispatcher = numba.njit(nogil=True, fastmath=FASTMATH, **_OPTIONS)(function)
    dispatcher._cache = _KernelCache(dispatcher, folder)
    return dispatcher


def kernel(function: F) -> F:
    """Compile ``function`` as an entry point: cached on disk, without the GIL."""
    return _compile(function, CACHE_FOLDER)


def uncached(function: F) -> F:
    """Compile without the disk cache: for kernels that contain a user's own code.

    Their text may be anywhere, so that nobody can say what the machine code depends on.
    """
    return _compile(function, None)


class _Implementations(dict[Any, Any]):
    """What has been compiled of a helper with its own ``fastmath``, whatever that of the caller."""

    @staticmethod
    def key(key: Any) -> Any:
        *arguments, flags = key
        return *arguments, flags.apart_from_fastmath if isinstance(flags, _Flags) else flags

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.key(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self.key(key), value)


def _replace_in_kernels(stub: F, make: Callable[..., Any], fastmath: Any) -> F:
    """What numba's ``overload`` does; implementations may annotate arguments as they like."""
    options = {"fastmath": fastmath, **_OPTIONS, "no_cpython_wrapper": True, "nopython": True}
    template = make_overload_template(stub, make, options, False, "never")
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


def built_as(stub: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate what builds the code that kernels run in place of ``stub``, as an intrinsic does."""

    def register(define: F) -> F:
        _BUILT_AS[stub] = define
        template = make_intrinsic_template(stub, define, stub.__name__)
        template.generic = _type_built
        infer(template)
        infer_global(stub, types.Function(template))
        return define

    return register


def _type_built(template: Any, arguments: Any, keywords: Any) -> Any:
    """The signature without the names of arguments: there are no keywords to go by them."""
    return _IntrinsicTemplate.generic(template, arguments, keywords).replace(pysig=None)


def by_class(stub: F, choose: Callable[[type], Callable[..., Any] | None]) -> F:
    """Let kernels run what ``choose`` gives for the class of the first argument of ``stub``."""
    _BY_CLASS[stub] = choose

    def pick(first: Any, *rest: Any) -> Callable[..., Any] | None:
        return choose(first.instance_class) if isinstance(first, types.BaseNamedTuple) else None

    return _replace_in_kernels(stub, pick, FASTMATH)


def prefetch(array: Any, index: int) -> None:
    """Ask the processor to load ``array[index]`` soon; a hint that computes nothing."""


@built_as(prefetch)
def _build_prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, index), generate
