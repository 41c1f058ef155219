"""The Transformer (Vaswani et al. 2017)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32
from tf_bert.configs import TransformerConfig
from tf_bert.layers.attention import get_implementation, serialize_implementation
from tf_bert.layers.layer_norm import LayerNorm
from tf_bert.layers.positions import WordAndPositionEmbedding
from tf_bert.layers.scheduled_sampling import choose_words, draw
from tf_bert.layers.transformer import TransformerEncoderBlock
from tf_bert.layers.transformer_decoder import TransformerDecoderBlock
from tf_bert.models.saving import Configured
from tf_bert.models.translation import TranslationModel
from tf_bert.trainer.execution import recompute
from tf_bert.trainer.trainer import Trainer


@keras.saving.register_keras_serializable("tf_bert")
class Transformer(TranslationModel, Configured, Trainer):
    """Encoder and decoder of attention alone.

    Source and target share one embedding table where they share a vocabulary, and the table is the output layer too
    (section 3.4).

    Args:
        config: sizes and rates.
        attention: how it is computed, ``"plain"``, ``"chunked"`` or a function of your own, see
            `tf_bert.layers.attention.MultiHeadAttention`. With a function, `generate` gives no alignments.

    Call arguments:
        inputs: see `TranslationModel`.
        return_attention_probs: whether to return what each attention looked at.

    Returns:
        A dict: ``logits`` [B, T, V], float32 or wider; on request ``encoder_attention_probs`` (a list over blocks of
        [B, N, S, S]), ``decoder_attention_probs`` [B, N, T, T] and ``cross_attention_probs`` [B, N, T, S].

    Raises:
        ValueError: an id lies outside its table (in eager calls), or a sequence is longer than
            ``max_position_embeddings``.

    Example:
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> model = Transformer(TransformerConfig(30, **sizes))
        >>> inputs = {"source_ids": ops.array([[5, 6, 7, 3]]), "target_ids": ops.array([[8, 9, 3]])}
        >>> model(inputs)["logits"].shape
        TensorShape([1, 3, 30])
        >>> model.generate([[5, 6, 7, 3], [5, 3]], max_length=4)["tokens"].shape[:2]
        (2, 1)
    """

    config_class = TransformerConfig
    recompute = False  # unless `compile` says so

    def __init__(self, config: TransformerConfig, attention: str | Callable = "plain", **kwargs):
        super().__init__(**kwargs)
        self.config, self.attention = config, get_implementation(attention)
        self.target_embedding = self.make_embedding("target_ids", config.vocab_size)
        self.source_embedding = self.target_embedding
        if config.source_vocab_size is not None:
            self.source_embedding = self.make_embedding("source_ids", config.source_vocab_size)
        options = {
            "num_heads": config.num_attention_heads,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "activation": config.hidden_act,
            "dropout": config.hidden_dropout_prob,
            "attention_dropout": config.attention_probs_dropout_prob,
            "pre_norm": config.pre_norm,
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "kernel_initializer": "glorot_uniform",
            "attention": self.attention,
            "dtype": self.dtype_policy,
        }
        layers = range(config.num_hidden_layers)
        self.encoder = [TransformerEncoderBlock(mask="exclude", name=f"layer_{i}", **options) for i in layers]
        self.decoder = [TransformerDecoderBlock(name=f"layer_{i}", **options) for i in layers]
        # The residual stream of pre-norm blocks is not normalised until the end (Xiong et al. 2020).
        self.final_norms = [
            LayerNorm(epsilon=config.layer_norm_epsilon, dtype=self.dtype_policy, name=f"{side}_norm")
            for side in ("encoder", "decoder") * config.pre_norm
        ]
        self.output_layer = None
        if not config.tie_output:
            self.output_layer = keras.layers.Dense(config.vocab_size, dtype=self.dtype_policy, name="output")
        self.sampling_seed = keras.random.SeedGenerator()
        self.build()

    def make_embedding(self, name, vocab_size):
        """Embeddings of source or target; the ids of a shared table go by the target's name."""
        config = self.config
        return WordAndPositionEmbedding(
            config.max_position_embeddings,
            config.position_embedding,
            vocab_size=vocab_size,
            hidden_size=config.hidden_size,
            scale=True,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.hidden_size**-0.5,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        shape = (None, None, self.config.hidden_size)
        self.target_embedding.build()
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build()
        for side, blocks in (("encoder", self.encoder), ("decoder", self.decoder)):
            with keras.name_scope(side):
                for block in blocks:
                    block.build(shape)
        for layer in [*self.final_norms, *([self.output_layer] if self.output_layer else [])]:
            layer.build(shape)
        self.built = True

    def call(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """Scores each word of the target, given the source and the words before."""
        source_mask = self.masks(inputs, "source")
        memory, encoder_probs = self.encode(inputs["source_ids"], source_mask, training, return_attention_probs)
        memory = [block.cross_attention.keys_and_values(memory) for block in self.decoder]
        words = self.words_before(inputs["target_ids"])  # [B, T]
        if training and self.config.scheduled_sampling != "none":
            words = self.own_words(words, memory, source_mask)
        x = self.target_embedding(words, training=training)  # [B, T, H]
        x, _, probs = self.decode(x, memory, source_mask, None, 0, training, return_attention_probs)
        outputs = {"logits": self.logits(x)}
        if return_attention_probs:
            outputs["encoder_attention_probs"] = encoder_probs
            outputs["decoder_attention_probs"] = [own for own, _ in probs]
            outputs["cross_attention_probs"] = [cross for _, cross in probs]
        return outputs

    def encode(self, source_ids, source_mask, training=None, return_attention_probs=False):
        """The encoder's output [B, S, H], and the attention probabilities of each block on request."""
        x, all_probs = self.source_embedding(source_ids, training=training), []
        options = {"return_attention_probs": return_attention_probs, "training": training}
        for block in self.encoder:
            block = recompute(block) if self.recompute and training else block
            x, _, probs = block(x, attention_mask=source_mask, **options)
            all_probs.append(probs)
        return (self.final_norms[0](x) if self.final_norms else x), all_probs

    def decode(self, x, memory, source_mask, caches=None, index=0, training=None, return_attention_probs=False):
        """The decoder's output [B, T, H], the new caches, and the attention probabilities of each block on request."""
        caches, all_probs = list(caches or [None] * len(self.decoder)), []
        options = {"return_attention_probs": return_attention_probs, "training": training}
        for i, block in enumerate(self.decoder):
            block = recompute(block) if self.recompute and training else block
            cache = {"cache": caches[i], "cache_index": index}
            x, caches[i], probs = block(x, memory[i], attention_mask=source_mask, **cache, **options)
            all_probs.append(probs)
        return (self.final_norms[1](x) if self.final_norms else x), caches, all_probs

    def logits(self, x):
        """Scores of all words [..., V]."""
        return at_least_float32(self.target_embedding.logits(x) if self.output_layer is None else self.output_layer(x))

    def own_words(self, words, memory, source_mask):
        """Scheduled sampling in two passes (Mihaylova & Martins 2019): words [B, T], some of them the model's own."""
        x, _, _ = self.decode(self.target_embedding(words, training=False), memory, source_mask, training=False)
        right, uniform = choose_words(ops.shape(words), self.right_word_probability(), self.sampling_seed)
        drawn = draw(ops.log_softmax(ops.stop_gradient(self.logits(x))), uniform)  # of the words to write
        drawn = ops.concatenate([words[:, :1], ops.cast(drawn[:, :-1], words.dtype)], axis=1)
        return ops.where(right, words, drawn)

    def check_source(self, length: int) -> None:
        """Raises ValueError for a source that is longer than the model knows positions."""
        if length > self.max_source_length:
            raise ValueError(f"a source has {length} words, but max_position_embeddings is {self.max_source_length}")

    @property
    def has_attention(self) -> bool:
        """Whether decoding says where the decoder looks; a function of the user's may not tell."""
        return not callable(self.attention)

    @property
    def max_source_length(self) -> int:
        """The most words that can be read."""
        return self.config.max_position_embeddings

    @property
    def max_target_length(self) -> int:
        """The most words that can be written."""
        return self.config.max_position_embeddings

    def start_decoding(self, source_ids, source_mask, width: int, length: int) -> tuple[Callable, Any]:
        """What the decoding loop needs: a step function, and its first state.

        Args:
            source_ids: [B, S].
            source_mask: [B, S] booleans.
            width: hypotheses W for each source.
            length: most words T.
        """
        memory, _ = self.encode(source_ids, source_mask, training=False)
        memory = [block.cross_attention.keys_and_values(memory) for block in self.decoder]

        def step(tokens, index, caches):
            x = self.target_embedding(tokens[:, None], first=index, training=False)  # [R, 1, H]
            x, caches, probs = self.decode(x, memory, source_mask, caches, index, False, self.has_attention)
            looked_at = ops.zeros((ops.shape(tokens)[0], ops.shape(source_mask)[1]), x.dtype)  # [R, S]
            if self.has_attention:
                # Of all layers the last but one aligns words best (Garg et al. 2019, section 4.2).
                _, cross = probs[max(len(probs) - 2, 0)]  # [B, N, W, S]
                looked_at = ops.reshape(ops.mean(cross, axis=1), ops.shape(looked_at))
            return self.logits(x[:, 0]), caches, looked_at

        rows = ops.shape(source_ids)[0] * width
        return step, [block.attention.create_cache(rows, length) for block in self.decoder]

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"attention": serialize_implementation(self.attention)}
