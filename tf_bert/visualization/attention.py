"""Attention weights of a model as arrays with their tokens: BERT, GPT, translation models, classifiers."""

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from tf_bert.files import atomic_writer


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """One kind of attention of a model for one input.

    Args:
        name: ``encoder``, ``decoder``, ``cross`` (from target to source) or ``words``.
        layers: for each layer the weights [1, N, T, S], float32: for each head how much each of T tokens looks at each
            of S. This is the list of tensors that bertviz takes as ``attention``, or as ``encoder_attention`` and so
            on, once each is made a tensor of PyTorch.
        rows: the T tokens that look.
        columns: the S tokens that are looked at.
    """

    name: str
    layers: list[np.ndarray]
    rows: list[str]
    columns: list[str]

    def __post_init__(self):
        for layer in self.layers:
            if layer.ndim != 4 or layer.shape[::2] != (1, len(self.rows)) or layer.shape[3] != len(self.columns):
                raise ValueError(
                    f"{self.name}: weights have shape {layer.shape}, for {len(self.rows)} tokens that look and "
                    f"{len(self.columns)} that are looked at; expected [1, N, T, S]"
                )

    def matrix(self, layer: int | None = None, head: int | None = None) -> np.ndarray:
        """Weights [T, S] of a head, or the mean of all heads; of the last layer where none is named.

        Args:
            layer: from 0; negative ones count from the last.
            head: from 0.

        Raises:
            ValueError: there is no such layer or head.
        """
        layer = len(self.layers) - 1 if layer is None else layer
        if not -len(self.layers) <= layer < len(self.layers):
            raise ValueError(f"{self.name} attention has {len(self.layers)} layers, from 0; there is no layer {layer}")
        weights = self.layers[layer][0]
        if head is None:
            return weights.mean(axis=0)
        if not 0 <= head < len(weights):
            raise ValueError(f"{self.name} attention has {len(weights)} heads, from 0; there is no head {head}")
        return weights[head]


def bert_attention(model, tokenizer, text: str, text_pair: str | None = None) -> list[AttentionMap]:
    """The self-attention of BERT.

    Args:
        model: a `Bert` or a model with one as ``bert``.
        tokenizer: its `FullTokenizer`.
        text: the first text.
        text_pair: the second text, if any.

    Raises:
        ValueError: the text is longer than the position table.
    """
    encoder = getattr(model, "bert", model)
    inputs = tokenizer.encode(text, text_pair)
    longest = encoder.config.max_position_embeddings
    if len(inputs["input_ids"]) > longest:
        raise ValueError(f"the text has {len(inputs['input_ids'])} pieces, max_position_embeddings is {longest}")
    outputs = encoder(
        {name: ops.convert_to_tensor(value[None]) for name, value in inputs.items()},
        return_attention_probs=True,
        training=False,
    )
    tokens = tokenizer.convert_ids_to_tokens([int(number) for number in inputs["input_ids"]])
    return [AttentionMap("encoder", _arrays(outputs["attention_probs"]), tokens, tokens)]


def gpt_attention(model, tokenizer, text: str) -> list[AttentionMap]:
    """The self-attention of a GPT, each token's to itself and those before it.

    Args:
        model: a `GPT`.
        tokenizer: its `BytePairTokenizer`; a token that is a part of a character is shown as the sign for what is none.
        text: what is read.

    Raises:
        ValueError: the text is empty or longer than the context.
    """
    ids, longest = tokenizer.tokenize_to_ids(text), model.config.max_position_embeddings
    if not 0 < len(ids) <= longest:
        raise ValueError(f"the text has {len(ids)} tokens; expected 1 to {longest} (max_position_embeddings)")
    outputs = model({"input_ids": np.array([ids], "int32")}, return_attention_probs=True, training=False)
    tokens = [tokenizer.decode([number]) for number in ids]
    return [AttentionMap("decoder", _arrays(outputs["attention_probs"]), tokens, tokens)]


def translation_attention(translator, text: str, target: str | None = None) -> list[AttentionMap]:
    """The attention of a translation model: of source and target to themselves (Transformer), and of target to source.

    Args:
        translator: a `tf_bert.models.translator.Translator`.
        text: the source.
        target: what was written; by default what the model writes itself (beam search).

    Raises:
        ValueError: the source or the target is empty, or the model has no attention.
    """
    model, source, writer = translator.model, translator.source_tokenizer, translator.target_tokenizer
    end = model.config.end_id
    source_ids = [*source.tokenize_to_ids(text), end]
    if len(source_ids) == 1:
        raise ValueError("the text is empty: there is nothing to look at")
    model.check_source(len(source_ids))
    if target is None:
        from tf_bert.decoding.beam import BeamSearch

        output = model.generate([source_ids], search=BeamSearch(4, length_penalty=0.6))
        target_ids = [int(number) for number in output["tokens"][0, 0, : output["lengths"][0, 0]]]
    else:
        target_ids = [*writer.tokenize_to_ids(target), end]
    inputs = {"source_ids": np.array([source_ids], "int32"), "target_ids": np.array([target_ids], "int32")}
    columns, rows = source.convert_ids_to_tokens(source_ids), writer.convert_ids_to_tokens(target_ids)
    if hasattr(model, "decode_own_words"):  # recurrent
        if model.decoder.attention is None:
            raise ValueError(f"this Seq2Seq has the decoder {model.config.decoder!r}, which has no attention")
        weights = model(inputs, training=False)["attention_weights"]
        return [AttentionMap("cross", _arrays([weights[:, None]]), rows, columns)]
    outputs = model(inputs, return_attention_probs=True, training=False)
    # At each step the decoder has read the word before the one that it writes.
    before = [writer.convert_ids_to_tokens([model.config.start_id])[0], *rows[:-1]]
    return [
        AttentionMap("cross", _arrays(outputs["cross_attention_probs"]), rows, columns),
        AttentionMap("encoder", _arrays(outputs["encoder_attention_probs"]), columns, columns),
        AttentionMap("decoder", _arrays(outputs["decoder_attention_probs"]), before, before),
    ]


def classifier_attention(model, ids: Sequence[Any], tokens: Sequence[Any]) -> list[AttentionMap]:
    """The pooling weights of an `AttentionClassifier`.

    Args:
        model: the classifier.
        ids: of one text; for a hierarchical one a list of sentences of ids.
        tokens: the words, arranged as ``ids``.
    """
    if not model.config.hierarchical:
        weights = model({"input_ids": np.array([ids], "int32")}, training=False)["word_weights"]
        return [AttentionMap("words", _arrays([weights[:, None, None]]), ["text"], list(tokens))]
    width = max(map(len, ids))
    rows = [[*row, *[model.config.pad_id] * (width - len(row))] for row in ids]
    outputs = model({"input_ids": np.array([rows], "int32")}, training=False)
    sentences = [f"sentence {i + 1}" for i in range(len(ids))]
    maps = [AttentionMap("sentences", _arrays([outputs["sentence_weights"][:, None, None]]), ["text"], sentences)]
    for i, words in enumerate(tokens):
        weights = outputs["word_weights"][:, i : i + 1, : len(words)]
        maps.append(AttentionMap(f"words {i + 1}", _arrays([weights[:, None]]), [sentences[i]], list(words)))
    return maps


def position_table(model) -> np.ndarray:
    """The positional encodings [positions, H] of BERT, a GPT or a Transformer, at most 512 of them.

    Raises:
        ValueError: a recurrent model has none.
    """
    encoder = getattr(model, "bert", model)
    if hasattr(encoder, "embeddings"):
        names = [v for v in encoder.embeddings.weights if v.name == "position_embeddings"]
        return np.asarray(ops.convert_to_numpy(names[0]))[:512]
    embedding = getattr(model, "target_embedding", getattr(model, "embedding", None))
    if getattr(embedding, "position_embedding", None) is None:
        raise ValueError(f"{type(model).__name__} reads words in their order and has no positional encodings")
    if embedding.position_embedding == "learned":
        return ops.convert_to_numpy(embedding.position_table)[:512]
    from tf_bert.layers.positions import sinusoidal_positions

    positions = np.arange(min(embedding.max_position_embeddings, 512))
    return ops.convert_to_numpy(sinusoidal_positions(positions, embedding.hidden_size))


def save_arrays(path: str | os.PathLike, maps: Sequence[AttentionMap]) -> None:
    """Writes weights and tokens as ``.npz``: ``NAME/layer_0`` ..., ``NAME/rows``, ``NAME/columns``.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> save_arrays(path, [AttentionMap("cross", [np.ones((1, 1, 1, 2), "float32") / 2], ["a"], ["b", "c"])])
        >>> with np.load(path) as arrays:
        ...     print(sorted(arrays), arrays["cross/layer_0"])
        ['cross/columns', 'cross/layer_0', 'cross/rows'] [[[[0.5 0.5]]]]
    """
    arrays: Mapping[str, np.ndarray] = {
        f"{some.name}/{key}": np.asarray(value)
        for some in maps
        for key, value in {
            **{f"layer_{i}": layer for i, layer in enumerate(some.layers)},
            "rows": some.rows,
            "columns": some.columns,
        }.items()
    }
    written = io.BytesIO()
    np.savez(written, **arrays)
    with atomic_writer(path) as file:
        file.write(written.getvalue())


def _arrays(layers) -> list[np.ndarray]:
    return [np.asarray(ops.convert_to_numpy(ops.cast(layer, "float32"))) for layer in layers]
