"""What NumPy has taken away since TensorFlow 1, given back to programs of that time.

Names that meant another name mean it again, methods of arrays are there again, and what a session
returns is as false and as much a number as it was. What changed its result (ragged lists, overflow)
stays as it is: NumPy says itself what to write.
"""

import ctypes
import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Function: TypeAlias = Callable[..., Any]
NAMES: dict[str, Any] = {
    **{"float": float, "int": int, "object": object, "str": str, "complex": complex},
    **{"unicode": str, "long": int, "bool8": np.bool_, "int0": np.intp, "uint0": np.uintp},
    **{"float_": np.float64, "complex_": np.complex128, "unicode_": np.str_, "string_": np.bytes_},
    **{"object0": np.object_, "str0": np.str_, "bytes0": np.bytes_, "void0": np.void},
    **{"longfloat": np.longdouble, "singlecomplex": np.complex64, "cfloat": np.complex128},
    **dict.fromkeys(("Inf", "Infinity", "infty", "PINF"), np.inf),
    **{"NINF": -np.inf, "NaN": np.nan, "PZERO": 0.0, "NZERO": -0.0, "typeDict": np.sctypeDict},
    **{"product": np.prod, "cumproduct": np.cumprod, "alltrue": np.all, "sometrue": np.any},
    **{"row_stack": np.vstack, "round_": np.round, "mat": np.asmatrix, "rank": np.ndim},
    "alen": lambda a: len(np.atleast_1d(a)),
    "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype),
    "asscalar": lambda a: a.item(),
    "in1d": lambda a, b, **options: np.isin(a, b, **options).ravel(),
    "msort": lambda a: np.sort(a, axis=0),
    "trapz": lambda *values, **options: getattr(np, "trapezoid")(*values, **options),  # noqa: B009
}


def give_back() -> None:
    """Changes NumPy in this process; what it still has stays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that it has for the last time
        for name, value in NAMES.items():
            if not hasattr(np, name):
                setattr(np, name, value)
    for kind in (np.ndarray, np.generic):
        _give_method(kind, "tostring", lambda array, order="C": array.tobytes(order))
        _give_method(kind, "ptp", np.ptp)
        _give_method(kind, "newbyteorder", lambda array, order="S": _in_order(array, order))
    _give_method(np.ndarray, "itemset", _itemset)
    np.fromstring = _fromstring_of(np.fromstring)
    np.reshape = _reshape_of(np.reshape)


def _give_method(kind: type, name: str, method: Function) -> None:
    """Gives a type of C a method: `setattr` would not."""
    if not hasattr(kind, name):
        gc.get_referents(vars(kind))[0][name] = method
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _in_order(array: Any, order: str) -> Any:
    return array.view(array.dtype.newbyteorder(order))


def _itemset(array: NDArray[Any], *words: Any) -> None:
    *place, value = words
    if len(place) == 1 and not isinstance(place[0], tuple):
        array.flat[place[0]] = value
    else:
        array[tuple(place[0]) if len(place) == 1 else tuple(place)] = value


def _fromstring_of(original: Function) -> Function:
    def fromstring(string: Any, dtype: Any = float, count: int = -1, **options: Any) -> Any:
        if options.get("sep"):
            return original(string, dtype, count, **options)
        return np.frombuffer(string, dtype, count).copy()  # its binary mode

    return fromstring


def _reshape_of(original: Function) -> Function:
    def reshape(a: Any, *words: Any, **options: Any) -> Any:
        if "newshape" in options:
            options["shape"] = options.pop("newshape")
        return original(a, *words, **options)

    return reshape


class array(np.ndarray[Any, Any]):
    """What a session returned: false where it is empty, a number where it has one element."""

    def __bool__(self) -> bool:
        return bool(self.size) and super().__bool__()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())


def returned(value: Any) -> Any:
    """What a session's call returns, as it behaved: see `array`."""
    if type(value) is np.ndarray:
        return value.view(array) if value.ndim and value.size <= 1 else value
    if type(value) in (dict, OrderedDict):
        return type(value)((key, returned(one)) for key, one in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(returned, value))
    return type(value)(map(returned, value)) if type(value) in (list, tuple) else value
