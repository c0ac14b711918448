"""Hearth for Python: runs language models (GGUF files) on this machine, by libhearth and ctypes alone.

    with hearth.Model("model.gguf") as model:
        for text in model.generate("Once upon a time", max_tokens=100):
            print(text, end="", flush=True)

The names are those of hearth.h, which says what each option means. Objects may be closed, or dropped, in any order.
One thread at a time uses a session, sampler, constraint, batch or scheduler; any number use a model or a chat. Other
threads of Python run during evaluations, and Ctrl-C ends one and leaves its session as before. Warnings of the library
go to logging.getLogger("hearth").
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import itertools
import json
import logging
import operator
import os
import sys
import threading
import weakref
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, TypeVar, Union)

__version__ = "0.1.0"
_SONAME = "libhearth.so.0.1"

T = TypeVar("T")
Self = TypeVar("Self", bound="_Object")
Message = Mapping[str, Any]  # role and content, and what else OpenAI's form has
Text = Union[str, bytes]
Prompt = Union[str, bytes, Sequence[int]]  # a text, or tokens
if TYPE_CHECKING:
    Floats = array.array[float]
    Logits = Union[array.array[float], memoryview, "Session"]

# ---- errors ------------------------------------------------------------------------------------------------------

STATUS = ("ok", "memory", "io", "format", "unsupported", "argument", "context", "numeric", "cancelled", "device")


class Error(Exception):
    """What the library reports: a line for the user. status is one of STATUS."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", ctypes.c_char * 600), ("reserved", c_uint32 * 9)]


def _error_of(err: _Error) -> Error:
    name = STATUS[err.status] if 0 <= err.status < len(STATUS) else "unknown"
    return Error(name, err.message.decode(errors="replace"))


# ---- structs of hearth.h, of its release 0.1.0 -------------------------------------------------------------------

def _integer(value: Any, kind: Any, name: str) -> int:
    """The value, if the type of C has it: ctypes alone would drop its upper bits."""
    number, n_bit, is_signed = operator.index(value), 8 * ctypes.sizeof(kind), kind(-1).value < 0
    low, high = (-1 << n_bit - 1, (1 << n_bit - 1) - 1) if is_signed else (0, (1 << n_bit) - 1)
    if not low <= number <= high:
        raise Error("argument", f"{name}: {number} is not within {low} to {high}")
    return number


class _Struct(ctypes.Structure):
    """A struct whose integers are checked when it is made. _names: of parameters, where they differ from the fields."""
    _names: Mapping[str, str] = {}

    def __init__(self, **values: Any) -> None:
        for name, kind in (field[:2] for field in self._fields_):
            if name in values and kind in (c_int32, c_int64, c_uint32, c_uint64):
                values[name] = _integer(values[name], kind, self._names.get(name, name))
        super().__init__(**values)


class _GpuOptions(_Struct):
    _fields_ = [("device", c_char_p), ("vram", c_uint64), ("vrams", c_uint64 * 4), ("n_ctx", c_uint32),
                ("n_batch", c_uint32), ("kv", c_int), ("placement", c_char_p), ("bit_exact", c_bool),
                ("n_session", c_uint64), ("host_kv", c_bool), ("reserved", c_uint64 * 6)]


class _Sized(_Struct):
    """A struct that begins with its size, which is set here."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class _ModelOptions(_Sized):
    _fields_ = [("size", c_size_t), ("n_thread", c_uint32), ("mmap", c_bool), ("progress", c_void_p),
                ("progress_user", c_void_p), ("no_repack", c_bool), ("predictors", c_char_p), ("thresholds", c_char_p),
                ("selector", c_int), ("activation", c_char_p), ("gpu", _GpuOptions), ("ram", c_uint64), ("io", c_char_p),
                ("allow_unused", c_bool), ("cancel", POINTER(c_int)), ("vocab_only", c_bool), ("no_huge_pages", c_bool),
                ("cpu", c_char_p), ("cache", c_char_p), ("overrides", POINTER(c_char_p)), ("n_override", c_size_t)]


class _ModelInfo(_Sized):
    _fields_ = [("size", c_size_t), ("path", c_char_p), ("name", c_char_p), ("synthetic", c_bool),
                ("architecture", c_char_p), ("activation", c_char_p), ("cpu", c_char_p), ("sparse_activation", c_bool),
                ("selector", c_int), ("selector_why", c_char_p), ("down_transposed", c_bool), ("mapped", c_bool),
                *((name, c_uint32) for name in ("n_layer", "d_model", "n_head", "n_head_kv", "d_head", "d_ff", "n_vocab",
                                                "n_ctx_train")),
                ("n_parameter", c_uint64), ("weight_bytes", c_uint64), ("bytes_per_token", c_uint64),
                ("n_streamed", c_uint32), ("n_streamed_max", c_uint32), ("reader", c_char_p), ("gpu", c_char_p),
                ("gpu_note", c_char_p), ("gpu_n_layer", c_uint32), ("gpu_neuron_share", c_double), ("gpu_product_share", c_double),
                ("gpu_predicted_tps", c_double), ("gpu_head", c_bool), ("gpu_bit_exact", c_bool),
                ("gpu_bit_exact_reason", c_char_p), ("gpu_bytes", c_uint64), ("gpu_simulated", c_bool),
                ("gpu_host_kv", c_bool), ("gpu_divides_experts", c_bool), ("gpu_sim_seconds", c_double)]


class _Metadata(_Sized):
    _fields_ = [("size", c_size_t), ("type", c_int), ("element_type", c_int), ("as_bool", c_bool), ("index", c_size_t),
                ("key", c_void_p), ("n_key", c_size_t), ("as_string", c_void_p), ("n", c_uint64), ("as_unsigned", c_uint64),
                ("as_signed", c_int64), ("as_float", c_double)]


class _TokenInfo(_Sized):
    _fields_ = [("size", c_size_t), ("text", c_void_p), ("n_text", c_size_t), ("bytes", c_void_p), ("n_bytes", c_size_t),
                ("score", c_float), ("attributes", c_uint32)]


class _DeviceInfo(_Sized):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("is_usable", c_bool), ("is_auto", c_bool), ("has_byte_dot", c_bool),
                ("has_cooperative_matrix2", c_bool), ("lists_cooperative_matrix2", c_bool), ("device", c_char_p),
                ("uuid", c_char_p), ("description", c_char_p), ("driver", c_char_p), ("problem", c_char_p),
                ("memory_bytes", c_uint64), ("free_bytes", c_uint64), ("binding_bytes", c_uint64),
                ("matrix_shapes", c_char_p)]


class _Message(ctypes.Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p), ("n", c_size_t), ("members", c_char_p),
                ("reserved", c_void_p * 2)]


class _ChatOptions(_Sized):
    _fields_ = [("size", c_size_t), ("add_generation_prompt", c_bool), ("local_time", POINTER(c_int64)),
                ("variables", c_char_p), ("tools", c_char_p)]


class _AnswerOptions(_Sized):
    _fields_ = [("size", c_size_t), ("chat", c_void_p), ("at_start", c_bool), ("in_reasoning", c_bool),
                ("tools", c_char_p), ("fn", c_void_p), ("user", c_void_p)]


class _SessionOptions(_Sized):
    _fields_ = [("size", c_size_t), ("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_thread", c_uint32),
                ("bf16_dot", c_bool), ("release_window", c_bool), ("no_pin", c_bool), ("kv", c_int),
                ("selector", c_int)]


class _EmbedderOptions(_Sized):
    _fields_ = [("size", c_size_t), ("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_text", c_uint32),
                ("n_thread", c_uint32), ("n_dim", c_uint32), ("no_pin", c_bool), ("no_normalize", c_bool), ("kv", c_int),
                ("pooling", c_int)]


class _EmbedText(ctypes.Structure):
    _fields_ = [("tokens", POINTER(c_int32)), ("n_token", c_size_t), ("reserved", c_uint64 * 2)]


class _LogitBias(_Struct):
    _names = {"id": "bias"}
    _fields_ = [("id", c_int32), ("bias", c_float), ("reserved", c_uint32 * 2)]


class _SamplerOptions(_Sized):
    _fields_ = [("size", c_size_t), ("temperature", c_float), ("top_k", c_int32), ("typical_p", c_float),
                ("top_p", c_float), ("min_p", c_float), ("repeat_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("repeat_last_n", c_int32), ("seed", c_uint64),
                ("bias", POINTER(_LogitBias)), ("n_bias", c_size_t), ("fn", c_void_p), ("user", c_void_p),
                ("top_n_sigma", c_float), ("xtc_probability", c_float), ("xtc_threshold", c_float),
                ("dynatemp_range", c_float), ("dynatemp_exponent", c_float), ("dry_multiplier", c_float),
                ("dry_base", c_float), ("dry_allowed_length", c_int32), ("dry_last_n", c_int32),
                ("mirostat", c_int32), ("mirostat_tau", c_float), ("mirostat_eta", c_float),
                ("dry_breakers", POINTER(c_char_p)), ("n_dry_breaker", c_size_t)]


class _ConstraintOptions(_Sized):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("one_call", c_bool), ("in_reasoning", c_bool), ("text", c_char_p),
                ("n", c_size_t), ("choices", POINTER(c_char_p)), ("n_choice", c_size_t), ("chat", c_void_p),
                ("schema", c_char_p), ("n_schema", c_size_t)]


class _DraftOptions(ctypes.Structure):
    _fields_ = [("n_draft", c_uint32), ("no_mtp", c_bool), ("model", c_void_p), ("reserved", c_uint64 * 4)]


class _DraftStats(ctypes.Structure):
    _fields_ = [("n_drafted", c_uint64), ("n_accepted", c_uint64), ("reserved", c_uint64 * 2)]


class _SchedulerOptions(_Sized):
    _fields_ = [("size", c_size_t), ("n_position", c_uint32), ("n_ctx", c_uint32), ("n_batch", c_uint32),
                ("n_running", c_uint32), ("n_kept", c_uint32), ("n_thread", c_uint32),
                ("no_pin", c_bool), ("kv", c_int), ("max_delay", c_double), ("draft", _DraftOptions)]


class _RequestEvent(ctypes.Structure):
    _fields_ = [("state", c_int), ("token", c_int32), ("logits", POINTER(c_float)), ("n_cached", c_uint32),
                ("draft", _DraftStats), ("error", POINTER(_Error)), ("text", c_void_p), ("n_text", c_size_t),
                ("i_stop", c_uint64), ("reserved", c_uint64 * 4)]


class _SchedulerStats(_Sized):
    _fields_ = [("size", c_size_t), ("n_waiting", c_uint32), ("n_running", c_uint32), ("n_kept", c_uint32),
                ("n_page", c_uint32), ("n_page_used", c_uint32), ("n_prompt", c_uint64), ("n_cached", c_uint64),
                ("n_generated", c_uint64), ("n_preempted", c_uint64), ("draft", _DraftStats)]


class _RequestProgress(_Sized):
    _fields_ = [("size", c_size_t), ("is_running", c_bool), ("n_before", c_uint32), ("n_prompt", c_uint32),
                ("n_cached", c_uint32), ("n_generated", c_uint32), ("n_evaluated", c_uint32)]


class _Request(_Sized):
    _names = {"max_token": "max_tokens"}
    _fields_ = [("size", c_size_t), ("tokens", POINTER(c_int32)), ("n_token", c_size_t), ("max_token", c_uint32),
                ("prompt_only", c_bool), ("ignore_end", c_bool), ("with_text", c_bool), ("at_start", c_bool),
                ("show_special", c_bool), ("sampler", POINTER(_SamplerOptions)), ("constraint", c_void_p),
                ("owner", c_uint64), ("fn", c_void_p), ("user", c_void_p), ("stops", POINTER(c_char_p)),
                ("n_stop", c_size_t)]


# Enumerators, by the order of their values.
_KV = ("f16", "f32", "q8_0")
_SELECTORS = ("auto", "dense", "gate", "predictor", "threshold")
_POOLINGS = ("auto", "mean", "first", "last", "rank")
_ANSWERS = ("text", "reasoning", "call", "arguments")
_CONSTRAINTS = ("json_object", "json_schema", "choices", "grammar", "calls")
_ENDS = ("incomplete", "accepting", "complete")
_METADATA = ("none", "unsigned", "signed", "float", "bool", "string", "array")
_SPECIAL = ("bos", "eos", "eot", "eom", "unknown", "separator", "class", "padding", "mask", "newline", "fim_prefix",
            "fim_suffix", "fim_middle", "fim_padding", "fim_repository", "fim_file")
_DEVICES = ("discrete", "integrated", "cpu")
_ATTRIBUTES = ("normal", "unknown", "control", "user_defined", "unused", "byte", "end", "padding")  # bits, from 1
_STATES = ("token", "end", "length", "stopped", "cancelled", "failed", "stop_text")


def _value_of(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        raise Error("argument", f"{what}: {name!r} is none of {', '.join(names)}")
    return names.index(name)


# ---- the library -------------------------------------------------------------------------------------------------

_LOG_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
_PROGRESS_FN = ctypes.CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64)
_HIDDEN_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_float), c_void_p)
_ANSWER_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_size_t)
_REQUEST_FN = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(_RequestEvent))

# Functions that this file calls: result and parameters. s: hearth_status, with hearth_error * behind the parameters;
# p: a pointer; n: size_t; c: const char *; f: float *; i: int32_t, or an enum; u: uint32_t, or unsigned; U: uint64_t;
# b: bool; v: none. Then the names of those that are i, u or U, by which errors tell them.
_TYPES = {"s": c_int, "p": c_void_p, "n": c_size_t, "c": c_char_p, "i": c_int32, "u": c_uint32, "b": c_bool,
          "f": POINTER(c_float), "v": None, "U": c_uint64}
_FUNCTIONS = {
    "hearth_version": "c", "hearth_log_set": "vpp", "hearth_free": "vp", "hearth_model_open": "scpp",
    "hearth_model_close": "vp", "hearth_model_get_info": "ipp", "hearth_model_n_metadata": "np",
    "hearth_model_get_metadata": "ipnp", "hearth_model_find_metadata": "ipcp",
    "hearth_model_get_metadata_element": "ipnUp i", "hearth_model_get_token": "ipip token",
    "hearth_token_find": "ipcn", "hearth_token_special": "ipi kind", "hearth_devices_open": "sp",
    "hearth_devices_close": "vp", "hearth_devices_count": "np", "hearth_devices_get": "ipnp",
    "hearth_cpu_level": "cn", "hearth_feature": "cnp", "hearth_tokenize": "spcnupp flags", "hearth_tokenize_pair": "spcncnpp", "hearth_token_bos": "ip",
    "hearth_token_eos": "ip", "hearth_token_is_eog": "bpi token", "hearth_detokenizer_open": "spbbp",
    "hearth_detokenizer_close": "vp", "hearth_detokenizer_push": "spipp token", "hearth_detokenizer_flush": "vppp",
    "hearth_chat_open": "spcp", "hearth_chat_open_template": "spcnp", "hearth_chat_close": "vp",
    "hearth_chat_name": "cp", "hearth_chat_format": "cn", "hearth_chat_render": "sppnppp",
    "hearth_chat_tokenize": "sppnppp", "hearth_chat_is_reasoning": "bppn", "hearth_answer_open": "sppp",
    "hearth_answer_close": "vp", "hearth_answer_push": "spi token", "hearth_answer_finish": "sp",
    "hearth_session_open": "sppp", "hearth_session_close": "vp", "hearth_session_eval": "sppn",
    "hearth_session_eval_hidden": "sppnpp", "hearth_session_logits": "fp", "hearth_session_position": "up",
    "hearth_session_tokens": "pp", "hearth_session_n_ctx": "up", "hearth_session_truncate": "spu position",
    "hearth_session_fork": "spp", "hearth_session_save": "spc", "hearth_session_restore": "spc",
    "hearth_session_save_memory": "sppp", "hearth_session_restore_memory": "sppn",
    "hearth_session_set_threads": "spu n_thread", "hearth_embedder_open": "sppp", "hearth_embedder_close": "vp", "hearth_embedder_n_dim": "up",
    "hearth_embed": "sppnp", "hearth_batch_open": "spuup n_tok n_thread", "hearth_batch_close": "vp",
    "hearth_batch_add": "spppn", "hearth_batch_run": "sp", "hearth_batch_clear": "vp", "hearth_sampler_open": "sppp",
    "hearth_sampler_close": "vp", "hearth_sampler_clone": "spp", "hearth_sampler_reseed": "vpU seed",
    "hearth_sampler_forget": "vp", "hearth_sampler_accept": "vpi token", "hearth_sampler_sample": "spfp",
    "hearth_constraint_open": "sppp", "hearth_constraint_close": "vp", "hearth_constraint_copy": "spp",
    "hearth_constraint_mask": "spf", "hearth_constraint_accept": "spi token", "hearth_constraint_get_end": "ip",
    "hearth_constraint_get_notes": "cp",
    "hearth_scheduler_open": "sppp", "hearth_scheduler_close": "vp", "hearth_scheduler_add": "sppp",
    "hearth_scheduler_cancel": "vpU id", "hearth_scheduler_step": "spp", "hearth_scheduler_pause": "vpUb id",
    "hearth_scheduler_set_threads": "spu n_thread", "hearth_scheduler_get_stats": "ipp",
    "hearth_scheduler_get_progress": "bpUp id", "hearth_scheduler_save": "spcUpp max_size",
    "hearth_scheduler_restore": "spc", "hearth_scheduler_has_unsaved": "bp",
}


def _places() -> Iterator[str]:
    """Where the library may lie; a name without a folder is looked up by the system's loader."""
    here = Path(__file__).resolve().parent
    yield str(here / _SONAME)
    yield _SONAME
    for prefix in (sys.prefix, "/usr/local", "/usr", "/opt/hearth", str(Path.home() / ".local")):
        for folder in ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu"):
            yield os.path.join(prefix, folder, _SONAME)
    checkout = here.parents[2]
    if (checkout / "include" / "hearth" / "hearth.h").exists():
        yield str(checkout / "build" / _SONAME)


def _find_library() -> ctypes.CDLL:
    named = os.environ.get("HEARTH_LIBRARY")
    for place in [named] if named else _places():
        if os.sep in place and not named and not os.path.exists(place):
            continue
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            if named:
                raise ImportError(f"HEARTH_LIBRARY: {error}") from None
            if os.sep in place:
                raise ImportError(f"{place}: {error}") from None
    raise ImportError(f"{_SONAME} is not installed: build Hearth and run sudo make install && sudo ldconfig, or set "
                      "HEARTH_LIBRARY to the file")


def _checked(function: Any, types: str, parameters: Sequence[str]) -> Callable[..., Any]:
    """The function, after a check of its integers."""
    kinds = [(i, _TYPES[t]) for i, t in enumerate(types) if t in "iuU"]

    def call(*arguments: Any) -> Any:
        values = list(arguments)
        for (i, kind), name in zip(kinds, parameters):
            values[i] = _integer(values[i], kind, name)
        return function(*values)
    return call


def _load_library() -> ctypes.CDLL:
    library = _find_library()
    try:
        library.hearth_version.restype = c_char_p
        version = library.hearth_version().decode()
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise ImportError(f"{library._name}: libhearth {version}, but this module is for {_SONAME}")
        for name, text in _FUNCTIONS.items():
            function = getattr(library, name)
            types, *parameters = text.split()
            function.restype = _TYPES[types[0]]
            function.argtypes = [_TYPES[t] for t in types[1:] + ("p" if types[0] == "s" else "")]
            if parameters:
                setattr(library, name, _checked(function, types[1:], parameters))
    except AttributeError as error:
        raise ImportError(f"{library._name} is not {_SONAME}: {error}") from None
    return library


_lib = _load_library()


# Functions that the library calls may make Python collect objects, but some must not call the library: what they would
# close is closed after the next call.
_thread = threading.local()
_closed_late: List[Any] = []  # name and parameter of close functions, and what must live until then


@contextlib.contextmanager
def _within_library() -> Iterator[None]:
    _thread.is_within = True
    try:
        yield
    finally:
        _thread.is_within = False


def _free(close: str, pointer: int, kept: Any) -> None:
    if getattr(_thread, "is_within", False):
        _closed_late.append((close, pointer, kept))
    else:
        getattr(_lib, close)(pointer)


def _free_late() -> None:
    while _closed_late:
        try:
            _free(*_closed_late.pop())
        except IndexError:  # another thread was faster
            return


def _log(_: Any, level: int, line: bytes) -> None:
    with _within_library():
        logging.getLogger("hearth").log(logging.WARNING if level == 1 else logging.INFO, "%s", line.decode(errors="replace"))


_log_fn = _LOG_FN(_log)  # kept as long as the library may call it
_lib.hearth_log_set(_log_fn, None)


def version() -> str:
    """Of the library."""
    return str(_lib.hearth_version().decode())


def cpu_levels() -> List[str]:
    """Levels of kernels that this machine can run, best first: values of cpu of a Model."""
    names = (_lib.hearth_cpu_level(i) for i in itertools.count())
    return [name.decode() for name in itertools.takewhile(bool, names)]


def features() -> Dict[str, bool]:
    """What a build may lack, and whether this one has it: vulkan, io_uring, json, bpe, wordpiece."""
    built = c_bool()
    names = (_lib.hearth_feature(i, byref(built)) for i in itertools.count())
    return {name.decode(): built.value for name in itertools.takewhile(bool, names)}


@dataclass(frozen=True)
class Device:
    """Of hearth_device_info. device and uuid are names for device of a Model."""
    kind: str
    is_usable: bool
    is_auto: bool
    device: str
    uuid: str
    description: str
    driver: str
    problem: str
    memory_bytes: int
    free_bytes: int


def devices() -> List[Device]:
    """The GPUs of this machine, and drivers that compute on the CPU."""
    out = c_void_p()
    _call("hearth_devices_open", byref(out))
    found, info = [], _DeviceInfo()
    for i in range(_lib.hearth_devices_count(out)):
        _lib.hearth_devices_get(out, i, byref(info))
        values = _values_of(Device, info)
        values["kind"] = _DEVICES[info.kind]
        found.append(Device(**values))
    _lib.hearth_devices_close(out)
    return found


def _values_of(kind: Any, struct: Any) -> Dict[str, Any]:
    """The fields of a dataclass that a struct has, too."""
    values = {f.name: getattr(struct, f.name) for f in fields(kind)}
    return {k: v.decode(errors="replace") if isinstance(v, bytes) else v for k, v in values.items()}


def _call(name: str, *arguments: Any) -> None:
    err = _Error()
    status = getattr(_lib, name)(*arguments, byref(err))
    if _closed_late:
        _free_late()
    if status:
        raise _error_of(err)


def _bytes_of(text: Text) -> bytes:
    return text.encode(errors="surrogatepass") if isinstance(text, str) else bytes(text)


def _terminated(text: bytes) -> bytes:
    """For a string of C, which would end at a NUL."""
    if b"\0" in text:
        raise Error("argument", f"{text!r} has a NUL")
    return text


def _name_of(text: Optional[Union[Text, "os.PathLike[str]"]]) -> Optional[bytes]:
    return None if text is None else _terminated(os.fsencode(text))


def _several(values: Iterable[T], name: str) -> List[T]:
    """A text is a sequence of its characters, too, and a message one of its keys: neither is meant."""
    if isinstance(values, (str, bytes, bytearray, Mapping)):
        raise Error("argument", f"{name}: one {type(values).__name__}, but a sequence of them is needed")
    return list(values)


def _json_of(value: Any) -> Optional[bytes]:
    """A JSON text, or a value that becomes one."""
    return None if value is None else _bytes_of(value if isinstance(value, (str, bytes)) else json.dumps(value))


def _ids_of(tokens: Sequence[int]) -> Any:
    if isinstance(tokens, (str, bytes, bytearray)):
        raise Error("argument", "tokens: a text, but a sequence of tokens is needed: tokenize it")
    try:
        return (c_int32 * len(tokens)).from_buffer_copy(array.array("i", tokens))
    except OverflowError:
        return (c_int32 * len(tokens))(*[_integer(token, c_int32, "tokens") for token in tokens])


def _given_ids(ids: Any, n: Any) -> List[int]:
    """What a function gave, which is freed."""
    tokens = array.array("i", ctypes.string_at(ids, 4 * n.value)).tolist()
    _lib.hearth_free(ids)
    return tokens


class _Object:
    """Something of the library's that is closed once: by close, at the end of `with`, or when nothing refers to it.
    kept: what the library uses until then."""

    def __init__(self, close: str, pointer: Any, kept: Any) -> None:
        self._kept = kept
        self._finalizer = weakref.finalize(self, _free, close, pointer.value, kept)
        self._value: int = pointer.value

    @property
    def _pointer(self) -> int:
        if not self._finalizer.alive:
            raise ValueError(f"{type(self).__name__.lower()} is closed")
        return self._value

    def close(self) -> None:
        """May be called more than once. What else uses the object stays usable."""
        self._finalizer()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_CANCELLED, _CTRL_C = 1, 2  # bits of hearth_model_options.cancel: two threads may set and clear them at once


def _interruptible(cancel: Any, call: Callable[[], T]) -> T:
    """call(), which Ctrl-C ends: Python sees signals on its main thread, between its own instructions, so that another
    thread runs the call meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: List[T] = []
    errors: List[BaseException] = []
    done, turn = threading.Event(), threading.Lock()  # turn: of whoever has it first

    def run() -> None:
        if not turn.acquire(blocking=False):
            return
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        done.set()

    try:
        threading.Thread(target=run, name="hearth", daemon=True).start()
        done.wait()
    except BaseException:
        if turn.acquire(blocking=False):  # nothing was called, nor will be
            raise
        cancel.value |= _CTRL_C
        while not done.is_set():  # also after a second Ctrl-C
            try:
                done.wait()
            except KeyboardInterrupt:
                pass
        cancel.value &= ~_CTRL_C
        raise
    if errors:
        raise errors.pop()  # a list that keeps it would keep all that called, by its traceback
    return results[0]


def _with_progress(cancel: Any, progress: Optional[Callable[[int, int], Any]], call: Callable[[Any], None]) -> None:
    """call(a hearth_progress_fn), which Ctrl-C, progress and its exceptions end. Nothing keeps progress afterwards."""
    failures: List[BaseException] = []

    def report(_: Any, done: int, total: int) -> bool:
        try:
            return not cancel.value and (progress is None or progress(done, total) is not False)
        except BaseException as error:
            failures.append(error)
            return False

    fn = _PROGRESS_FN(report)
    try:
        _interruptible(cancel, lambda: call(fn))
    except Error:
        if failures:
            raise failures.pop() from None
        raise


# ---- models ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class ModelInfo:
    """Of hearth_model_info."""
    path: str
    name: str
    synthetic: bool
    architecture: str
    cpu: str
    n_layer: int
    d_model: int
    n_head: int
    n_head_kv: int
    d_head: int
    d_ff: int
    n_vocab: int
    n_ctx_train: int
    n_parameter: int
    weight_bytes: int
    gpu: Optional[str]
    gpu_note: str
    gpu_n_layer: int


RAM_AUTO = 2**64 - 1  # of ram
CTX_TRAINED = BATCH_NONE = KEPT_NONE = 2**32 - 1  # of n_ctx, n_batch, n_kept


class Token(NamedTuple):
    """text: as in the vocabulary; bytes: what it stands for. attributes: names of hearth_token_attributes in small letters,
    "control"."""
    text: bytes
    bytes: bytes
    score: float
    attributes: Tuple[str, ...]


class Metadata(Mapping[str, Any]):
    """The metadata of a file by key: int, float, bool, str, or a list of these. Strings that are no UTF-8 have U+FFFD."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def _value(self, found: _Metadata) -> Any:
        kind, index = _METADATA[found.type], found.index
        if kind == "string":
            return ctypes.string_at(found.as_string, found.n).decode(errors="replace")
        if kind != "array":
            return getattr(found, "as_" + kind)
        values, element = [], _Metadata()
        for i in range(found.n):
            if _lib.hearth_model_get_metadata_element(self._model._pointer, index, i, byref(element)):
                raise Error("unsupported", "arrays of arrays cannot be read")
            values.append(self._value(element))
        return values

    def __getitem__(self, key: str) -> Any:
        found = _Metadata()
        name = key.encode(errors="surrogatepass")
        if b"\0" in name or _lib.hearth_model_find_metadata(self._model._pointer, name, byref(found)) or not found.type:
            raise KeyError(key)
        return self._value(found)

    def __len__(self) -> int:
        return int(_lib.hearth_model_n_metadata(self._model._pointer))

    def __iter__(self) -> Iterator[str]:
        found = _Metadata()
        for i in range(len(self)):
            _lib.hearth_model_get_metadata(self._model._pointer, i, byref(found))
            yield ctypes.string_at(found.key, found.n_key).decode(errors="replace")


class Model(_Object):
    """An opened GGUF file; hearth_model_options says what the options mean. progress(done, total) gets bytes; False
    cancels. n_ctx, n_batch and kv announce the sessions where device or ram is given."""

    def __init__(self, path: Union[Text, "os.PathLike[str]"], *, n_thread: int = 0, mmap: bool = False,
                 progress: Optional[Callable[[int, int], Any]] = None, no_repack: bool = False,
                 predictors: Optional[str] = None, thresholds: Optional[str] = None, selector: str = "auto",
                 activation: Optional[str] = None, device: Optional[str] = None, vram: int = 0,
                 placement: Optional[str] = None, bit_exact: bool = False, n_ctx: int = 0, n_batch: int = 0,
                 n_session: int = 0, host_kv: bool = False, kv: str = "f16", ram: int = 0, io: Optional[str] = None, allow_unused: bool = False,
                 vocab_only: bool = False, no_huge_pages: bool = False, cpu: Optional[str] = None,
                 cache: Optional[Union[str, "os.PathLike[str]"]] = None, overrides: Sequence[str] = ()) -> None:
        cancel = c_int(0)
        texts = [_name_of(text) for text in overrides]
        gpu = _GpuOptions(device=_name_of(device), vram=vram, n_ctx=n_ctx, n_batch=n_batch, bit_exact=bit_exact,
                          n_session=n_session, host_kv=host_kv, kv=_value_of(_KV, kv, "kv"), placement=_name_of(placement))
        options = _ModelOptions(n_thread=n_thread, mmap=mmap, no_repack=no_repack, predictors=_name_of(predictors),
                                thresholds=_name_of(thresholds), selector=_value_of(_SELECTORS, selector, "selector"),
                                activation=_name_of(activation), gpu=gpu, ram=ram, io=_name_of(io),
                                allow_unused=allow_unused, cancel=ctypes.pointer(cancel), vocab_only=vocab_only,
                                no_huge_pages=no_huge_pages, cpu=_name_of(cpu), cache=_name_of(cache),
                                overrides=(c_char_p * len(texts))(*texts), n_override=len(texts))
        name, out = _name_of(path), c_void_p()

        def open_model(report: Any) -> None:
            options.progress = ctypes.cast(report, c_void_p)
            _call("hearth_model_open", name, byref(options), byref(out))

        try:
            _with_progress(cancel, progress, open_model)
        except BaseException:
            if out.value:  # Ctrl-C came when it was open
                _lib.hearth_model_close(out)
            raise
        super().__init__("hearth_model_close", out, cancel)
        self._cancel = cancel
        self.info = self._get_info()

    @property
    def metadata(self) -> Metadata:
        """Keys and values of the file."""
        return Metadata(self)

    def _get_info(self) -> ModelInfo:
        found = _ModelInfo()
        _lib.hearth_model_get_info(self._pointer, byref(found))
        return ModelInfo(**_values_of(ModelInfo, found))

    @property
    def cancelled(self) -> bool:
        """True: evaluations of this model end with status cancelled, on all threads, until it is False again."""
        return bool(self._cancel.value & _CANCELLED)

    @cancelled.setter
    def cancelled(self, on: bool) -> None:
        self._cancel.value = self._cancel.value & _CTRL_C | (_CANCELLED if on else 0)

    @property
    def bos(self) -> int:
        """The token that begins a text; -1: there is none."""
        return int(_lib.hearth_token_bos(self._pointer))

    @property
    def eos(self) -> int:
        """The token that ends a text; -1: there is none."""
        return int(_lib.hearth_token_eos(self._pointer))

    def is_eog(self, token: int) -> bool:
        """Whether it is an end of generation."""
        return bool(_lib.hearth_token_is_eog(self._pointer, token))

    def token(self, token: int) -> Token:
        """What the vocabulary says of it."""
        found = _TokenInfo()
        status = _lib.hearth_model_get_token(self._pointer, token, byref(found))
        if status:
            raise Error(STATUS[status], f"token {token}: the vocabulary has {self.info.n_vocab}, or is not supported")
        names = tuple(name for i, name in enumerate(_ATTRIBUTES) if found.attributes >> i & 1)
        return Token(ctypes.string_at(found.text, found.n_text), ctypes.string_at(found.bytes, found.n_bytes), found.score, names)

    def find_token(self, text: Text) -> int:
        """The token whose text in the vocabulary is exactly this; -1: there is none."""
        data = _bytes_of(text)
        return int(_lib.hearth_token_find(self._pointer, data, len(data)))

    def special_token(self, kind: str) -> int:
        """kind: a name of hearth_special_token in small letters, "eot", "fim_prefix"; -1: there is none."""
        return int(_lib.hearth_token_special(self._pointer, _value_of(_SPECIAL, kind, "kind")))

    def tokenize(self, text: Text, *, add_special: bool = True, parse_special: bool = False) -> List[int]:
        """parse_special: texts of control tokens become these tokens, for trusted text only."""
        data, ids, n = _bytes_of(text), c_void_p(), c_size_t()
        _call("hearth_tokenize", self._pointer, data, len(data), add_special | parse_special << 1, byref(ids), byref(n))
        return _given_ids(ids, n)

    def detokenize(self, tokens: Iterable[int], *, at_start: bool = True, show_special: bool = False) -> str:
        """at_start: the tokens start a text; else they continue one."""
        decoder = Detokenizer(self, at_start=at_start, show_special=show_special)
        with decoder:
            return "".join([decoder.push(token) for token in tokens]) + decoder.flush()

    def _tokens_of(self, prompt: Prompt) -> List[int]:
        return self.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(_ids_of(prompt))

    def session(self, *, n_ctx: int = 0, n_batch: int = 0, n_thread: int = 0, bf16_dot: bool = False,
                release_window: bool = False, kv: str = "f16", selector: str = "auto") -> Session:
        """An empty sequence; hearth_session_options says what the options mean."""
        options = _SessionOptions(n_ctx=n_ctx, n_batch=n_batch, n_thread=n_thread, bf16_dot=bf16_dot,
                                  release_window=release_window, kv=_value_of(_KV, kv, "kv"),
                                  selector=_value_of(_SELECTORS, selector, "selector"))
        out = c_void_p()
        _call("hearth_session_open", self._pointer, byref(options), byref(out))
        return Session(self, out)

    def scheduler(self, *, n_position: int = 0, n_ctx: int = 0, n_batch: int = 0, n_running: int = 0, n_kept: int = 0,
                  n_thread: int = 0, kv: str = "f16", max_delay: float = 0) -> Scheduler:
        """For requests that are evaluated together; hearth_scheduler_options says what the options mean."""
        return Scheduler(self, n_position=n_position, n_ctx=n_ctx, n_batch=n_batch, n_running=n_running, n_kept=n_kept,
                         n_thread=n_thread, kv=kv, max_delay=max_delay)

    def generate(self, prompt: Prompt, *, max_tokens: int = 0, stop: Union[str, Sequence[str]] = (),
                 constraint: Optional[Constraint] = None, **sampling: Any) -> Iterator[str]:
        """Session.generate in a session of its own."""
        tokens, max_tokens = self._tokens_of(prompt), _integer(max_tokens, c_uint32, "max_tokens")
        session = self.session(n_ctx=len(tokens) + max_tokens if max_tokens else 0)
        return session.generate(tokens, max_tokens=max_tokens, stop=stop, constraint=constraint, **sampling)

    def generate_many(self, prompts: Sequence[Prompt], *, max_tokens: int = 0, stop: Union[str, Sequence[str]] = (),
                      constraint: Optional[Constraint] = None, **sampling: Any) -> List[str]:
        """Texts for several prompts at once, faster than one after the other, with the same bits."""
        prompts = _several(prompts, "prompts")
        with self.scheduler() as scheduler:
            requests = [scheduler.add(prompt, max_tokens=max_tokens, stop=stop, constraint=constraint, **sampling)
                        for prompt in prompts]
            scheduler.run()
        for request in requests:
            if request.error:
                raise request.error
        return [request.text for request in requests]

    def embed(self, text: Prompt, *, pooling: str = "auto", normalize: bool = True, n_dim: int = 0) -> Floats:
        """A vector: what the last layer makes of the tokens, pooled as the file says, or as pooling does ("mean", "first",
        "last"): d_model numbers, or the first n_dim of them, by default of length 1. "rank": see rerank."""
        return self.embed_many([text], pooling=pooling, normalize=normalize, n_dim=n_dim)[0]

    def embed_many(self, texts: Sequence[Prompt], *, pooling: str = "auto", normalize: bool = True,
                   n_dim: int = 0) -> List[Floats]:
        """The same of several texts, evaluated together: faster, with the same bits as one by one."""
        tokens = [self._tokens_of(text) for text in _several(texts, "texts")]
        kept = [_ids_of(ids) for ids in tokens]
        given = (_EmbedText * len(kept))(*[_EmbedText(tokens=ids, n_token=len(ids)) for ids in kept])
        options = _EmbedderOptions(n_ctx=max([1, *map(len, tokens)]), n_dim=n_dim, no_normalize=not normalize,
                                   pooling=_value_of(_POOLINGS, pooling, "pooling"))
        out = c_void_p()
        _call("hearth_embedder_open", self._pointer, byref(options), byref(out))
        with _Object("hearth_embedder_close", out, self._kept) as embedder:
            n_dim = _lib.hearth_embedder_n_dim(embedder._pointer)
            pointer, values = embedder._pointer, (c_float * (len(kept) * n_dim))()
            _interruptible(self._cancel, lambda: _call("hearth_embed", pointer, given, len(kept), values))
        all_values = array.array("f", bytes(values))
        return [all_values[i * n_dim:(i + 1) * n_dim] for i in range(len(kept))]

    def rerank(self, query: Text, documents: Sequence[Text]) -> List[float]:
        """How well each document answers a query, from 0 to 1, by a reranker."""
        pairs, query = [], _bytes_of(query)
        for document in map(_bytes_of, _several(documents, "documents")):
            ids, n = c_void_p(), c_size_t()
            _call("hearth_tokenize_pair", self._pointer, query, len(query), document, len(document), byref(ids), byref(n))
            pairs.append(_given_ids(ids, n))
        return [scores[0] for scores in self.embed_many(pairs, pooling="rank", n_dim=1)]

    def chat(self, format: Optional[str] = None, *, template: Optional[Text] = None) -> Chat:
        """By the template in the file, a format by name (formats()), or a Jinja template."""
        return Chat(self, format, template=template)

    def json_object(self) -> Constraint:
        """Allows any JSON object."""
        return Constraint(self, "json_object")

    def json_schema(self, schema: Union[Text, Mapping[str, Any]]) -> Constraint:
        """Allows JSON of a schema; docs/constrain.md lists what is supported."""
        return Constraint(self, "json_schema", _json_of(schema))

    def grammar(self, text: Text) -> Constraint:
        """Allows texts of a grammar as llama.cpp has them (GBNF)."""
        return Constraint(self, "grammar", _bytes_of(text))

    def choices(self, texts: Sequence[Text]) -> Constraint:
        """Allows one of several texts."""
        return Constraint(self, "choices", choices=[_terminated(_bytes_of(text)) for text in _several(texts, "choices")])


class Detokenizer(_Object):
    """Converts a stream of tokens to text; keeps incomplete characters back."""

    def __init__(self, model: Model, *, at_start: bool = True, show_special: bool = False) -> None:
        out = c_void_p()
        _call("hearth_detokenizer_open", model._pointer, at_start, show_special, byref(out))
        super().__init__("hearth_detokenizer_close", out, model._kept)

    def push(self, token: int) -> str:
        text, n = c_void_p(), c_size_t()
        _call("hearth_detokenizer_push", self._pointer, token, byref(text), byref(n))
        return ctypes.string_at(text, n.value).decode(errors="replace") if n.value else ""

    def flush(self) -> str:
        text, n = c_void_p(), c_size_t()
        _lib.hearth_detokenizer_flush(self._pointer, byref(text), byref(n))
        return ctypes.string_at(text, n.value).decode(errors="replace") if n.value else ""


# ---- sampling, constraints ---------------------------------------------------------------------------------------

def _sampler_options(temperature: float = 0, top_k: int = 0, top_p: float = 0, min_p: float = 0, typical_p: float = 0,
                     repeat_penalty: float = 0, presence_penalty: float = 0, frequency_penalty: float = 0,
                     repeat_last_n: int = 0, seed: int = 0, bias: Optional[Mapping[int, float]] = None,
                     top_n_sigma: float = 0, xtc_probability: float = 0, xtc_threshold: float = 0,
                     dynatemp_range: float = 0, dynatemp_exponent: float = 0, dry_multiplier: float = 0,
                     dry_base: float = 0, dry_allowed_length: int = 0, dry_last_n: int = 0,
                     dry_breakers: Optional[Sequence[str]] = None, mirostat: int = 0, mirostat_tau: float = 0,
                     mirostat_eta: float = 0) -> _SamplerOptions:
    pairs = [_LogitBias(id=token, bias=value) for token, value in (bias or {}).items()]
    texts = [_terminated(_bytes_of(text)) for text in dry_breakers or ()]
    breakers = (c_char_p * len(texts))(*texts) if texts else None
    return _SamplerOptions(temperature=temperature, top_k=top_k, typical_p=typical_p, top_p=top_p, min_p=min_p,
                           repeat_penalty=repeat_penalty, presence_penalty=presence_penalty,
                           frequency_penalty=frequency_penalty, repeat_last_n=repeat_last_n, seed=seed,
                           bias=(_LogitBias * len(pairs))(*pairs), n_bias=len(pairs), top_n_sigma=top_n_sigma,
                           xtc_probability=xtc_probability, xtc_threshold=xtc_threshold,
                           dynatemp_range=dynatemp_range, dynatemp_exponent=dynatemp_exponent,
                           dry_multiplier=dry_multiplier, dry_base=dry_base, dry_allowed_length=dry_allowed_length,
                           dry_last_n=dry_last_n, dry_breakers=breakers, n_dry_breaker=len(texts), mirostat=mirostat,
                           mirostat_tau=mirostat_tau, mirostat_eta=mirostat_eta)


class Sampler(_Object):
    """Draws tokens: Sampler(model, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1). Without options, the most
    likely ones. Options: fields of hearth_sampler_options; bias: {token: added to its logit}."""

    def __init__(self, model: Model, *, _pointer: Optional[c_void_p] = None, **sampling: Any) -> None:
        out = _pointer or c_void_p()
        if _pointer is None:
            _call("hearth_sampler_open", model._pointer, byref(_sampler_options(**sampling)), byref(out))
        super().__init__("hearth_sampler_close", out, model._kept)
        self._model = model

    def clone(self) -> Sampler:
        """One that draws and penalises from now on as this one does."""
        out = c_void_p()
        _call("hearth_sampler_clone", self._pointer, byref(out))
        return Sampler(self._model, _pointer=out)

    def reseed(self, seed: int) -> None:
        """Draws from now on as with this seed. The history stays."""
        _lib.hearth_sampler_reseed(self._pointer, seed)

    def forget(self) -> None:
        """Empties the history of the penalties, for another text."""
        _lib.hearth_sampler_forget(self._pointer)

    def accept(self, token: int) -> None:
        """Adds a token to the history of the penalties."""
        _lib.hearth_sampler_accept(self._pointer, token)

    def sample(self, logits: Logits) -> int:
        """From n_vocab floats, or those of a session."""
        token = c_int32()
        if isinstance(logits, Session):
            _check_vocabulary("logits", logits.model, self._model)
            values = _lib.hearth_session_logits(logits._pointer)
        else:
            values = _floats_of(logits, self._model.info.n_vocab)
        _call("hearth_sampler_sample", self._pointer, values, byref(token))
        return token.value


def _check_vocabulary(name: str, model: Model, expected: Model) -> None:
    if model.info.n_vocab != expected.info.n_vocab:
        raise Error("argument", f"{name}: of a model with {model.info.n_vocab} tokens, but this one has "
                                f"{expected.info.n_vocab}")


def _floats_of(values: Union[Floats, memoryview], n: int) -> Any:
    view = memoryview(values)
    if view.format != "f" or view.nbytes != 4 * n:
        raise Error("argument", f"logits: {view.nbytes} bytes of {view.format!r}, but {n} floats are needed")
    return (c_float * n).from_buffer_copy(view) if view.readonly else (c_float * n).from_buffer(view)


class Constraint(_Object):
    """Which texts can be generated: made by functions of Model. generate works on a copy."""

    def __init__(self, model: Model, kind: str, text: Optional[bytes] = None, choices: Sequence[bytes] = (),
                 _pointer: Optional[c_void_p] = None) -> None:
        self._model, out = model, _pointer or c_void_p()
        if _pointer is None:
            options = _ConstraintOptions(kind=_value_of(_CONSTRAINTS, kind, "kind"), text=text, n=len(text or b""),
                                         choices=(c_char_p * len(choices))(*choices), n_choice=len(choices))
            _call("hearth_constraint_open", model._pointer, byref(options), byref(out))
        super().__init__("hearth_constraint_close", out, model._kept)

    def copy(self) -> Constraint:
        """At the same place of the same text."""
        out = c_void_p()
        _call("hearth_constraint_copy", self._pointer, byref(out))
        return Constraint(self._model, "", _pointer=out)

    def mask(self, logits: Union[Floats, memoryview]) -> None:
        """Sets the logits of tokens that cannot follow to -infinity."""
        if memoryview(logits).readonly:
            raise Error("argument", "logits: they are read-only")
        _call("hearth_constraint_mask", self._pointer, _floats_of(logits, self._model.info.n_vocab))

    def accept(self, token: int) -> None:
        _call("hearth_constraint_accept", self._pointer, token)

    @property
    def end(self) -> str:
        """incomplete, accepting, or complete."""
        return _ENDS[_lib.hearth_constraint_get_end(self._pointer)]

    @property
    def notes(self) -> List[str]:
        """What of its schemas is not enforced: the path in the schema, and what."""
        notes: bytes = _lib.hearth_constraint_get_notes(self._pointer)
        return notes.decode().splitlines()


# ---- sessions ----------------------------------------------------------------------------------------------------

class Session(_Object):
    """One sequence of tokens and its KV cache: made by Model.session."""

    def __init__(self, model: Model, pointer: c_void_p) -> None:
        super().__init__("hearth_session_close", pointer, model._kept)
        self.model = model

    @property
    def position(self) -> int:
        return int(_lib.hearth_session_position(self._pointer))

    @property
    def n_ctx(self) -> int:
        return int(_lib.hearth_session_n_ctx(self._pointer))

    @property
    def tokens(self) -> List[int]:
        return array.array("i", ctypes.string_at(_lib.hearth_session_tokens(self._pointer), 4 * self.position)).tolist()

    def eval(self, tokens: Sequence[int]) -> None:
        """Appends tokens, and computes the logits after the last. After an error the session is as before."""
        pointer, ids, n = self._pointer, _ids_of(tokens), len(tokens)
        if n == 1:
            _call("hearth_session_eval", pointer, ids, n)
        else:
            _interruptible(self.model._cancel, lambda: _call("hearth_session_eval", pointer, ids, n))

    def eval_hidden(self, tokens: Sequence[int]) -> List[Floats]:
        """As eval, but gives what the last layer makes of each token, and leaves no logits."""
        pointer, ids, n, size = self._pointer, _ids_of(tokens), len(tokens), 4 * self.model.info.d_model
        rows: List[Floats] = []

        def add(_: Any, i: int, values: Any, err: Any) -> int:
            with _within_library():
                rows.append(array.array("f", ctypes.string_at(values, size)))
            return 0

        fn = _HIDDEN_FN(add)
        _interruptible(self.model._cancel, lambda: _call("hearth_session_eval_hidden", pointer, ids, n, fn, None))
        return rows

    def logits(self) -> Floats:
        """A copy of the logits after the last token; empty where there are none (hearth_session_logits)."""
        values = _lib.hearth_session_logits(self._pointer)
        return array.array("f", ctypes.string_at(values, 4 * self.model.info.n_vocab) if values else b"")

    def truncate(self, position: int) -> None:
        """Removes the tokens from position on."""
        _call("hearth_session_truncate", self._pointer, position)

    def fork(self) -> Session:
        """A copy that shares the cache of the tokens so far."""
        out = c_void_p()
        _call("hearth_session_fork", self._pointer, byref(out))
        return Session(self.model, out)

    def save(self, path: Union[Text, "os.PathLike[str]"]) -> None:
        _call("hearth_session_save", self._pointer, _name_of(path))

    def save_bytes(self) -> bytes:
        """What save writes."""
        data, n = c_void_p(), c_size_t()
        _call("hearth_session_save_memory", self._pointer, byref(data), byref(n))
        try:
            return ctypes.string_at(data, n.value)
        finally:
            _lib.hearth_free(data)

    def restore_bytes(self, data: bytes) -> None:
        _call("hearth_session_restore_memory", self._pointer, data, len(data))

    def set_threads(self, n_thread: int) -> None:
        """From now on; 0: one per physical core. The bits of what is evaluated stay the same."""
        _call("hearth_session_set_threads", self._pointer, n_thread)

    def restore(self, path: Union[Text, "os.PathLike[str]"]) -> None:
        """Replaces the tokens by those of a file that was saved with the same model and options."""
        _call("hearth_session_restore", self._pointer, _name_of(path))

    def generate(self, prompt: Prompt = (), *, max_tokens: int = 0, stop: Union[str, Sequence[str]] = (),
                 constraint: Optional[Constraint] = None, **sampling: Any) -> Iterator[str]:
        """Appends the prompt, then yields pieces of text until the model ends it, a text of stop comes (which is not
        yielded), the context is full, or after max_tokens tokens, if that is not 0. sampling: as of a Sampler. The
        session then has all tokens but the last."""
        tokens = self.model._tokens_of(prompt)
        decoder = Detokenizer(self.model, at_start=False)
        pieces = self._pieces(self._sample(tokens, max_tokens, constraint, sampling), decoder)
        return _before_stop(pieces, _stops_of(stop))

    def _sample(self, prompt: Sequence[int], max_tokens: int, constraint: Optional[Constraint],
                sampling: Mapping[str, Any]) -> Iterator[int]:
        """The arguments are checked now, tokens come later. hearth_generate calls a function for each token, from which an
        iterator cannot be made without a thread."""
        max_tokens = _integer(max_tokens, c_uint32, "max_tokens")
        if constraint and constraint._model is not self.model:
            raise Error("argument", "constraint: it was opened with another model")
        sampler = Sampler(self.model, **sampling)
        rule = constraint.copy() if constraint else None

        def tokens() -> Iterator[int]:
            for token in itertools.chain(self.tokens if prompt or self.position else (), prompt):
                sampler.accept(token)
            if prompt:
                self.eval(prompt)
            for i in itertools.count(1):
                token = self._next(sampler, rule)
                if self.model.is_eog(token):
                    return
                sampler.accept(token)
                if rule:
                    rule.accept(token)
                yield token
                if i == max_tokens or self.position == self.n_ctx or rule and rule.end == "complete":
                    return
                self.eval([token])
        return tokens()

    def _next(self, sampler: Sampler, rule: Optional[Constraint]) -> int:
        if not rule:
            return sampler.sample(self)
        logits = self.logits()
        rule.mask(logits)
        return sampler.sample(logits)

    @staticmethod
    def _pieces(tokens: Iterator[int], decoder: Detokenizer) -> Iterator[str]:
        for token in tokens:
            yield decoder.push(token)
        yield decoder.flush()


def _stops_of(stop: Union[str, Sequence[str]]) -> List[str]:
    stops = [stop] if isinstance(stop, str) else _several(stop, "stop")
    for text in stops:
        if not text or "\0" in text:
            raise Error("argument", f"stop: {text!r} is empty, or has a NUL")
    return stops


def _before_stop(pieces: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """The text before the first of stops. What may be the beginning of one is kept back."""
    def texts() -> Iterator[str]:
        kept = ""
        for piece in pieces:
            kept += piece
            ends = [i for i in map(kept.find, stops) if i >= 0]
            if ends:
                kept = kept[:min(ends)]
                break
            n_back = max([n for stop in stops for n in range(1, len(stop)) if kept.endswith(stop[:n])], default=0)
            ready, kept = kept[:len(kept) - n_back], kept[len(kept) - n_back:]
            if ready:
                yield ready
        if kept:
            yield kept
    return texts()


class Batch(_Object):
    """Evaluates several sessions of one model at once."""

    def __init__(self, model: Model, n_tok: int = 256, *, n_thread: int = 0) -> None:
        out = c_void_p()
        _call("hearth_batch_open", model._pointer, n_tok, n_thread, byref(out))
        super().__init__("hearth_batch_close", out, model._kept)
        self._cancel = model._cancel

    def add(self, session: Session, tokens: Sequence[int]) -> None:
        _call("hearth_batch_add", self._pointer, session._pointer, _ids_of(tokens), len(tokens))

    def run(self) -> None:
        """Each session then has the logits after its last token. After an error the batch keeps its tokens."""
        pointer = self._pointer
        _interruptible(self._cancel, lambda: _call("hearth_batch_run", pointer))

    def clear(self) -> None:
        _lib.hearth_batch_clear(self._pointer)


# ---- chat --------------------------------------------------------------------------------------------------------

class Part(NamedTuple):
    """Of an answer. kind: text, reasoning, call (the name of a function), or arguments (a part of its JSON)."""
    kind: str
    text: str


def formats() -> List[str]:
    """Names of chat formats."""
    names = itertools.takewhile(bool, map(_lib.hearth_chat_format, itertools.count()))
    return [name.decode() for name in names]


def _messages_of(messages: Sequence[Message]) -> Any:
    messages = _several(messages, "messages")
    found = (_Message * len(messages))()
    for to, message in zip(found, messages):
        rest = {k: v for k, v in message.items() if k not in ("role", "content")}
        content = _bytes_of(message.get("content") or "")
        to.role, to.content, to.n = _terminated(_bytes_of(message["role"])), content, len(content)
        to.members = _json_of(rest) if rest else None
    return found


class Chat(_Object):
    """How a conversation becomes a prompt: made by Model.chat. chat.reply([{"role": "user", "content": "Hi"}]) yields the
    text of an answer."""

    def __init__(self, model: Model, format: Optional[str] = None, *, template: Optional[Text] = None) -> None:
        out = c_void_p()
        if template is not None:
            source = _bytes_of(template)
            _call("hearth_chat_open_template", model._pointer, source, len(source), byref(out))
        else:
            _call("hearth_chat_open", model._pointer, _name_of(format), byref(out))
        super().__init__("hearth_chat_close", out, model._kept)
        self.model = model

    @property
    def name(self) -> str:
        """"template", "template of the file", or that of a format."""
        return str(_lib.hearth_chat_name(self._pointer).decode())

    def _write(self, name: str, messages: Sequence[Message], add_generation_prompt: bool, tools: Any,
               variables: Any) -> Any:
        out, n = c_void_p(), c_size_t()
        options = _ChatOptions(add_generation_prompt=add_generation_prompt, tools=_json_of(tools),
                               variables=_json_of(variables))
        _call(name, self._pointer, _messages_of(messages), len(messages), byref(options), byref(out), byref(n))
        return out, n

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, tools: Any = None,
               variables: Any = None) -> str:
        """The text of a conversation. tools: functions in OpenAI's form; variables: more of the template's."""
        out, n = self._write("hearth_chat_render", messages, add_generation_prompt, tools, variables)
        text = ctypes.string_at(out, n.value).decode(errors="replace")
        _lib.hearth_free(out)
        return text

    def tokenize(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, tools: Any = None,
                 variables: Any = None) -> List[int]:
        return _given_ids(*self._write("hearth_chat_tokenize", messages, add_generation_prompt, tools, variables))

    def reply(self, messages: Sequence[Message], *, stop: Union[str, Sequence[str]] = (), **options: Any) -> Iterator[str]:
        """Pieces of the text of an answer, without reasoning and calls."""
        texts = (part.text for part in self.answer(messages, **options) if part.kind == "text")
        return _before_stop(texts, _stops_of(stop))

    def answer(self, messages: Sequence[Message], *, tools: Any = None, variables: Any = None,
               session: Optional[Session] = None, max_tokens: int = 0, constraint: Optional[Constraint] = None,
               **sampling: Any) -> Iterator[Part]:
        """The parts of an answer. session: one that keeps the cache from turn to turn; what it has of the prompt is not
        evaluated again, and what differs is replaced."""
        prompt = self.tokenize(messages, tools=tools, variables=variables)
        session = session or self.model.session()
        _check_vocabulary("session", session.model, self.model)
        n_common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(session.tokens, prompt[:-1])))
        session.truncate(n_common)
        parts: List[Part] = []

        def add(_: Any, kind: int, text: Any, n: int) -> None:
            parts.append(Part(_ANSWERS[kind], ctypes.string_at(text, n).decode(errors="replace")))

        fn, ids, out = _ANSWER_FN(add), _ids_of(prompt), c_void_p()
        options = _AnswerOptions(chat=self._pointer, at_start=constraint is None, tools=_json_of(tools),
                                 in_reasoning=_lib.hearth_chat_is_reasoning(self._pointer, ids, len(prompt)),
                                 fn=ctypes.cast(fn, c_void_p))
        _call("hearth_answer_open", self.model._pointer, byref(options), byref(out))
        answer = _Object("hearth_answer_close", out, (fn, self.model._kept))
        tokens = session._sample(prompt[n_common:], max_tokens, constraint, sampling)

        def divide() -> Iterator[Part]:
            for token in tokens:
                _call("hearth_answer_push", answer._pointer, token)
                while parts:
                    yield parts.pop(0)
            _call("hearth_answer_finish", answer._pointer)
            yield from parts
        return divide()


# ---- several prompts at once -------------------------------------------------------------------------------------

@dataclass
class Request:
    """Of a scheduler. state: token (it goes on), end, length, stopped, stop_text, cancelled, or failed, with error."""
    tokens: List[int] = field(default_factory=list)
    text: str = ""
    state: str = "token"
    error: Optional[Exception] = None
    id: int = 0


@dataclass(frozen=True)
class RequestProgress:
    """Of hearth_request_progress."""
    is_running: bool
    n_before: int
    n_prompt: int
    n_cached: int
    n_generated: int
    n_evaluated: int


@dataclass(frozen=True)
class SchedulerStats:
    """Of hearth_scheduler_stats."""
    n_waiting: int
    n_running: int
    n_kept: int
    n_page: int
    n_page_used: int
    n_prompt: int
    n_cached: int
    n_generated: int
    n_preempted: int


def _request_fn(scheduler: weakref.ref[Scheduler]) -> Any:
    """What the library calls, and keeps until the scheduler is closed: by name alone, so that it can be dropped."""
    def call(key: int, event: Any) -> bool:
        found = scheduler()
        return found._take(key, event.contents) if found else False
    return _REQUEST_FN(call)


class Scheduler(_Object):
    """Evaluates requests over one model together, as hearth serve does: what one gets does not depend on the others.
    Options: fields of hearth_scheduler_options."""

    def __init__(self, model: Model, *, n_position: int = 0, n_ctx: int = 0, n_batch: int = 0, n_running: int = 0,
                 n_kept: int = 0, n_thread: int = 0, kv: str = "f16", max_delay: float = 0) -> None:
        options = _SchedulerOptions(n_position=n_position, n_ctx=n_ctx, n_batch=n_batch, n_running=n_running,
                                    n_kept=n_kept, n_thread=n_thread, kv=_value_of(_KV, kv, "kv"), max_delay=max_delay)
        out = c_void_p()
        _call("hearth_scheduler_open", model._pointer, byref(options), byref(out))
        self.model = model
        self._running: Dict[int, Tuple[Request, Optional[Callable[[str], Any]]]] = {}
        self._keys = itertools.count(1)
        self._fn = _request_fn(weakref.ref(self))
        super().__init__("hearth_scheduler_close", out, (self._fn, model._kept))

    def _take(self, key: int, event: Any) -> bool:
        """Whether the request goes on after what happened to it."""
        request, on_text = self._running[key]
        request.state = _STATES[event.state]
        if request.state == "token":
            request.tokens.append(event.token)
        else:
            del self._running[key]
        if request.state == "failed":
            request.error = _error_of(event.error.contents)
        try:
            text = ctypes.string_at(event.text, event.n_text).decode(errors="replace")
            request.text += text
            return not text or on_text is None or on_text(text) is not False
        except Exception as error:
            request.error = request.error or error
            return False

    def add(self, prompt: Prompt, *, max_tokens: int = 0, stop: Union[str, Sequence[str]] = (),
            constraint: Optional[Constraint] = None, owner: int = 0, on_text: Optional[Callable[[str], Any]] = None,
            **sampling: Any) -> Request:
        """The text ends before those of stop. on_text gets pieces of it, during step; False ends the request."""
        tokens = self.model._tokens_of(prompt)
        request, key = Request(), next(self._keys)
        stops = [text.encode() for text in _stops_of(stop)]
        rule = constraint.copy() if constraint else None
        options = _Request(tokens=_ids_of(tokens), n_token=len(tokens), max_token=max_tokens, owner=owner, user=key,
                           sampler=ctypes.pointer(_sampler_options(**sampling)), fn=ctypes.cast(self._fn, c_void_p),
                           constraint=rule._pointer if rule else None, with_text=True,
                           stops=(c_char_p * len(stops))(*stops), n_stop=len(stops))
        self._running[key] = request, on_text
        number = c_uint64()
        try:
            _call("hearth_scheduler_add", self._pointer, byref(options), byref(number))
        except Exception:
            self._running.pop(key, None)
            raise
        request.id = number.value
        return request

    def cancel(self, request: Request) -> None:
        _lib.hearth_scheduler_cancel(self._pointer, request.id)

    def pause(self, request: Request, is_paused: bool = True) -> None:
        """A paused request keeps its place, but takes part in no step."""
        _lib.hearth_scheduler_pause(self._pointer, request.id, is_paused)

    def progress(self, request: Request) -> Optional[RequestProgress]:
        """How far it is; None: it has ended."""
        found = _RequestProgress()
        if not _lib.hearth_scheduler_get_progress(self._pointer, request.id, byref(found)):
            return None
        return RequestProgress(**_values_of(RequestProgress, found))

    def stats(self) -> SchedulerStats:
        found = _SchedulerStats()
        _lib.hearth_scheduler_get_stats(self._pointer, byref(found))
        return SchedulerStats(**_values_of(SchedulerStats, found))

    def set_threads(self, n_thread: int) -> None:
        """As Session.set_threads, of steps."""
        _call("hearth_scheduler_set_threads", self._pointer, n_thread)

    def step(self) -> bool:
        """Evaluates one batch. False: no request is left, or only paused ones."""
        pointer, more = self._pointer, c_bool()
        _interruptible(self.model._cancel, lambda: _call("hearth_scheduler_step", pointer, byref(more)))
        return bool(more.value)

    def run(self) -> None:
        """Steps until no request is left, or only paused ones."""
        while self.step():
            pass

    def save(self, folder: Union[Text, "os.PathLike[str]"], *, max_size: int = 2**64 - 1,
             progress: Optional[Callable[[int, int], Any]] = None) -> None:
        """Writes the cache of earlier requests to a folder, of which max_size bytes are kept. progress(done, total)
        gets bytes of each file; False ends it."""
        pointer, name = self._pointer, _name_of(folder)
        _with_progress(self.model._cancel, progress,
                       lambda report: _call("hearth_scheduler_save", pointer, name, max_size, report, None))

    def restore(self, folder: Union[Text, "os.PathLike[str]"]) -> None:
        """Reads what save wrote with the same model and options: requests find it again."""
        _call("hearth_scheduler_restore", self._pointer, _name_of(folder))

    @property
    def has_unsaved(self) -> bool:
        """Whether the cache of a request was kept since save or restore."""
        return bool(_lib.hearth_scheduler_has_unsaved(self._pointer))
