"""Tokenizer settings of a checkpoint, such as casing: read, written and carried along with every format."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Self

from tf_bert.files import atomic_writer
from tf_bert.json_files import read_json_object
from tf_bert.tokenization.full import FullTokenizer

FILE = "tokenizer_config.json"


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """The arguments of `tf_bert.tokenization.full.FullTokenizer` that belong to a checkpoint.

    They are written as Hugging Face's ``tokenizer_config.json`` beside the vocabulary, whatever the format of the
    weights, and as three keys of the configuration where a model is one file.

    Args:
        do_lower_case: whether text is lower-cased.
        strip_accents: whether accents are dropped; None: when lower-casing.
        tokenize_chinese_chars: whether each Chinese character is a word.

    Example:
        >>> TokenizerSettings(do_lower_case=False).to_dict()
        {'do_lower_case': False, 'strip_accents': None, 'tokenize_chinese_chars': True}
    """

    do_lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The three switches by name."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, tokenizer: FullTokenizer) -> Self:
        """The switches of a tokenizer."""
        basic = tokenizer.basic_tokenizer
        strip_accents = None if basic.strip_accents == basic.do_lower_case else basic.strip_accents
        return cls(basic.do_lower_case, strip_accents, basic.tokenize_chinese_chars)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self | None:
        """Takes the switches out of a mapping with other keys; None where it does not say the casing.

        Raises:
            ValueError: a switch is neither true nor false (nor, for accents, null).
        """
        if values.get("do_lower_case") is None:
            return None
        found = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
        for name, value in found.items():
            if not isinstance(value, bool) and not (name == "strip_accents" and value is None):
                raise ValueError(f"{name} must be true or false, not {value!r}")
        return cls(**found)

    @classmethod
    def read(cls, directory: str | os.PathLike) -> Self | None:
        """Reads ``tokenizer_config.json`` of a directory; None where there is none, or it does not say the casing.

        Raises:
            ValueError: the file is not a JSON object, or holds a switch of another type.
        """
        path = os.path.join(directory, FILE)
        if not os.path.exists(path):
            return None
        values = read_json_object(path)
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def write(self, directory: str | os.PathLike, goes_to: str | os.PathLike | None = None) -> None:
        """Writes ``tokenizer_config.json``; other keys of one that is there are kept.

        Args:
            directory: where it is written.
            goes_to: the folder that it is moved to afterwards, if it is not ``directory``.

        Raises:
            ValueError: the one that is there is not a JSON object.
        """
        existing = os.path.join(goes_to or directory, FILE)
        others = read_json_object(existing) if os.path.exists(existing) else {"tokenizer_class": "BertTokenizer"}
        with atomic_writer(os.path.join(directory, FILE), "w") as file:
            json.dump({**others, **self.to_dict()}, file, indent=2, sort_keys=True, ensure_ascii=False)
            file.write("\n")
