"""Frozen dataclasses whose methods are written once.

`@dataclass(frozen=True)` composes and compiles six methods for each class: of two hundred classes
that was a good part of the time in which a launcher process imports what it needs. Here all classes
share them. They are dataclasses in all else: `fields`, `replace` and pydantic know them.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


class _Fields:
    """Fields of a class as its methods use them."""

    __slots__ = ("compared", "defaults", "factories", "names")

    def __init__(self, cls: type[Any]) -> None:
        every = fields(cls)
        self.names = tuple(one.name for one in every)
        self.defaults = {one.name: one.default for one in every if one.default is not MISSING}
        self.factories = {
            one.name: one.default_factory for one in every if one.default_factory is not MISSING
        }
        self.compared = tuple(one.name for one in every if one.compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a frozen dataclass of a class without `__post_init__`; its bases are such, too."""
    dataclass(cls, init=False, repr=False, eq=False)
    own = vars(cls)
    for name, method in {"_form": _Fields(cls), **_METHODS}.items():
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(cls, name, method)
    return cls


def _init(self: Any, *values: Any, **named: Any) -> None:
    form: _Fields = self._form
    names = form.names
    found: dict[str, Any] = self.__dict__
    found.update(zip(names, values, strict=False))
    for name in names[len(values) :]:
        if name in named:
            found[name] = named.pop(name)
        elif name in form.defaults:
            found[name] = form.defaults[name]
        elif name in form.factories:
            found[name] = form.factories[name]()
        else:
            raise TypeError(f"{type(self).__name__}: {name} is missing")
    if named or len(values) > len(names):
        surplus = ", ".join(map(repr, named or values[len(names) :]))
        raise TypeError(f"{type(self).__name__}: {surplus} is unknown, or given twice")


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._form.names)
    return f"{type(self).__qualname__}({values})"


def _key(self: Any) -> tuple[Any, ...]:
    found = self.__dict__
    return tuple([found[name] for name in self._form.compared])


def _eq(self: Any, other: object) -> Any:
    return _key(self) == _key(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_key(self))


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _set,
    "__delattr__": _delete,
}
