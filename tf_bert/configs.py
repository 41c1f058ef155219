"""Configurations of the models: frozen dataclasses that read and write the original's ``bert_config.json``."""

import copy
import dataclasses
import difflib
import json
import numbers
import os
import warnings
from collections.abc import Callable, Mapping
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
            if field.type is int and value < 1:
                raise ValueError(f"{type(self).__name__}: {field.name} must be at least 1, not {value}")
            if field.name.endswith("_prob") and not 0 <= value < 1:
                raise ValueError(f"{type(self).__name__}: {field.name} must lie in [0, 1), not {value}")

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
            >>> BertConfig.from_dict({"vocab_size": 30522, "pooler_type": "first_token_transform"}).extra
            {'pooler_type': 'first_token_transform'}
        """
        settings = {field.name: field for field in dataclasses.fields(cls) if field.name != "extra"}
        absent = [name for name in settings if name not in json_object]
        extra = {key: copy.deepcopy(value) for key, value in json_object.items() if key not in settings}
        for key in extra:
            for near in difflib.get_close_matches(key, absent, 1, 0.8):
                default = settings[near].default
                text = "which is required" if default is dataclasses.MISSING else f"which stays {default!r}"
                warnings.warn(f"{cls.__name__}: is {key!r} meant to be {near!r}, {text}?", stacklevel=2)
        for name in absent:
            if settings[name].default is dataclasses.MISSING:
                raise ValueError(f"{cls.__name__}: {name} is missing; found {', '.join(json_object) or 'nothing'}")
        return cls(**{name: json_object[name] for name in settings if name in json_object}, extra=extra)

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike) -> Self:
        """Reads a configuration file.

        Args:
            json_file: path of a ``bert_config.json``.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a JSON object, or `from_dict` refuses it; the message names the file.
        """
        with open_binary(json_file) as file:
            try:
                json_object = json.loads(file.read().decode("utf-8"))
                if not isinstance(json_object, dict):
                    raise ValueError(f"expected a JSON object, found {type(json_object).__name__}")
                return cls.from_dict(json_object)
            except ValueError as error:
                raise ValueError(f"{os.fspath(json_file)}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """All settings and extra keys as a new dict."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return copy.deepcopy({**settings.pop("extra"), **settings})

    def to_json_string(self) -> str:
        """The text of a configuration file, byte for byte what the original writes.

        Example:
            >>> BertConfig(30522).to_json_string().splitlines()[1]
            '  "attention_probs_dropout_prob": 0.1,'
        """
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    """Configuration of BERT (Devlin et al. 2018), with the names, order and defaults of the original.

    Args:
        vocab_size: number of lines of the vocabulary file.
        hidden_size: width of the encoder and the pooler; a multiple of ``num_attention_heads``.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of attention heads in each block.
        intermediate_size: width of the feed-forward layer inside a block.
        hidden_act: activation of the feed-forward layer: see `tf_bert.layers.feed_forward.get_activation`.
        hidden_dropout_prob: dropout of embeddings and of what each sublayer adds.
        attention_probs_dropout_prob: dropout of attention probabilities.
        max_position_embeddings: rows of the position table: the longest sequence.
        type_vocab_size: rows of the segment table. The default is the original's; published models say 2.
        initializer_range: standard deviation of the truncated normal that initialises kernels and tables.

    Raises:
        ValueError: a value is of the wrong type or out of range, or the heads do not divide the hidden size.

    Example:
        >>> config = BertConfig(vocab_size=30522, type_vocab_size=2)
        >>> config.hidden_size // config.num_attention_heads
        64
        >>> BertConfig.from_dict(config.to_dict()) == config
        True
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | Callable | None = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02

    def __post_init__(self):
        """Raises ValueError for a value that no BERT could be built from."""
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"BertConfig: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
