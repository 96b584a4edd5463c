"""From functions to machine code: what numba does otherwise for the kernels of this package.

numba optimises each function together with all that it calls and makes machine code of it, so
that the innermost loops go through LLVM once for every function above them. Here a helper is
nothing but a text, unless it is large; an entry point collects the texts of all helpers below it
and hands them to LLVM once. The way from Python to that text is numba's own, without the passes
and the bookkeeping that kernels have no use for.
"""

import gc
import uuid
from collections.abc import Iterable
from functools import reduce
from types import CodeType
from typing import Any, ClassVar

from llvmlite import ir
from llvmlite.binding import Linkage, parse_assembly, parse_bitcode
from numba import _dynfunc, types
from numba.core import cgutils, typed_passes, untyped_passes
from numba.core import ir as numba_ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.environment import lookup_environment
from numba.core.imputils import impl_ret_borrowed
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.extending import NativeValue, lower_getattr_generic, models, register_model, unbox


class _Library(JITCodeLibrary):
    """The code of one function: a text, or machine code if it is an entry point or large.

    What is too large to be put into its callers is the same code for all of them: it is optimised
    and made to run once, and callers find it by its name.
    """

    def __init__(self, codegen: Any, name: str, is_entry_point: bool) -> None:
        super().__init__(codegen, name)
        self.runs = self.is_entry_point = is_entry_point
        self._shared_module: Any = None
        #: Machine code that this one needs, callees first, by the name of the function.
        self.objects: dict[str, Any] = {}

    def add_llvm_module(self, ll_module: Any) -> None:
        self._optimize_functions(ll_module)
        self._final_module.link_in(ll_module)

    def text(self) -> Any:
        """The code of a helper alone, to be linked as often as it is called."""
        module = parse_bitcode(self.bitcode) if self.runs else self._final_module
        for function in module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        return module

    def link_below(self, module: Any, whole: bool = False) -> None:
        """Add the code of all functions that this one calls, and of those that they call.

        LLVM leaves out what nothing refers to yet: a function comes after all its callers, not
        after the first one, which may have lost its call when its own text was simplified.
        Machine code is found by its name, unless the module has to be ``whole``.
        """

        def is_text(library: Any) -> bool:
            own = isinstance(library, _Library)
            return own and not (library.is_entry_point if whole else library.runs)

        callees_first: list[Any] = []
        seen: set[Any] = set()

        def collect(libraries: list[Any]) -> None:
            for library in reversed(libraries):
                if library not in seen:
                    seen.add(library)
                    collect(library._linking_libraries if is_text(library) else [])
                    callees_first.append(library)

        collect(self._linking_libraries)
        for library in reversed(callees_first):
            self._reload_init.update(library._reload_init)
            if is_text(library):
                module.link_in(library.text(), preserve=True)
            elif not hasattr(library, "objects"):
                module.link_in(library._get_module_for_linking(), preserve=True)
        for library in callees_first:
            self.objects |= getattr(library, "objects", {})

    def _get_module_for_linking(self) -> Any:
        if self.is_entry_point:
            return super()._get_module_for_linking()
        if self._shared_module is None:  # numba links into a user's function only what that calls
            self._shared_module = self.text().clone()
            self.link_below(self._shared_module, whole=True)
        return self._shared_module

    def finalize(self) -> None:
        self._raise_if_finalized()
        module = self._final_module
        self._finalized = True
        self.runs = self.is_entry_point or str(module).count("\n  ") > _LARGE
        if not self.runs:
            return
        self.bitcode = module.as_bitcode()
        self._codegen._check_llvm_bugs()
        name = next(f.name for f in module.functions if not f.is_declaration)
        self.link_below(module)
        self._optimize_final_module()
        module.verify()
        self._finalize_final_module()
        found = (lookup_environment(variable.name) for variable in module.global_variables)
        environments = [environment for environment in found if environment is not None]
        for environment in environments:
            self._codegen.set_env(environment.env_name, environment)
        code = self._compiled_object, parse_assembly("").as_bitcode()
        self.objects[name] = (self.name, "object", code), environments

    def get_pointer_to_function(self, name: str) -> int:
        return super().get_pointer_to_function(name) if self.is_entry_point else 0


#: Instructions of a helper that LLVM never puts into its callers.
_LARGE = 300


def take_apart(result: CompileResult) -> Any:
    """What has been compiled of an entry point, and the machine code it needs, for the disk."""
    own = result.fndesc.llvm_func_name
    return {k: v for k, v in result.library.objects.items() if k != own}, result._reduce()


def put_together(context: Any, objects: Any, own: Any) -> CompileResult:
    """The entry point that :func:`take_apart` got, with the machine code it needs."""
    code, *rest = own
    codegen = context.codegen()
    for name, (library, environments) in objects.items():
        if not codegen._engine.is_symbol_defined(name):
            codegen._engine._defined_symbols.add(name)
            codegen.unserialize_library(library)
            for environment in environments:
                codegen.set_env(environment.env_name, environment)
    result = CompileResult._rebuild(context, code, *rest)
    result.library.objects = {**objects, result.fndesc.llvm_func_name: (code, rest[-1])}
    return result


class _Lower(Lower):
    """From numba's representation to LLVM's, without counting references where none is owned."""

    def owns_references(self) -> bool:
        """Whether an array may be freed here: one that a call gives, or that is returned."""

        def is_counted(kind: Any) -> bool:
            return self.context.data_model_manager[kind].contains_nrt_meminfo()

        borrowing = {"cast", "phi", "getattr", "getitem", "static_getitem", "build_tuple"}
        borrowing.add("exhaust_iter")  # ``a, b = …`` of a tuple
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
        if isinstance(self.typeof(name), Reference):
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
        return bool(super().run_pass(state))


def _name_for_callers(library: Any, fndesc: Any, env: Any) -> Any:
    """The object by which numba finds the code of a helper; it cannot be called from Python."""
    name = fndesc.qualname.split(".")[-1]
    return _dynfunc.make_function(fndesc.lookup_module(), name, "", 0, env, (library,))


# A NamedTuple of fifteen arrays is more than a hundred numbers to numba, which passes each of them
# to each function and puts them together again there: more than half of what it writes for LLVM.
# Those that are :func:`by_reference` are an address. A function reads the fields that it names
# where it begins, before it can have written to any memory, so that all of them are as good as
# values. Kernels cannot make such tuples, and do not own what is in them: the caller does.


class Reference(types.NamedTuple):
    """The type of a tuple that stays where it is; ``value`` is that of the tuple itself."""

    def __init__(self, kinds: tuple[Any, ...], python_class: type) -> None:
        super().__init__(kinds, python_class)
        self.value = types.NamedTuple(kinds, python_class)
        self.name = f"*{self.value.name}"


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager.lookup(kind.value).get_value_type().as_pointer())


#: Where CPython keeps the items of a tuple, and NumPy the address of the data of an array. Behind
#: that stand the number of dimensions, the addresses of the shape and of the strides.
_TUPLE_ITEMS = tuple.__basicsize__
_ARRAY_DATA = object.__basicsize__


@unbox(Reference)
def _unbox_reference(kind: Reference, value: Any, c: Any) -> NativeValue:
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
            if isinstance(item, types.BaseTuple) and not isinstance(item, Reference):
                read_tuple(item, found, field)
            else:
                native = c.unbox(item, found)
                assert native.cleanup is None
                builder.store(native.value, field)
                errors.append(native.is_error)

    place = cgutils.alloca_once(builder, c.context.get_value_type(kind.value))
    read_tuple(kind, value, place)
    return NativeValue(place, is_error=reduce(builder.or_, errors, cgutils.false_bit))


@lower_getattr_generic(Reference)
def _read_field(context: Any, builder: Any, kind: Reference, value: Any, name: str) -> Any:
    index = kind.fields.index(name)
    fields = vars(builder.function).setdefault("fields_read", {})
    if (value, index) not in fields:
        with builder.goto_entry_block():
            fields[value, index] = builder.load(cgutils.gep_inbounds(builder, value, 0, index))
    return impl_ret_borrowed(context, builder, kind.types[index], fields[value, index])


class _Flags(Flags):
    """Flags of a function; those that its callees see are one object wherever they are equal.

    numba finds the compiled callee by the flags of the caller too. It compares them thousands of
    times, and would compile a helper again for a caller that differs only in its wrapper.
    A copy of shared ones is private: numba changes it, for the code of an array expression.
    """

    shared: ClassVar["dict[str, _Flags]"] = {}
    apart_from_fastmath = ""
    process: ClassVar[str] = uuid.uuid4().hex[:8]  # functions that other processes compiled differ
    __hash__ = object.__hash__

    def get_mangle_string(self) -> str:
        return super().get_mangle_string() + self.process

    def __eq__(self, other: object) -> bool:
        return self is other

    def copy(self) -> "_Flags":
        flags = _Flags(self)
        if self.apart_from_fastmath:
            return flags
        flags.no_cpython_wrapper = True
        flags.release_gil = False
        values = flags.values()
        flags = self.shared.setdefault(repr(values), flags)
        flags.apart_from_fastmath = repr({**values, "fastmath": None})
        return flags


class Compiler(CompilerBase):
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
        passes = PassManager("hingeline")
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
