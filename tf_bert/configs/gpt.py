"""The configuration of GPT and its published sizes."""

import dataclasses
from collections.abc import Mapping
from typing import Self

from tf_bert.configs.base import Config


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
        self.check_heads()
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
