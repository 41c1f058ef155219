"""Base class of all configurations: checks of values, reading and writing of JSON."""

import copy
import dataclasses
import difflib
import json
import numbers
import os
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

from tf_bert.json_files import read_json_object

# The type of a field -> what it takes, and its name in messages.
_KINDS = {
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    bool: (bool, "true or false"),
    str: (str, "a text"),
    types.NoneType: (types.NoneType, "null"),
    Mapping: (Mapping, "an object"),
    Callable: (Callable, "a function"),
}
LARGEST = 2**31 - 1  # ids and sizes are 32-bit numbers in TensorFlow
DEEPEST = 50  # levels of lists and objects in a configuration file


@dataclasses.dataclass(frozen=True)
class Config:
    """What the configurations of all models share: checks, JSON in, JSON out.

    Args:
        extra: keys of a configuration file that the model does not use; they are kept and written out again.
    """

    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self):
        """Raises ValueError for a value that no model could be built from."""
        for field in dataclasses.fields(self):
            problem = _problem(field.name, getattr(self, field.name), field.type)
            if problem:
                raise ValueError(f"{type(self).__name__}: {field.name} {problem}")

    def check_heads(self) -> None:
        """Raises ValueError where the heads do not divide the width."""
        width, heads = getattr(self, "hidden_size", 0), getattr(self, "num_attention_heads", 1)
        if width % heads:
            name = type(self).__name__
            raise ValueError(f"{name}: hidden_size {width} is not a multiple of num_attention_heads {heads}")

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> Self:
        """Makes a configuration from the contents of its JSON file.

        Keys that the model does not know are kept in ``extra``. One that is nearly the name of a setting which is
        itself absent is probably misspelt: a warning names both.

        Args:
            json_object: the keys and values.

        Raises:
            ValueError: a setting without default is missing, or a value is unusable.

        Example:
            >>> from tf_bert.configs import BertConfig
            >>> BertConfig.from_dict({"vocab_size": 30522, "pooler_type": "first_token_transform"}).extra
            {'pooler_type': 'first_token_transform'}
        """
        settings = {field.name: field for field in dataclasses.fields(cls) if field.name != "extra"}
        _check_depth(cls.__name__, json_object)
        absent = [name for name in settings if name not in json_object]
        extra = {key: copy.deepcopy(value) for key, value in json_object.items() if key not in settings}
        for name in absent:
            if settings[name].default is dataclasses.MISSING:
                raise ValueError(f"{cls.__name__}: {name} is missing; found {', '.join(json_object) or 'nothing'}")
        for key in extra:
            for near in difflib.get_close_matches(key, absent, 1, 0.8):
                text = f"is {key!r} meant to be {near!r}, which stays {settings[near].default!r}?"
                warnings.warn(f"{cls.__name__}: {text}", stacklevel=2)
        return cls(**{name: json_object[name] for name in settings if name in json_object}, extra=extra)

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike) -> Self:
        """Reads a configuration file.

        Args:
            json_file: path of a ``bert_config.json``.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a JSON object, `from_dict` refuses it, or the heads do not divide the width; the
                message names the file.
        """
        json_object = read_json_object(json_file)
        try:
            config = cls.from_dict(json_object)
            config.check_heads()
            return config
        except ValueError as error:
            raise ValueError(f"{os.fspath(json_file)}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """All settings and extra keys as a new dict."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return copy.deepcopy({**settings.pop("extra"), **settings})

    def to_json_string(self) -> str:
        """The text of a configuration file, byte for byte what the original writes.

        Example:
            >>> from tf_bert.configs import BertConfig
            >>> BertConfig(30522).to_json_string().splitlines()[1]
            '  "attention_probs_dropout_prob": 0.1,'
        """
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def shown(value: Any) -> str:
    """Returns a value as messages show it: as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def _problem(name: str, value: Any, kind: Any) -> str | None:
    """Says what a field takes where it does not take a value; None where it does."""
    kinds = [typing.get_origin(one) or one for one in typing.get_args(kind) or [kind]]
    if isinstance(kind, types.GenericAlias):  # Mapping[str, Any], whose arguments are not alternatives
        kinds = [typing.get_origin(kind)]
    known = [_KINDS[one] for one in kinds]
    if not any(isinstance(value, taken) and (taken is bool or not isinstance(value, bool)) for taken, _ in known):
        expected = " or ".join(words for _, words in known)
        return f"must be {expected}, not {shown(value)} ({type(value).__name__})"
    if int in kinds and value is not None:
        least = 0 if name.endswith("_id") else 1
        if value < least:
            return f"must be at least {least}, not {shown(value)}"
        return f"must be at most {LARGEST}, not {shown(value)}" if value > LARGEST else None
    if float in kinds:
        if name.endswith("_prob") and not 0 <= value < 1:
            return f"must lie in [0, 1), not {shown(value)}"
        if not -LARGEST <= value <= LARGEST:  # also NaN
            return f"must be a finite number, not {shown(value)}"
        if name.endswith(("_epsilon", "_range")) and value < 0:
            return f"must be at least 0, not {shown(value)}"
    return None


def _check_depth(name: str, json_object: Mapping[str, Any]) -> None:
    """Raises ValueError where lists and objects are nested deeper than anything that copies them can follow."""
    level: list[Any] = [json_object]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(inner, Mapping | list)
        ]
    if level:
        raise ValueError(f"{name}: lists or objects are nested more than {DEEPEST} levels deep")
