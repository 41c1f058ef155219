"""Sequence to sequence with recurrent networks, without and with attention."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32, scan
from tf_bert.configs import Seq2SeqConfig
from tf_bert.layers.positions import WordEmbedding
from tf_bert.layers.recurrent import RecurrentEncoder, StateBridge
from tf_bert.layers.recurrent_decoder import RecurrentDecoder, repeat_rows, time_first
from tf_bert.layers.scheduled_sampling import choose_words, draw
from tf_bert.models.saving import Configured
from tf_bert.models.translation import TranslationModel
from tf_bert.trainer.trainer import Trainer


@keras.saving.register_keras_serializable("tf_bert")
class Seq2Seq(TranslationModel, Configured, Trainer):
    """Recurrent encoder and decoder (Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015; Luong et al. 2015).

    Args:
        config: sizes, and which of the papers' decoders.

    Call arguments:
        inputs: see `TranslationModel`. Real positions come first, padding behind them.

    Returns:
        A dict: ``logits`` [B, T, V], float32 or wider, and ``attention_weights`` [B, T, S] (zeros without attention).

    Raises:
        ValueError: an id lies outside its table (in eager calls).

    Example:
        >>> config = Seq2SeqConfig(30, embedding_size=4, hidden_size=8, decoder="luong", attention={"score": "dot"},
        ...                        bidirectional=False)
        >>> model = Seq2Seq(config)
        >>> inputs = {"source_ids": ops.array([[5, 6, 7, 3]]), "target_ids": ops.array([[8, 9, 3]])}
        >>> outputs = model(inputs)
        >>> outputs["logits"].shape, outputs["attention_weights"].shape
        (TensorShape([1, 3, 30]), TensorShape([1, 3, 4]))
    """

    config_class = Seq2SeqConfig
    max_target_length = None

    def __init__(self, config: Seq2SeqConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        options = {
            "num_layers": config.num_hidden_layers,
            "cell": config.cell,
            "residual": config.residual,
            "dropout": config.hidden_dropout_prob,
            "dtype": self.dtype_policy,
        }
        self.target_embedding = self.make_embedding("target_ids", config.vocab_size)
        self.source_embedding = self.target_embedding
        if config.source_vocab_size is not None:
            self.source_embedding = self.make_embedding("source_ids", config.source_vocab_size)
        self.encoder = RecurrentEncoder(
            config.hidden_size, bidirectional=config.bidirectional, name="encoder", **options
        )
        self.bridge = StateBridge(config.hidden_size, dtype=self.dtype_policy, name="bridge")
        self.decoder = RecurrentDecoder(
            config.hidden_size,
            config.decoder,
            attention=None if config.attention is None else dict(config.attention),
            input_feeding=config.input_feeding,
            maxout=config.maxout,
            name="decoder",
            **options,
        )
        self.dropout = keras.layers.Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)
        self.output_layer = None
        if not config.tie_output:
            self.output_layer = keras.layers.Dense(config.vocab_size, dtype=self.dtype_policy, name="output")
        self.sampling_seed = keras.random.SeedGenerator()
        self.build()

    def make_embedding(self, name, vocab_size):
        """Embeddings of source or target; the ids of a shared table go by the target's name."""
        rate, width = self.config.hidden_dropout_prob, self.config.embedding_size
        return WordEmbedding(vocab_size, width, dropout=rate, initializer_range=0.1, dtype=self.dtype_policy, name=name)

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        config = self.config
        self.target_embedding.build()
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build()
        words = (None, None, config.embedding_size)
        self.encoder.build(words)
        self.bridge.build_for(self.encoder)
        self.decoder.build(words, (None, None, config.hidden_size * self.encoder.directions))
        if self.output_layer is not None:
            self.output_layer.build((None, None, config.hidden_size))
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Scores each word of the target, given the source and the words before."""
        source_mask = self.masks(inputs, "source")
        state, memory = self.encode(inputs["source_ids"], source_mask, training)
        words = self.words_before(inputs["target_ids"])  # [B, T]
        if training and self.config.scheduled_sampling != "none":
            x, weights = self.decode_own_words(words, state, memory)
        else:
            x = self.target_embedding(words, training=training)  # [B, T, E]
            x, weights, _ = self.decoder(x, state, memory, training=training)  # [B, T, H], [B, T, S]
        weights = self.in_order_of_source(weights, source_mask)
        return {"logits": self.logits(self.dropout(x, training=training)), "attention_weights": weights}

    def encode(self, source_ids, source_mask, training=None):
        """The decoder's first state, and what stays the same at each of its steps."""
        source_ids = self.in_order_of_source(source_ids, source_mask)
        x = self.source_embedding(source_ids, training=training)  # [B, S, E]
        outputs, states = self.encoder(x, source_mask, training=training)
        return self.decoder.start(self.bridge(states), outputs, source_mask)

    def in_order_of_source(self, x, source_mask):
        """With ``reverse_source``, x [B, S] or [B, T, S] with the real positions in reverse; else x."""
        if not self.config.reverse_source:
            return x
        positions = ops.arange(ops.shape(source_mask)[1], dtype="int32")
        lengths = ops.sum(ops.cast(source_mask, "int32"), axis=-1, keepdims=True)
        order = ops.where(positions < lengths, lengths - 1 - positions, positions)  # [B, S]
        if len(x.shape) == 3:
            order = ops.broadcast_to(order[:, None], ops.shape(x))
        return ops.take_along_axis(x, order, axis=-1)

    def logits(self, x):
        """Scores of all words [..., V]."""
        return at_least_float32(self.target_embedding.logits(x) if self.output_layer is None else self.output_layer(x))

    def decode_own_words(self, words, state, memory):
        """Scheduled sampling (Bengio et al. 2015): each word before is the right one, or one that the model draws.

        Args:
            words: [B, T], the right ones.
            state, memory: of the decoder.

        Returns:
            Outputs [B, T, H] and weights [B, T, S].
        """
        batch, length = ops.shape(words)
        right, uniform = choose_words((batch, length), self.right_word_probability(), self.sampling_seed)
        ones = ops.ones((batch, length, self.config.embedding_size), self.compute_dtype)
        masks = self.target_embedding.dropout(ones, training=True)

        def step(carry, inputs):
            state, drawn = carry
            word = ops.where(inputs["right"], inputs["words"], drawn)
            x = ops.cast(self.target_embedding.look_up(word), self.compute_dtype) * inputs["masks"]
            output, state, weights = self.decoder.step(x, state, memory, **inputs["decoder"])
            drawn = draw(ops.log_softmax(self.logits(output)), inputs["uniform"])
            return (state, ops.cast(drawn, words.dtype)), (output, weights)

        inputs = {"words": words, "right": right, "uniform": uniform, "masks": masks}
        inputs = {name: time_first(values) for name, values in inputs.items()}
        inputs["decoder"] = self.decoder.step_inputs(masks, memory, training=True)
        _, (outputs, weights) = scan(step, (state, words[:, 0]), inputs)
        return time_first(outputs), time_first(weights)

    @property
    def max_source_length(self) -> int | None:
        """The most words that can be read; None for any number."""
        return (self.config.attention or {}).get("max_source_length")

    @property
    def has_attention(self) -> bool:
        """Whether the decoder looks at the source."""
        return self.decoder.attention is not None

    def check_source(self, length: int) -> None:
        """Raises ValueError for a source that is longer than the model knows positions."""
        limit = self.max_source_length
        if limit is not None and length > limit:
            raise ValueError(f"a source has {length} words, but max_source_length of the attention is {limit}")

    def start_decoding(self, source_ids, source_mask, width: int, length: int) -> tuple[Callable, Any]:
        """What the decoding loop needs: a step function, and its first state.

        Args:
            source_ids: [B, S].
            source_mask: [B, S] booleans.
            width: hypotheses W for each source.
            length: most words T.
        """
        state, memory = self.encode(source_ids, source_mask, training=False)
        state, memory, mask = repeat_rows((state, memory, source_mask), width)

        def step(tokens, index, state):
            x = self.target_embedding(tokens[:, None], training=False)[:, 0]  # [R, E]
            output, state, weights = self.decoder.step(x, state, memory, index)
            return self.logits(output), state, self.in_order_of_source(weights, mask)

        return step, state
