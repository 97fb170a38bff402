"""Loops compiled to machine code, once per machine: the decorator ``kernel`` and the folder that keeps what it made.

How it works. A kernel that Python calls is an *entry*: machine code, with all that it calls in it, optimised as a whole
and kept on disk. A kernel that kernels call is kept as intermediate code only, which entries take in: it is translated
once and never made into machine code of its own. Which of the two a kernel is shows when it is called; it may be both.

What is kept follows its sources. It lies in one folder whose name is a digest of every source that can change it (the
files with kernels, and those that they import), of the compiler's version and of the CPU; inside it, entries are named
by module, function, types and the constants that are read. So an edit of a kernel leaves no caller of it as it was, two
checkouts of equal kernels share a folder, and there is nothing to compare when one is read. Nothing is kept by a
process whose sources changed while it ran, nor of a kernel that stands in no such source: in a notebook, or under
another name of the decorator. Each lies in a file of its own that appears whole or not at all, with a check sum:
processes may compile at once, and a damaged file is one that is not there.

A kernel in which arrays are read millions of times spends most of its time on counting who holds them: twice per array
and call, with a lock on the bus. ``lean=True`` leaves that out, for kernels that neither make arrays nor hand any out;
one that does is refused when it is compiled.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import logging
import operator
import os
import pickle
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite.ir import LiteralStructType
from numba import types
from numba.core import cgutils, compiler, config, event, ir, serialize, sigutils, targetconfig, typing
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.imputils import impl_ret_borrowed, lower_builtin, lower_cast, lower_getattr_generic
from numba.core.pythonapi import NativeValue
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import infer_getattr, infer_global
from numba.extending import models, overload, register_model, typeof_impl, unbox
from numba.np import arrayobj, linalg
from numba.np.numpy_support import as_dtype

LOG = logging.getLogger(__name__)
MARK = b"@" + b"kernel"  # what a file that holds kernels holds, but not this one
KEPT_S = 24 * 3600.0
"""A folder of other sources goes when nobody has used it for so long."""
NEWEST = 3  # such folders stay in any case: installations side by side
OPTIONS = {"nopython": True, "boundscheck": None, "error_model": "numpy", "no_cfunc_wrapper": True}
ENTRY, INNER = "entry", "inner"  # endings of files


def _began_after_boot_ns() -> int:
    """When this process began, since the machine did, rounded up by a tick: nothing is imported so early."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return (ticks + 1) * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.clock_gettime_ns(BOOT_CLOCK)


def _on_the_wall_ns(after_boot_ns: int) -> int:
    """A time since boot as files tell times, by what the clock says now."""
    return time.time_ns() - time.clock_gettime_ns(BOOT_CLOCK) + after_boot_ns


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
BEGAN_AFTER_BOOT_NS = _began_after_boot_ns()  # a process that is forked later has what this one imported
BEGAN_NS = _on_the_wall_ns(BEGAN_AFTER_BOOT_NS)


def _began_ns() -> int:
    """When this process began as files tell times: by the clock as it was then or is now, whichever is earlier.

    A clock that is set back while a process runs would make what is edited later look older than the process.
    """
    return min(BEGAN_NS, _on_the_wall_ns(BEGAN_AFTER_BOOT_NS))


def _no_blas() -> NoReturn:
    """What numba's products of arrays are told, which look for scipy's BLAS when the first kernel runs.

    That imports a quarter of a CPU second of modules. They have a way without it; ``np.dot`` of others stays as it is.
    """
    raise ImportError


_ensure_blas, linalg.ensure_blas = linalg.ensure_blas, _no_blas
import_module("numba.np.arraymath")
linalg.ensure_blas = _ensure_blas


def _other_shape(given: Any, asked: Any) -> NoReturn:
    """An array is assigned to a part of another that has another shape: in kernels only."""
    raise NotImplementedError


@overload(_other_shape)
def _say_other_shape(given, asked):  # type: ignore[no-untyped-def]
    """Without the two shapes in it: code that writes them down took 3 of the 40 CPU s of `watch`."""

    def say(given, asked):  # type: ignore[no-untyped-def]
        raise ValueError("cannot assign slice from input of different size")

    return say


arrayobj.raise_with_shape_context = _other_shape


class UncachedWarning(UserWarning):
    """What is compiled cannot be kept, and will be compiled again by the next process."""


# -------------------------------------------------------------------------------------------------------- the decorator
def kernel(
    function: Callable[..., Any] | None = None, *, lean: bool = False, flat: bool = False, fastmath: bool = False
) -> Any:
    """Compile a function of a module when it is first called, once per types of arguments.

    Parameters
    ----------
    lean
        Do not count who holds the arrays. ``TypeError`` when compiled, if the kernel returns an array or calls a kernel
        that does; one that makes an array does not compile.
    flat
        Named tuples are handed over field by field, not by their place: for small kernels that are called in every
        round of a loop that counts. They take longer to compile.
    fastmath
        Sums may be taken in any order.
    """
    if function is None:
        return lambda each: kernel(each, lean=lean, flat=flat, fastmath=fastmath)
    if config.DISABLE_JIT:
        return function
    assert function.__closure__ is None, "kernels are kept by name: they stand in modules, not in functions"
    return Kernel(function, flat=flat, targetoptions={**OPTIONS, "fastmath": fastmath, "_nrt": not lean})


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A compiled function: ``overloads`` are its entries, ``inner`` what kernels take in, by types of arguments."""

    def __init__(self, py_func: Callable[..., Any], *rest: Any, flat: bool = False, **options: Any) -> None:
        super().__init__(py_func, *rest, **options)
        self.flat = flat
        self.inner: dict[tuple[Any, ...], Any] = {}
        self._held: list[Any] = []  # environments of kernels inside: machine code points to them
        self._names = _names(py_func.__code__)
        self._constants: list[str] | None = None  # that it read when it was first compiled, or one that calls it

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """For a kernel that calls this one; constants are compiled as any number."""
        pysig, folded = self._compiler.fold_argument_types(args, kws)
        folded = tuple(_handed(each, self.flat) for each in folded)
        self.compile_inner(tuple(types.unliteral(each) for each in folded))
        name = self.py_func.__name__
        signatures = [each.signature for each in self.inner.values()]
        return (
            typing.make_concrete_template(f"CallTemplate({name})", key=name, signatures=signatures),
            pysig,
            folded,
            {},
        )

    def get_overload(self, sig: Any) -> Any:
        """The key by which the code of a calling kernel finds this one."""
        return self.inner[tuple(sigutils.normalize_signature(sig)[0])].entry_point

    def compile(self, sig: Any) -> Any:
        """The entry for these types; for Python."""
        args, result_type = sigutils.normalize_signature(sig)
        with global_compiler_lock, self._compiling_counter:
            if args not in self.overloads:
                handed = tuple(_handed(each, self.flat) for each in args)
                file = self._file(handed, ENTRY)
                with _alone(file):
                    made = self._entry(handed, result_type, file)
                    self._insert([each._code for each in args], made.entry_point, made.objectmode)
                    self.overloads[args] = made
            return self.overloads[args].entry_point

    def entry(self, *like: Any) -> Callable[..., Any]:
        """The entry for arguments of these types, which looks at nobody's type, and takes the ``place`` of a row in its
        stead: to look at objects costs a process that has slept, and whose caches are cold, more than most kernels."""
        kinds = (self.typeof_pyval(each) for each in like)
        made: Callable[..., Any] = self.compile(
            tuple(_PlaceType(each.of) if isinstance(each, _RowType) else each for each in kinds)
        )
        return made

    def compile_inner(self, args: tuple[Any, ...]) -> None:
        """The intermediate code for these types; for kernels."""
        with global_compiler_lock, self._compiling_counter:
            if args not in self.inner:
                file = self._file(args, INNER)
                with _alone(file):
                    found = self.inner[args] = self._intermediate(args, file)
                self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])

    def _entry(self, args: Any, result_type: Any, file: Path | None) -> Any:
        """As an earlier process has kept it, else made and kept."""
        self.targetctx.refresh()
        state = _read(file)
        if state is not None:
            with _interrupted_later():
                found = compiler.CompileResult._rebuild(self.targetctx, *state)
            self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
            self._hold(found.referenced_envs)
            return found
        made = self._translated(args, result_type, None)
        self._hold(made._find_referenced_environments())
        if not made.library.has_dynamic_globals:
            self._write(file, made._replace(type_annotation="")._reduce())
        return made

    def _intermediate(self, args: Any, file: Path | None) -> Any:
        """As an earlier process has kept it, else made and kept."""
        name, own_name = self.py_func.__qualname__, _Name(self.py_func.__qualname__)
        library = _Intermediate(self.targetctx.codegen(), name, optimised=self.targetoptions["_nrt"])
        self.targetctx.refresh()
        state = _read(file)
        if state is not None:
            code, entries, environments = state
            self._held.extend(environments)
            for initialise in entries["reload_init"]:
                initialise()
            library.become(code)
            context = {"typing_context": self.typingctx, "target_context": self.targetctx}
            return compiler.compile_result(**context, **entries, library=library, entry_point=own_name)
        made = self._translated(args, None, library)
        library._ensure_finalized()
        made.fndesc.typemap = made.fndesc.calltypes = None  # are not needed any more, and cannot be kept
        entries = {each: getattr(made, each) for each in ("signature", "fndesc", "environment", "reload_init")}
        if not library.has_dynamic_globals:
            code = library._get_module_for_linking().as_bitcode()
            self._write(file, (code, entries, made._find_referenced_environments()))
        return made._replace(entry_point=own_name)

    def _translated(self, args: Any, result_type: Any, library: _Intermediate | None) -> Any:
        """Compile: to intermediate code in a library, to machine code where that is ``None``."""
        self.targetctx.refresh()
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_compile = library is not None
        if library is None:
            library = _Machine(self.targetctx.codegen(), self.py_func.__qualname__)
            library.enable_object_caching()
        given = (self.typingctx, self.targetctx, self.py_func, args, result_type, flags, self.locals, library)
        about = {"dispatcher": self, "args": args, "return_type": result_type}
        LOG.info("compiling %s.%s", self.py_func.__module__, self.py_func.__qualname__)
        with event.trigger_event("numba:compile", data=about), _intermediate(self.targetctx), _quickly(self.targetctx):
            made = compiler.compile_extra(*given)
        if "Shared(" in str(made.signature.return_type):  # its place is gone when whoever made it has ended
            raise TypeError(
                f"the kernel {self.py_func.__qualname__} returns a tuple that it was handed; return its arrays"
            )
        if not flags.nrt:
            self._refuse_arrays(made)
        return made

    def _hold(self, environments: Any) -> None:
        codegen = self.targetctx.codegen()
        for each in environments:
            self._held.append(each)
            if codegen._engine.get_global_value_address(each.env_name):
                codegen.set_env(each.env_name, each)

    def _write(self, file: Path | None, state: Any) -> None:
        if file is not None and not _changed(self._package()):
            _write(file, state)

    def _package(self) -> str:
        return str(self.py_func.__module__).partition(".")[0]

    def _file(self, args: Any, kind: str) -> Path | None:
        """Where it is kept; ``None``: nowhere."""
        kept, read = _kept(self._package()), self._read_constants()
        if kept is None or read is None or os.path.abspath(self.py_func.__code__.co_filename) not in kept[1]:
            return None
        about = sha256(repr((*map(_identity, args), read)).encode()).hexdigest()[:20]
        return kept[0] / f"{self.py_func.__module__}.{self.py_func.__qualname__}-{about}.{kind}"

    def _read_constants(self) -> list[list[str]] | None:
        """What it and the kernels that it calls read of their modules: it is compiled in as it is now.

        ``None`` where one of them was compiled, or may have been, with another value.
        """
        found, reached, same = [], {id(self): self}, True
        calls = [self]
        while calls:
            each = calls.pop()
            space = each.py_func.__globals__
            read = []
            for name in each._names:
                value = space.get(name)
                within = vars(value) if isinstance(value, ModuleType) else {}
                for deeper in (value, *(within[other] for other in each._names if other in within)):
                    if isinstance(deeper, Kernel):
                        read.append(f"{name} {deeper.py_func.__module__}.{deeper.py_func.__qualname__}")
                        if id(deeper) not in reached:
                            reached[id(deeper)] = deeper
                            calls.append(deeper)
                    elif (text := _constant(deeper)) is not None:
                        read.append(f"{name} {text}")
            if each._constants is None:
                each._constants = read
            same = same and each._constants == read
            found.append(read)
        return found if same else None

    def _refuse_arrays(self, made: Any) -> None:
        """Nobody counts who holds the arrays of a lean kernel: who is handed one would give it up once too often."""
        holds = self.targetctx.data_model_manager
        handed = [("returns", made.signature.return_type)]
        for call, signature in made.type_annotation.calltypes.items():
            if isinstance(call, ir.Expr) and call.op == "call":
                callee = made.type_annotation.typemap[call.func.name]
                if isinstance(callee, types.Dispatcher):
                    handed.append((f"calls {callee.dispatcher.py_func.__name__}, which returns", signature.return_type))
        for how, each in handed:
            if holds[each].contains_nrt_meminfo():
                raise TypeError(f"the lean kernel {self.py_func.__qualname__} {how} {each}; make it a plain kernel")


def _names(code: CodeType) -> tuple[str, ...]:
    """Of all that a function reads by name, in its comprehensions too."""
    inside = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return tuple(dict.fromkeys(code.co_names + tuple(name for names in inside for name in names)))


def _constant(value: Any) -> str | None:
    """All of a value that is compiled in; ``None`` where it is no number, text, array or tuple of them."""
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        return f"{type(value).__name__}({', '.join(str(_constant(each)) for each in value)})"
    return None


def _identity(kind: types.Type) -> str:
    """The name of a type, and the class and the fields of every named tuple in it: numba's own name has neither."""
    of = getattr(kind, "instance_class", None)
    within = kind if isinstance(kind, types.BaseTuple) else [getattr(kind, name, None) for name in ("dtype", "type")]
    inside = [_identity(each) for each in within if isinstance(each, types.Type)]
    about = "" if of is None else f"{of.__module__}.{of.__qualname__}{getattr(of, '_fields', '')}"
    return f"{kind} {about} {inside}" if about or inside else str(kind)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Control-C waits for the end: while machine code is made, it would strike where the compiler swallows it."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *about: came.append(about))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(*came[0])


class _Name(str):
    """By which the compiler knows intermediate code; each is its own."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class _Machine(JITCodeLibrary):  # type: ignore[misc]
    """Code of an entry."""

    def _finalize_specific(self) -> None:
        with _interrupted_later():
            super()._finalize_specific()


class _Intermediate(JITCodeLibrary):  # type: ignore[misc]
    """Code of a kernel and of those it calls; optimised and made into machine code where an entry takes it in."""

    def __init__(self, codegen: Any, name: str, *, optimised: bool = True) -> None:
        super().__init__(codegen, name)
        self._optimised = optimised  # by itself before it is taken in, too

    def _optimize_functions(self, ll_module: Any) -> None:
        if self._optimised:
            super()._optimize_functions(ll_module)
        else:
            ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Counts of references that cancel each other are left out; all else is done where an entry takes it in."""
        passes, builder = self._codegen._module_pass_manager(opt=0, loop_vectorize=False, slp_vectorize=False)
        passes.run(self._final_module, builder)

    def finalize(self) -> None:
        """Take in what it calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self._optimised:
            self._optimize_final_module()
        self._final_module.verify()
        self._finalize_dynamic_globals()
        self._finalized = True

    def become(self, code: bytes) -> None:
        """What was kept."""
        self._final_module = self._shared_module = llvm.parse_bitcode(code)
        self._finalized = True


@contextmanager
def _intermediate(targetctx: Any) -> Iterator[None]:
    """While a kernel is compiled, what it needs of numba's own functions is made into intermediate code only, too.

    Optimised, though: those count references, and what can be left out of that is found in small functions only.
    """
    codegen = targetctx.codegen()

    def set_env(name: str, environment: Any) -> None:
        if codegen._engine.get_global_value_address(name):
            type(codegen).set_env(codegen, name, environment)

    def decorate(function: Any, *about: Any) -> None:
        type(targetctx.call_conv).decorate_function(targetctx.call_conv, function, *about)
        for argument in function.args[2:]:
            if isinstance(getattr(argument.type, "pointee", None), LiteralStructType):  # a shared tuple
                argument.add_attribute("noalias")

    instead = {
        (codegen, "_library_class"): _Intermediate,
        (codegen, "set_env"): set_env,
        (targetctx, "create_cfunc_wrapper"): lambda *asked: None,
        (targetctx.call_conv, "decorate_function"): decorate,
    }
    with _instead(instead):
        yield


@contextmanager
def _instead(what: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """Attributes of objects, by object and name, have other values."""
    before = {(owner, name): vars(owner).get(name) for owner, name in what}
    for (owner, name), value in what.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            delattr(owner, name) if value is None else setattr(owner, name, value)


# ---------------------------------------------------------------------------------------- the compiler asks things once
@contextmanager
def _quickly(targetctx: Any) -> Iterator[None]:
    """The same code in three quarters of the time.

    The compiler asks anew, for each operation that it meets, which of all functions of that name takes these types, and
    compares all flags for each; lists every variable of every statement a dozen times; writes and parses a module to
    learn how large a number is. And it holds hundreds of thousands of objects, which a collection walks in vain.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with _instead(
            {
                (BaseFunction, "get_call_type"): _call_type,
                (targetconfig.TargetConfig, "values"): _flag_values,
                (ir.Inst, "_rec_list_vars"): _variables,
                (targetctx, "get_abi_sizeof"): partial(_size, targetctx),
            }
        ):
            yield
    finally:
        if collects:
            gc.enable()


_get_call_type = BaseFunction.get_call_type


def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """As before for the same types and flags; what fails is asked again."""
    known = vars(self).setdefault("_known", {})
    asked = (context, tuple(args), tuple(kws.items()), targetconfig.ConfigStack.top_or_none())
    if asked not in known:
        signature = _get_call_type(self, context, args, kws)
        if signature is None:
            return None
        known[asked] = signature, self._impl_keys[signature.args]
    signature, key = known[asked]
    self._impl_keys[signature.args] = key  # which has one place for all flags
    return signature


def _flag_values(self: Any) -> dict[str, Any]:
    """By names, in the order in which the class lists them."""
    kind: Any = type(self)
    return {**_flags_unset(kind), **self._values}


@cache
def _flags_unset(kind: Any) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def _variables(self: Any, value: Any) -> list[Any]:
    """In a statement or in a part of one."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return list(value.list_vars())
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    found: list[Any] = []
    for each in value:
        kind = type(each)
        if kind is ir.Var:
            found.append(each)
        elif kind is not str and kind is not ir.Loc:
            found.extend(_variables(self, each))
    return found


_SIZES: dict[str, int] = {}


def _size(targetctx: Any, kind: Any) -> int:
    """In bytes."""
    name = str(kind)
    if name not in _SIZES:
        _SIZES[name] = type(targetctx).get_abi_sizeof(targetctx, kind)
    return _SIZES[name]


# ------------------------------------------------------------------------------------------------ tuples of many arrays
class Shared(types.Type):  # type: ignore[misc]
    """A named tuple that is handed on by its place instead of field by field; the names of its fields stay.

    To hand over dozens of arrays takes hundreds of numbers per call, and most of the time that compiling takes. Who
    calls holds the tuple until the call ends, and nobody writes there.
    """

    def __init__(self, of: types.BaseNamedTuple) -> None:
        self.of = of
        # Not with all its fields: this becomes part of the name of every function that takes one.
        super().__init__(f"Shared({of.instance_class.__name__})#{sha256(_identity(of).encode()).hexdigest()[:20]}")


def _handed(kind: types.Type, flat: bool) -> types.Type:
    """How kernels are handed an argument."""
    if flat:
        return kind.of if isinstance(kind, Shared) else kind
    if isinstance(kind, types.BaseNamedTuple) and any(isinstance(each, _WIDE) for each in kind):
        return Shared(kind)
    return kind


_WIDE = (types.Array, types.BaseNamedTuple)


@register_model(Shared)
class _SharedModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: Shared) -> None:
        super().__init__(manager, of, manager[of.of].get_value_type().as_pointer())


@lower_cast(types.BaseNamedTuple, Shared)
def _place_of_tuple(context, builder, kind, shared, value):  # type: ignore[no-untyped-def]
    return cgutils.alloca_once_value(builder, value)


@lower_cast(Shared, types.BaseNamedTuple)
def _tuple_at_place(context, builder, shared, kind, place):  # type: ignore[no-untyped-def]
    return builder.load(place)


@unbox(Shared)
def _place_of_object(kind, found, c):  # type: ignore[no-untyped-def]
    native = c.unbox(kind.of, found)

    def cleanup() -> None:
        if native.cleanup is not None:
            native.cleanup()
        if c.context.enable_nrt:
            c.context.nrt.decref(c.builder, kind.of, native.value)

    place = cgutils.alloca_once_value(c.builder, native.value)
    return NativeValue(place, is_error=native.is_error, cleanup=cleanup)


@infer_getattr
class _SharedAttribute(typing.templates.AttributeTemplate):  # type: ignore[misc]
    key = Shared

    def generic_resolve(self, kind: Shared, name: str) -> Any:
        """The type of a field; ``None`` where there is none of that name."""
        if name in kind.of.fields:
            field = kind.of[kind.of.fields.index(name)]
            return Shared(field) if isinstance(field, types.BaseNamedTuple) else field
        return None


@lower_getattr_generic(Shared)
def _field_of_shared(context, builder, kind, value, name):  # type: ignore[no-untyped-def]
    at = kind.of.fields.index(name)
    place = cgutils.gep_inbounds(builder, value, 0, at)
    if isinstance(kind.of[at], types.BaseNamedTuple):
        return place
    return impl_ret_borrowed(context, builder, kind.of[at], builder.load(place))


class Row:
    """Named tuples of one type side by side: kernels read ``row[each]`` at its place, as Python does.

    To look at a tuple of a hundred arrays takes longer than most kernels that are handed one; here each is looked at
    when it is set. The row holds its arrays and nobody else counts who does, so it is for lean kernels.
    """

    def __init__(self, count: int) -> None:
        self.tuples: list[Any] = [None] * count
        self.laid: list[Any] = [None] * count  # as kernels read them
        self.places = np.zeros(count, np.intp)
        self.place = self.places.ctypes.data
        self.kind: Shared | None = None  # of the first that is set, as of all others
        self.lay: Callable[[Any], Any] = lambda value: value

    def __getitem__(self, each: int) -> Any:
        return self.tuples[each]

    def __setitem__(self, each: int, value: Any) -> None:
        if self.kind is None:
            self.kind = Shared(numba.typeof(value))
            self.lay = _layer(self.kind.of)[1]
        self.tuples[each], self.laid[each] = value, self.lay(value)
        self.places[each] = ctypes.addressof(self.laid[each])


def _layer(kind: types.Type) -> tuple[Any, Callable[[Any], Any]]:
    """What lies where machine code reads a value of a type, and what lays one there; nobody counts who holds arrays."""
    if isinstance(kind, types.Array):
        numbers, about = ctypes.c_ssize_t * (5 + 2 * kind.ndim), (as_dtype(kind.dtype), kind.ndim)
        contiguous = kind.layout == "C"

        def lay(array: Any) -> Any:
            same = (array.dtype, array.ndim) == about and (array.flags.c_contiguous or not contiguous)
            assert same, f"tuples of a row are of one type: {array.dtype} of {array.ndim} axes is not {kind}"
            return numbers(0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides)

        return numbers, lay
    if isinstance(kind, types.BaseNamedTuple):
        parts = [_layer(each) for each in kind]
        fields = [(f"at_{at}", layout) for at, (layout, _) in enumerate(parts)]
        whole = type("Laid", (ctypes.Structure,), {"_fields_": fields})
        return whole, lambda value: whole(*(lay(each) for (_, lay), each in zip(parts, value, strict=True)))
    if isinstance(kind, types.NoneType):
        return ctypes.c_void_p, ctypes.c_void_p
    plain = {types.boolean: ctypes.c_bool, types.int64: ctypes.c_int64, types.float64: ctypes.c_double}[kind]
    return plain, plain


class _RowType(types.Type):  # type: ignore[misc]
    def __init__(self, of: Shared) -> None:
        self.of = of
        super().__init__(f"Row({of})")


@typeof_impl.register(Row)
def _type_of_row(row: Row, _: Any) -> _RowType:
    assert row.kind is not None, "a row without tuples"
    return _RowType(row.kind)


class _PlaceType(_RowType):
    """A row of which Python hands its place alone."""

    def __init__(self, of: Shared) -> None:
        super().__init__(of)
        self.name = f"Place({of})"


@register_model(_RowType)
@register_model(_PlaceType)
class _RowModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: _RowType) -> None:
        super().__init__(manager, of, manager[of.of].get_value_type().as_pointer())


@unbox(_RowType)
def _places_of_row(kind, found, c):  # type: ignore[no-untyped-def]
    place = c.pyapi.object_getattr_string(found, "place")
    native = _row_at_place(kind, place, c)
    c.pyapi.decref(place)
    return native


@unbox(_PlaceType)
def _row_at_place(kind, place, c):  # type: ignore[no-untyped-def]
    native = c.unbox(types.intp, place)
    pointer = c.builder.inttoptr(native.value, c.context.get_value_type(kind))
    return NativeValue(pointer, is_error=native.is_error)


@infer_global(operator.getitem)
class _OfRow(typing.templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        """The type of one of them; ``None`` for what is no row."""
        if isinstance(args[0], _RowType) and isinstance(args[1], types.Integer):
            return typing.signature(args[0].of, args[0], types.intp)
        return None


@lower_builtin(operator.getitem, _RowType, types.intp)
def _tuple_of_row(context, builder, signature, args):  # type: ignore[no-untyped-def]
    return builder.load(builder.gep(args[0], [args[1]]))


# ------------------------------------------------------------------------------------------------------- what was kept
def folder() -> Path | None:
    """Where compiled code of these sources lies; made if need be. ``None``: nowhere can be written."""
    kept = _kept("hippo")
    return None if kept is None else kept[0]


def told(problem: str) -> None:
    """Says once per process that what is compiled cannot be kept."""
    if not _TOLD:
        _TOLD.append(problem)
        remedy = "To fix: let HIPPO_CACHE name a folder that can be written and has 100 MB free"
        warnings.warn(
            f"what is compiled is not kept for the next time: {problem}. {remedy}.", UncachedWarning, stacklevel=2
        )


_TOLD: list[str] = []


def _read(file: Path | None) -> Any:
    """An entry, ``None`` where there is none, or a damaged one."""
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return pickle.loads(content[32:]) if sha256(content[32:]).digest() == content[:32] else None


@contextmanager
def _alone(file: Path | None) -> Iterator[None]:
    """One process at a time makes an entry: others wait for it, and read it. Where files cannot be locked, none waits.

    Kernels wait for those that they call only, so that no two processes wait for each other.
    """
    locks = None if file is None or file.exists() else _locks(file.parent)
    if file is not None and locks is not None:
        at = int(sha256(file.name.encode()).hexdigest()[:12], 16)
        with suppress(OSError):
            fcntl.lockf(locks, fcntl.LOCK_EX, 1, at)
    try:
        yield
    finally:
        if locks is not None:
            with suppress(OSError):
                fcntl.lockf(locks, fcntl.LOCK_UN, 1, at)


@cache
def _locks(place: Path) -> int | None:
    """The file that is locked, a byte per entry; closed by nobody: that would give up all locks of the process."""
    with suppress(OSError):
        return os.open(place / "locks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return None


def _write(file: Path, state: Any) -> None:
    """Keep an entry, whole or not at all; where that fails, it is said once."""
    if _TOLD:
        return
    place, content = file.parent, serialize.dumps(state)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, prefix="writing.", delete=False) as stream:
            try:
                stream.write(sha256(content).digest() + content)
                stream.close()
                os.replace(stream.name, file)
            except BaseException:
                with suppress(OSError):
                    os.unlink(stream.name)
                raise
    except OSError as error:
        told(f"{place}: {error.strerror or error}")


@cache
def _kept(package: str) -> tuple[Path, dict[str, _State]] | None:
    """The folder of the kernels of a package, and the files that it follows, as they were when it was looked up.

    ``None`` where nothing is kept. Folders of other sources that nobody uses any more are removed.
    """
    root = _root()
    if root is None:
        return None
    sources = _reached(package)
    states, began = {path: _state(path) for path, _ in sources.values()}, _began_ns()
    if any(state is None or state[0] > began for state in states.values()):
        LOG.info("what is compiled is not kept: sources of %s were changed after this process began", package)
        return None
    codegen = cpu_target.target_context.codegen()
    versions = (
        numba.__version__,
        llvm.llvm_version_info,
        np.__version__,
        sys.version,
        codegen.magic_tuple(),
        (config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE, config.BOUNDSCHECK, config.DEBUGINFO_DEFAULT),
    )
    known = sha256(repr((versions, _digest(sources), package)).encode()).hexdigest()[:16]
    found = root / f"kernels-{known}"
    if found.is_dir():
        with suppress(OSError):
            os.utime(found)  # used just now
    else:
        with suppress(OSError):
            found.mkdir(parents=True)
            _remove_old(root)
    return found, states


_State = tuple[int, int, int] | None


def _state(path: str) -> _State:
    """When a file was last changed, its number and size; the time cannot be set, as that of its content can."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ctime_ns, about.st_ino, about.st_size


def _changed(package: str) -> bool:
    """Whether a source is not as it was when the folder was looked up: what was imported since may be either."""
    kept = _kept(package)
    return kept is None or any(_state(path) != state for path, state in kept[1].items())


def _remove_old(root: Path) -> None:
    """Folders of other sources, by the time of their last use."""
    by_use = sorted(root.glob("kernels-*"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in by_use[1 + NEWEST :]:
        if each.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(each, ignore_errors=True)


def _root() -> Path | None:
    """The folder for caches: the one that the user names, else the first that can be written."""
    named = os.environ.get("HIPPO_CACHE") or os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return Path(named).absolute()
    for each in _places():
        with suppress(OSError):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = each.lstat()
            # What lies there is run: nobody else may write there.
            own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o002
            if own and os.access(each, os.W_OK | os.X_OK):
                return each
    told("no folder for caches can be written")
    return None


def _places() -> Iterator[Path]:
    for_caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(for_caches):
        yield Path(for_caches) / "hippo"
    else:
        with suppress(RuntimeError):  # nobody's home
            yield Path.home() / ".cache" / "hippo"
    yield Path(tempfile.gettempdir()) / f"hippo-{os.getuid()}"


# ----------------------------------------------------------------------------------------------------------- the digest
def digest(package: str) -> str:
    """Of every source that can change what is compiled: the files with kernels, and what these import, from hippo and
    from the package (or module) that holds them."""
    return _digest(_reached(package))


def _digest(sources: dict[str, tuple[str, bytes]]) -> str:
    found = sha256()
    for name, (_, text) in sorted(sources.items()):
        found.update(f"{name} {len(text)} ".encode() + text)
    return found.hexdigest()


def _reached(package: str) -> dict[str, tuple[str, bytes]]:
    """These sources, each with the place where it lies, by its path below the folder that holds the package."""
    sources: dict[str, tuple[str, bytes]] = {}
    for name in dict.fromkeys(("hippo", package)):
        sources.update(_sources(name))
    reached = [name for name, (_, text) in sources.items() if MARK in text]
    seen = set(reached)
    while reached:
        for each in _imports(sources[reached.pop()][1]):
            for name in (f"{each}.py", f"{each}/__init__.py"):
                if name in sources and name not in seen:
                    seen.add(name)
                    reached.append(name)
    return {name: sources[name] for name in seen}


def _sources(package: str) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Every file of a package."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None:
        return
    if os.path.basename(file) != "__init__.py":
        yield os.path.basename(file), (os.path.abspath(file), _content(file))
        return
    top = os.path.dirname(os.path.abspath(file))
    cut = len(os.path.dirname(top)) + 1
    folders = [top]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for each in entries:
                if each.name.endswith(".py"):
                    yield each.path[cut:], (each.path, _content(each.path))
                elif each.name != "__pycache__" and each.is_dir():
                    folders.append(each.path)


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as stream:
        return stream.read()


def _imports(text: bytes) -> Iterator[str]:
    """Paths, without their ending, of what the top of a module imports by ``from package.module import names``."""
    at = text.find(b"\nfrom ")
    while at >= 0:
        end = text.find(b"\n", at + 1)
        line = text[at:end]
        if line.endswith(b"("):
            end = text.find(b")", end)
            line = text[at:end]
        words = line.decode().replace(",", " ").replace("(", " ").split()
        path = words[1].replace(".", "/")
        yield path
        for name in words[3:]:
            yield f"{path}/{name}"
        at = text.find(b"\nfrom ", end)
