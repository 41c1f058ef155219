"""An option is stated once: as the field of a dataclass, which holds its name, default, bounds, choices and help.

The flag of a command (`tf_bert.commands.flags.Flags.add_options`), the docs of the class and the check of a value given
in Python are made from the field. Nothing here loads TensorFlow.
"""

import dataclasses
import inspect
import math
import numbers
import textwrap
import types
import typing
from collections.abc import Sequence
from typing import Any

_NUMBERS = {int: (numbers.Integral, "a whole number"), float: (numbers.Real, "a number")}


@dataclasses.dataclass(frozen=True)
class Option:
    """What is known of an option.

    Args:
        name: of the field and of the flag.
        type: ``int``, ``float``, ``bool`` or ``str``; None is a value too where it is the default.
        default: the value where none is given.
        help: what the option sets, and in which unit.
        minimum: the least value.
        maximum: the largest value.
        choices: the only values.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: Sequence[str] | None = None

    def check(self, value: Any) -> None:
        """Raises ValueError for a value that the option cannot have."""
        if value is None and self.default is None:
            return
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{self.name} is {value!r}; known are {', '.join(self.choices)}")
        elif self.type in _NUMBERS:
            kind, expected = _NUMBERS[self.type]
            low = -math.inf if self.minimum is None else self.minimum
            high = math.inf if self.maximum is None else self.maximum
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                expected += f" >= {low}" * (self.minimum is not None) + f" <= {high}" * (self.maximum is not None)
                raise ValueError(f"{self.name} is {value!r}; expected {expected}")


def option(default: Any, help: str | None = None, **limits: Any) -> Any:
    """Declares a field of an `options_class`.

    Args:
        default: the value where none is given.
        help: what the option sets; that of the base class where the field is declared anew for another default.
        **limits: ``minimum``, ``maximum``, ``choices``; see `Option`.
    """
    metadata = limits if help is None else {"help": help, **limits}
    return dataclasses.field(default=default, metadata=metadata)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(option,))
def options_class(cls: type) -> type:
    """Makes a frozen dataclass whose fields are options: its values are checked, and its docstring lists them.

    A ``__post_init__`` of the class checks what two options have to do with each other.

    Example:
        >>> @options_class
        ... class Speed:
        ...     '''How fast.'''
        ...     knots: int = option(8, "Nautical miles in an hour.", minimum=1)
        >>> Speed(knots=0)
        Traceback (most recent call last):
        ...
        ValueError: knots is 0; expected a whole number >= 1
        >>> print(Speed.__doc__)
        How fast.
        <BLANKLINE>
        Args:
            knots: Nautical miles in an hour. Default: 8.
    """

    check_together = vars(cls).get("__post_init__")

    def __post_init__(self) -> None:
        for each in options_of(cls):
            each.check(getattr(self, each.name))
        if check_together is not None:
            check_together(self)

    cls.__post_init__ = __post_init__
    cls = dataclasses.dataclass(frozen=True)(cls)
    lines = [inspect.cleandoc(cls.__doc__ or ""), "", "Args:"]
    for each in options_of(cls):
        default = "" if each.default is None else f" Default: {each.default}."
        lines += textwrap.wrap(f"    {each.name}: {each.help}{default}", 112, subsequent_indent=" " * 8)
    cls.__doc__ = "\n".join(lines)
    return cls


def options_of(cls: type) -> list[Option]:
    """The options of a class in the order of its fields."""
    merged: dict[str, dict[str, Any]] = {}
    for base in reversed(cls.__mro__):  # a field that is declared anew keeps what it does not say
        for name, field in vars(base).get("__dataclass_fields__", {}).items():
            merged[name] = merged.get(name, {}) | dict(field.metadata)
    return [
        Option(field.name, _plain(field.type), field.default, **merged[field.name]) for field in dataclasses.fields(cls)
    ]


def _plain(annotation: Any) -> type:
    """``int`` for ``int | None``."""
    return next(part for part in typing.get_args(annotation) or (annotation,) if part is not types.NoneType)
