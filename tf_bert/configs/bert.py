"""The configuration of BERT: the original's ``bert_config.json``."""

import dataclasses
from collections.abc import Callable

from tf_bert.configs.base import Config


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
        ValueError: a value is of the wrong type or out of range. Whether the heads divide the hidden size is looked at
            where a model is made of the configuration, as in the original, and where a file is read.

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
