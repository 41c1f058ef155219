"""What the configurations of all models share: checks, JSON in, JSON out."""

import copy
import dataclasses
import difflib
import json
import numbers
import os
import warnings
from collections.abc import Mapping
from typing import Any, Self

from tf_bert.files import open_binary

_NUMBERS = {int: numbers.Integral, float: numbers.Real}


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
            value, number = getattr(self, field.name), _NUMBERS.get(field.type)
            if number and (isinstance(value, bool) or not isinstance(value, number)):
                expected = "an integer" if field.type is int else "a number"
                found = f"{value!r} ({type(value).__name__})"
                raise ValueError(f"{type(self).__name__}: {field.name} must be {expected}, not {found}")
            least = 0 if field.name.endswith("_id") else 1
            if field.type is int and value < least:
                raise ValueError(f"{type(self).__name__}: {field.name} must be at least {least}, not {value}")
            if field.name.endswith("_prob") and not 0 <= value < 1:
                raise ValueError(f"{type(self).__name__}: {field.name} must lie in [0, 1), not {value}")

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
        with open_binary(json_file) as file:
            try:
                json_object = json.loads(file.read().decode("utf-8"))
                if not isinstance(json_object, dict):
                    raise ValueError(f"expected a JSON object, found {type(json_object).__name__}")
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
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"
