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
            least = 0 if field.name.endswith("_id") else 1
            if field.type is int and value < least:
                raise ValueError(f"{type(self).__name__}: {field.name} must be at least {least}, not {value}")
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


@dataclasses.dataclass(frozen=True)
class TranslationConfig(Config):
    """What the configurations of models that read a source and write a target share.

    Args:
        vocab_size: number of target words, and of source words where ``source_vocab_size`` is not given.
        source_vocab_size: number of source words of a vocabulary of their own; None where source and target share one.
        pad_id: the id that fills up sequences.
        unknown_id: the id of words outside the vocabulary.
        start_id: what the decoder is given before the first word.
        end_id: the id that ends a sequence.
        label_smoothing: share of the target probability that is spread over all words (Szegedy et al. 2016, section 7).
        scheduled_sampling: how often the decoder is given its own words in training: ``none``, or a schedule of
            `tf_bert.layers.scheduled_sampling.teacher_forcing_probability`.
        scheduled_sampling_k: the schedule's k.
        scheduled_sampling_slope: c of the linear schedule.
        scheduled_sampling_minimum: epsilon of the linear schedule.
    """

    vocab_size: int
    source_vocab_size: int | None = None
    pad_id: int = 0
    unknown_id: int = 1
    start_id: int = 2
    end_id: int = 3
    label_smoothing: float = 0.0
    scheduled_sampling: str = "none"
    scheduled_sampling_k: float = 1.0
    scheduled_sampling_slope: float = 0.0
    scheduled_sampling_minimum: float = 0.0

    def __post_init__(self):
        """Raises ValueError for a value that no model could be built from."""
        super().__post_init__()
        name = type(self).__name__
        for field in ("pad_id", "unknown_id", "start_id", "end_id"):
            if getattr(self, field) >= self.vocab_size:
                raise ValueError(f"{name}: {field} {getattr(self, field)} lies outside vocab_size {self.vocab_size}")
        if self.end_id == self.pad_id:
            raise ValueError(f"{name}: pad_id and end_id are both {self.end_id}; the end would be taken for padding")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"{name}: label_smoothing must lie in [0, 1), not {self.label_smoothing}")


@dataclasses.dataclass(frozen=True)
class TransformerConfig(TranslationConfig):
    """Configuration of the Transformer (Vaswani et al. 2017, table 3); the defaults are its base model.

    Args:
        hidden_size: width of the model; a multiple of ``num_attention_heads``.
        num_hidden_layers: number of encoder blocks, and of decoder blocks.
        num_attention_heads: heads of each attention.
        intermediate_size: width of the feed-forward layer inside a block.
        hidden_act: activation of the feed-forward layer.
        hidden_dropout_prob: dropout of embeddings and of what each sublayer adds.
        attention_probs_dropout_prob: dropout of attention probabilities.
        position_embedding: ``sinusoidal`` or ``learned``.
        max_position_embeddings: the longest sequence; rows of the table where positions are learned.
        pre_norm: whether to normalise what goes into a sublayer instead of the sum that comes out.
        tie_output: whether the output layer is the target embedding table.
        layer_norm_epsilon: added to the variance.

    Example:
        >>> TransformerConfig.big(37000).hidden_size
        1024
    """

    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.0
    position_embedding: str = "sinusoidal"
    max_position_embeddings: int = 1024
    pre_norm: bool = False
    tie_output: bool = True
    layer_norm_epsilon: float = 1e-6
    label_smoothing: float = 0.1

    def __post_init__(self):
        """Raises ValueError for a value that no Transformer could be built from."""
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"TransformerConfig: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.position_embedding not in ("sinusoidal", "learned"):
            raise ValueError(
                "TransformerConfig: position_embedding must be 'sinusoidal' or 'learned', "
                f"not {self.position_embedding!r}"
            )

    @classmethod
    def base(cls, vocab_size: int, **settings) -> Self:
        """The base model: 63,082,496 parameters with 37,000 words (the paper rounds to 65 million)."""
        return cls(vocab_size, **settings)

    @classmethod
    def big(cls, vocab_size: int, **settings) -> Self:
        """The big model: 214,245,376 parameters with 37,000 words (the paper rounds to 213 million)."""
        sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "hidden_dropout_prob": 0.3}
        return cls(vocab_size, **sizes | settings)


@dataclasses.dataclass(frozen=True)
class GPTConfig(Config):
    """Configuration of GPT; the defaults are the sizes of GPT-1, which the small GPT-2 and GPT-3 share.

    `gpt1`, `gpt2` and `gpt3` make the published ones.

    Args:
        vocab_size: number of tokens.
        hidden_size: width of the model; a multiple of ``num_attention_heads``.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of attention heads in each block.
        intermediate_size: width of the feed-forward layer inside a block, four times ``hidden_size`` in the papers.
        hidden_act: activation of the feed-forward layer.
        hidden_dropout_prob: dropout of what each sublayer adds.
        attention_probs_dropout_prob: dropout of attention probabilities.
        embedding_dropout_prob: dropout of the sum of embeddings.
        max_position_embeddings: the context: rows of the position table.
        pre_norm: whether to normalise what goes into a sublayer, and once more at the end (GPT-2), instead of the sum
            that comes out of each (GPT-1).
        attention_window: where given, every second block sees the last so many positions only, itself among them
            (GPT-3's alternating dense and locally banded attention).
        layer_norm_epsilon: added to the variance.
        initializer_range: standard deviation of the normal that initialises kernels and tables; with ``pre_norm`` that
            of the kernels which end a residual branch is divided by the root of the number of branches.
        end_id: the token that ends a text; None where there is none.

    Example:
        >>> GPTConfig.gpt2("xl").parameter_count()
        1557611200
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    embedding_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    pre_norm: bool = False
    attention_window: int | None = None
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    end_id: int | None = None

    def __post_init__(self):
        """Raises ValueError for a value that no GPT could be built from."""
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"GPTConfig: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.end_id is not None and not 0 <= self.end_id < self.vocab_size:
            raise ValueError(f"GPTConfig: end_id {self.end_id} lies outside vocab_size {self.vocab_size}")
        if self.attention_window is not None and self.attention_window < 1:
            raise ValueError(f"GPTConfig: attention_window must be at least 1, not {self.attention_window}")

    @classmethod
    def gpt1(cls, **settings) -> Self:
        """GPT-1 (Radford et al. 2018): 116,534,784 parameters."""
        return cls(**{"vocab_size": 40478} | settings)

    @classmethod
    def gpt2(cls, size: str = "small", **settings) -> Self:
        """GPT-2 (Radford et al. 2019).

        Args:
            size: ``small`` (124,439,808 parameters), ``medium`` (354,823,168), ``large`` (774,030,080) or ``xl``
                (1,557,611,200).
            **settings: other values.
        """
        sizes = {"small": (768, 12, 12), "medium": (1024, 24, 16), "large": (1280, 36, 20), "xl": (1600, 48, 25)}
        common = {"vocab_size": 50257, "max_position_embeddings": 1024, "pre_norm": True, "end_id": 50256}
        return cls(**_sized("GPT-2", sizes, size) | common | settings)

    @classmethod
    def gpt3(cls, size: str = "175b", **settings) -> Self:
        """GPT-3 (Brown et al. 2020, table 2.1).

        The table gives its XL 24 heads of 128, which are not the 2,048 of its width, and its 13B a width of 5,140,
        which 40 heads do not divide: here these are 16 heads and 5,120. The width of the band is not published; 256 is
        GPT-Neo's.

        Args:
            size: ``small``, ``medium``, ``large``, ``xl``, ``2.7b``, ``6.7b``, ``13b`` or ``175b``.
            **settings: other values.
        """
        sizes = {
            "small": (768, 12, 12),
            "medium": (1024, 24, 16),
            "large": (1536, 24, 16),
            "xl": (2048, 24, 16),
            "2.7b": (2560, 32, 32),
            "6.7b": (4096, 32, 32),
            "13b": (5120, 40, 40),
            "175b": (12288, 96, 96),
        }
        common = {"vocab_size": 50257, "max_position_embeddings": 2048, "pre_norm": True, "end_id": 50256}
        return cls(**_sized("GPT-3", sizes, size) | common | {"attention_window": 256} | settings)

    def parameter_count(self) -> int:
        """Number of weights of `tf_bert.models.gpt.GPT`; the output layer is the table of words and counts once."""
        width, inner = self.hidden_size, self.intermediate_size
        attention, feed_forward = 4 * width * (width + 1), 2 * width * inner + inner + width
        tables = (self.vocab_size + self.max_position_embeddings) * width
        norms = 2 * width * (2 * self.num_hidden_layers + self.pre_norm)
        return tables + self.num_hidden_layers * (attention + feed_forward) + norms


def _sized(model: str, sizes: Mapping[str, tuple[int, int, int]], size: str) -> dict[str, int]:
    """The settings of a published size."""
    if size not in sizes:
        raise ValueError(f"there is no {model} of size {size!r}; known are {', '.join(sizes)}")
    width, layers, heads = sizes[size]
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


@dataclasses.dataclass(frozen=True)
class ElmoConfig(Config):
    """Configuration of ELMo (Peters et al. 2018, section 3.4, had 2 layers of 4,096 cells projected to 512).

    Args:
        vocab_size: number of tokens.
        hidden_size: width of the token vectors and of each direction of each layer.
        num_hidden_layers: number of layers.
        hidden_dropout_prob: dropout of what each layer reads, and of what the scores are made from.
        initializer_range: standard deviation of the normal that initialises the two tables.

    Example:
        >>> ElmoConfig(vocab_size=100, hidden_size=32).num_hidden_layers
        2
    """

    vocab_size: int
    hidden_size: int = 512
    num_hidden_layers: int = 2
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.02


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig(TranslationConfig):
    """Configuration of the recurrent encoder-decoder.

    Args:
        embedding_size: width of word embeddings.
        hidden_size: width of the states, of each direction of the encoder and of the decoder.
        num_hidden_layers: number of recurrent layers of encoder and decoder.
        cell: see `tf_bert.layers.cells.make_cell`.
        bidirectional: whether the encoder reads the source from both ends.
        residual: whether each layer but the first adds its input to its output.
        decoder: ``plain`` (Sutskever), ``context`` (Cho), ``bahdanau`` or ``luong``; see
            `tf_bert.layers.recurrent_decoder.RecurrentDecoder`.
        attention: options of the attention layer; by default the additive score, which is Bahdanau's.
        input_feeding: whether the ``luong`` decoder feeds its output back.
        maxout: whether the output is Bahdanau's maxout layer.
        hidden_dropout_prob: dropout of embeddings, between layers and of outputs.
        tie_output: whether the output layer is the target embedding table; needs ``embedding_size == hidden_size``.
        reverse_source: whether the source is read from its end (Sutskever et al. 2014, section 3.3).

    Example:
        >>> Seq2SeqConfig(8000, decoder="luong", attention={"score": "general"}).hidden_size
        512
    """

    embedding_size: int = 256
    hidden_size: int = 512
    num_hidden_layers: int = 1
    cell: str = "lstm"
    bidirectional: bool = True
    residual: bool = False
    decoder: str = "bahdanau"
    attention: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)
    input_feeding: bool = True
    maxout: bool = False
    hidden_dropout_prob: float = 0.2
    tie_output: bool = False
    reverse_source: bool = False

    def __post_init__(self):
        """Raises ValueError for a value that no model could be built from."""
        super().__post_init__()
        if self.tie_output and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"Seq2SeqConfig: tie_output needs embedding_size {self.embedding_size} to equal hidden_size "
                f"{self.hidden_size}"
            )


@dataclasses.dataclass(frozen=True)
class AttentionClassifierConfig(Config):
    """Configuration of the attention-pooled and of the hierarchical text classifier (Yang et al. 2016).

    Args:
        vocab_size: number of words.
        num_labels: number of labels C.
        embedding_size: width of word embeddings.
        hidden_size: width of each direction of the recurrent encoders.
        cell: see `tf_bert.layers.cells.make_cell`.
        hierarchical: whether a text is a list of sentences.
        hidden_dropout_prob: dropout of embeddings and of the text's vector.
        pad_id: the id that fills up sentences.
    """

    vocab_size: int
    num_labels: int
    embedding_size: int = 200
    hidden_size: int = 50
    cell: str = "gru"
    hierarchical: bool = False
    hidden_dropout_prob: float = 0.1
    pad_id: int = 0
