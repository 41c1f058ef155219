"""Configurations of ELMo and of the recurrent classifiers with attention."""

import dataclasses

from tf_bert.configs.base import Config


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
