"""``tf-bert senses``: how alike a word is in two contexts, layer by layer."""

import os
from collections.abc import Sequence

from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "senses",
    """
    Prints the cosine similarity of a word's vectors in two texts, for each layer of each model. A static vector, the
    row of the table of words, is the same in every text; the layers of ELMo, GPT and BERT tell senses apart.

    Example: tf-bert senses --checkpoint=bert/export,gpt/export,elmo/export --word=bank
        --text='They sat on the bank of the river.' --other_text='The bank lent him money.'
    """,
)
FLAGS.string("checkpoint", None, "Models, separated by commas: BERT, GPT, or an ELMo's export folder.", required=True)
FLAGS.string("word", None, "A word that stands in both texts.", required=True)
FLAGS.string("text", None, "The first text.", required=True)
FLAGS.string("other_text", None, "The second text.", required=True)

ELMO_FILE = "elmo.keras"


def run(flags) -> None:
    """Loads each model and prints a line for it."""
    load_tensorflow()
    paths = [path.strip() for path in flags.checkpoint.split(",") if path.strip()]
    width = max(map(len, paths), default=0)
    for path in paths:
        model, tokenizer = _load(path)
        first, second = (word_vectors(model, tokenizer, flags.word, text) for text in (flags.text, flags.other_text))
        figures = [f"{name} {cosine(first[name], second[name]):6.3f}" for name in first]
        print(f"{path:<{width}}  {'  '.join(figures)}")


def _load(path: str):
    """A model and its tokenizer."""
    import keras

    from tf_bert.checkpoints import formats, gpt
    from tf_bert.configs import GPTConfig

    if os.path.isfile(os.path.join(path, ELMO_FILE)):
        from tf_bert.models.elmo import Elmo

        model = keras.saving.load_model(os.path.join(path, ELMO_FILE), custom_objects={"Elmo": Elmo})
        return model, gpt.tokenizer(path, gpt.vocabulary_file(path))
    from tf_bert.models.bert import Bert
    from tf_bert.models.gpt import GPT

    checkpoint = formats.open_checkpoint(path)
    model_class = GPT if isinstance(checkpoint.config, GPTConfig) else Bert
    return model_class.from_checkpoint(path), checkpoint.tokenizer()


def word_vectors(model, tokenizer, word: str, text: str) -> dict:
    """The vectors of a word in a text: the mean over its pieces, for each layer.

    Args:
        model: a `Bert`, `GPT` or `Elmo`.
        tokenizer: its tokenizer.
        word: as it stands in the text; its first place counts.
        text: one text.

    Returns:
        ``static`` and ``layer 1``, ``layer 2`` ...: numpy arrays [H].

    Raises:
        ValueError: the word does not stand in the text.
    """
    import numpy as np

    from tf_bert.configs import BertConfig

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
    layers = outputs["all_layers" if "all_layers" in outputs else "all_encoder_layers"]
    if "forward_logits" in outputs:
        table, layers = model.token_embeddings, layers[1:]
    else:
        table = next(weight for weight in model.weights if weight.path.endswith("word_embeddings"))
    vectors = {"static": np.asarray(table)[[ids[i] for i in chosen]].mean(axis=0)}
    for number, layer in enumerate(layers, start=1):
        vectors[f"layer {number}"] = np.asarray(layer)[0, chosen].mean(axis=0)
    return vectors


def cosine(a, b) -> float:
    """The cosine of the angle between two vectors.

    Example:
        >>> import numpy as np
        >>> round(cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])), 4)
        0.7071
    """
    import numpy as np

    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
