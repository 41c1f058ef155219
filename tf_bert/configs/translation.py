"""Configurations of the translation models: Seq2Seq and the Transformer."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from tf_bert.configs.base import Config

SCHEDULES = ("none", "constant", "linear", "exponential", "inverse_sigmoid")


def check_sampling_schedule(schedule: str, k: float, slope: float) -> None:
    """Raises ValueError for a schedule of `tf_bert.layers.scheduled_sampling` that is unknown or would never fall."""
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown scheduled_sampling {schedule!r}; known are {', '.join(SCHEDULES)}")
    if schedule == "linear" and slope <= 0:
        raise ValueError(f"the linear schedule k - slope i needs a scheduled_sampling_slope above 0, got {slope}")
    if schedule == "exponential" and not 0 < k < 1:
        raise ValueError(f"the exponential schedule k^i needs a scheduled_sampling_k between 0 and 1, got {k}")
    if schedule == "inverse_sigmoid" and k < 1:
        raise ValueError(f"the inverse sigmoid schedule needs a scheduled_sampling_k of at least 1, got {k}")


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
        check_sampling_schedule(self.scheduled_sampling, self.scheduled_sampling_k, self.scheduled_sampling_slope)


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
        self.check_heads()
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
