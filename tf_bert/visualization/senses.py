"""Vectors of a word in its contexts, and how well the layers of a model tell the word's senses apart."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_bert.checkpoints import keras_files, openai
from tf_bert.configs import BertConfig, ElmoConfig
from tf_bert.data.text.tables import read_tsv
from tf_bert.models.pretrained import load_encoder

ELMO_FILE = "elmo.keras"


def read_senses(path: str) -> dict[str, dict[str, list[str]]]:
    """Reads a table of word, sense and text: for each word its senses, for each sense its texts.

    Raises:
        ValueError: a line has not three columns, its word is not in its text, or a word has fewer than two
            senses or a sense fewer than two texts.
    """
    words: dict[str, dict[str, list[str]]] = {}
    for row in read_tsv(path):
        if len(row) != 3:
            raise ValueError(f"{row.where}: found {len(row)} columns, expected 3: word, sense, text")
        word, sense, text = row
        if not word or word.lower() not in text.lower():
            raise ValueError(f"{row.where}: the word {word!r} does not stand in the text {text!r}")
        words.setdefault(word, {}).setdefault(sense, []).append(text)
    for word, senses in words.items():
        if len(senses) < 2 or min(map(len, senses.values())) < 2:
            found = ", ".join(f"{len(texts)} of {sense!r}" for sense, texts in senses.items())
            raise ValueError(f"{path}: the word {word!r} has {found}; expected two senses with two texts each, or more")
    if not words:
        raise ValueError(f"{path} holds no text; expected lines of word, tab, sense, tab, text")
    return words


def separation(vectors: Mapping[str, Sequence[Mapping]]) -> dict[str, tuple[float, float, float]]:
    """Measures how well each layer tells the senses of a word apart.

    Args:
        vectors: for each sense, what `word_vectors` gives for each of its texts.

    Returns:
        For each layer: the mean cosine of two texts of the same sense; that of two texts of different senses; and the
        share of texts whose nearest other text has the same sense (of several as near, the share of these).

    Example:
        >>> a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        >>> separation({"river": [{"layer 1": a}, {"layer 1": a}], "money": [{"layer 1": b}, {"layer 1": b}]})
        {'layer 1': (1.0, 0.0, 1.0)}
    """
    labels = np.array([sense for sense, texts in vectors.items() for _ in texts])
    found = {}
    for layer in next(iter(vectors.values()))[0]:
        rows = np.stack([np.asarray(text[layer], "float64") for texts in vectors.values() for text in texts])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = rows @ rows.T  # [texts, texts]
        same, other = labels[:, None] == labels, ~np.eye(len(labels), dtype=bool)
        nearest = np.where(other, cosines, -np.inf)
        nearest = nearest >= nearest.max(axis=1, keepdims=True) - 1e-9
        right = ((nearest & same).sum(axis=1) / nearest.sum(axis=1)).mean()
        found[layer] = (float(cosines[same & other].mean()), float(cosines[~same].mean()), float(right))
    return found


def load_contextual(path: str) -> tuple[Any, Any]:
    """Loads a BERT, a GPT or the export folder of an ELMo, and its tokenizer."""
    elmo = os.path.join(path, ELMO_FILE)
    if os.path.isfile(elmo):
        return keras_files.load_keras_file(elmo, (ElmoConfig,), "ELMo"), openai.tokenizer(
            path, openai.vocabulary_file(path)
        )
    return load_encoder(path)


def word_vectors(model, tokenizer, word: str, text: str) -> dict:
    """Returns the vectors of a word in a text: for each layer the mean over its pieces.

    Args:
        model: a `Bert`, `GPT` or `Elmo`.
        tokenizer: its tokenizer.
        word: in any case; its first occurrence in the text counts.
        text: one text.

    Returns:
        ``static`` and ``layer 1``, ``layer 2`` ...: numpy arrays [H].

    Raises:
        ValueError: the word is not in the text.
    """
    place = text.lower().find(word.lower())
    if not word or place < 0:
        raise ValueError(f"the word {word!r} does not stand in the text {text!r}")
    tokens, offsets = tokenizer.tokenize_with_offsets(text)
    chosen = [i for i, (start, end) in enumerate(offsets) if start < place + len(word) and end > place]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    if isinstance(model.config, BertConfig):
        ids = [tokenizer.vocab["[CLS]"], *ids, tokenizer.vocab["[SEP]"]]
        chosen = [i + 1 for i in chosen]
    outputs = model({"input_ids": np.array([ids])})
    layers = outputs["all_encoder_layers"]
    if "forward_logits" in outputs:
        table, layers = model.token_embeddings, layers[1:]
    else:
        table = next(weight for weight in model.weights if weight.path.endswith("word_embeddings"))
    vectors = {"static": np.asarray(table)[[ids[i] for i in chosen]].mean(axis=0)}
    for number, layer in enumerate(layers, start=1):
        vectors[f"layer {number}"] = np.asarray(layer)[0, chosen].mean(axis=0)
    return vectors


def cosine(a: Any, b: Any) -> float:
    """Returns the cosine of the angle between two vectors.

    Example:
        >>> round(cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])), 4)
        0.7071
    """
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))
