"""``tf-bert senses``: how alike a word is in two contexts, layer by layer."""

import os
from collections.abc import Mapping, Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "senses",
    """
    Prints the cosine similarity of a word's vectors in two texts, for each layer of each model. A static vector, the
    row of the table of words, is the same in every text; the layers of ELMo, GPT and BERT tell senses apart.

    With --input_file the texts are those of a file. Then the mean similarity of two texts of the same sense and that of
    two texts of different senses are printed, and how often the nearest other text has the same sense.

    Example: tf-bert senses --checkpoint=bert/export,gpt/export,elmo/export --word=bank
        --text='They sat on the bank of the river.' --other_text='The bank lent him money.'
    """,
)
FLAGS.string("checkpoint", None, "Models, separated by commas: BERT, GPT, or an ELMo's export folder.", required=True)
FLAGS.string("word", None, "A word that stands in both texts.")
FLAGS.string("text", None, "The first text.")
FLAGS.string("other_text", None, "The second text.")
FLAGS.string("input_file", None, "A file of texts: word, tab, sense, tab, text; two texts or more of each sense.")
FLAGS.string("png_file", None, "A picture of what --input_file gives (.png, .svg).")

ELMO_FILE = "elmo.keras"


def run(flags) -> None:
    """Loads each model and prints a line, or a table, for it."""
    pair = [flags.word, flags.text, flags.other_text]
    if flags.input_file and any(pair):
        raise UsageError("give --input_file, or --word, --text and --other_text, not both")
    if not flags.input_file and None in pair:
        raise UsageError("give --word, --text and --other_text, or --input_file")
    if flags.png_file and not flags.input_file:
        raise UsageError("--png_file draws what --input_file gives")
    words = read_senses(flags.input_file) if flags.input_file else {}
    load_tensorflow()
    paths = [path.strip() for path in flags.checkpoint.split(",") if path.strip()]
    width = max(map(len, [*paths, *words]), default=0)
    figures = {}
    if words:
        print(f"{'':<{width}}           same sense  other sense  nearest right")
    for path in paths:
        model, tokenizer = _load(path)
        if not words:
            first, second = (word_vectors(model, tokenizer, flags.word, text) for text in pair[1:])
            shown = [f"{name} {cosine(first[name], second[name]):6.3f}" for name in first]
            print(f"{path:<{width}}  {'  '.join(shown)}")
            continue
        print(path)
        for word, senses in words.items():
            vectors = {
                sense: [word_vectors(model, tokenizer, word, text) for text in texts] for sense, texts in senses.items()
            }
            figures[path, word] = separation(vectors)
            for i, (layer, (same, other, right)) in enumerate(figures[path, word].items()):
                print(f"{'' if i else word:<{width}}  {layer:<7}  {same:10.3f}  {other:11.3f}  {right:13.0%}")
    if flags.png_file:
        from tf_bert.visualization.plots import plot_senses

        plot_senses(flags.png_file, figures)


def read_senses(path: str) -> dict[str, dict[str, list[str]]]:
    """Reads the texts of ``--input_file``: word, then sense, then the texts.

    Raises:
        ValueError: a line has not three columns, its word does not stand in its text, or a word has fewer than two
            senses or a sense fewer than two texts.
    """
    from tf_bert.data.text.tables import read_tsv

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
    """How well each layer tells the senses of a word apart.

    Args:
        vectors: for each sense, what `word_vectors` gives for each of its texts.

    Returns:
        For each layer: the mean cosine of two texts of the same sense; that of two texts of different senses; and the
        share of texts whose nearest other text has the same sense (of several as near, the share of these).

    Example:
        >>> import numpy as np
        >>> a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        >>> separation({"river": [{"layer 1": a}, {"layer 1": a}], "money": [{"layer 1": b}, {"layer 1": b}]})
        {'layer 1': (1.0, 0.0, 1.0)}
    """
    import numpy as np

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


def _load(path: str):
    """A model and its tokenizer."""
    import keras

    from tf_bert.checkpoints import openai
    from tf_bert.configs import GPTConfig
    from tf_bert.models import pretrained

    if os.path.isfile(os.path.join(path, ELMO_FILE)):
        from tf_bert.models.elmo import Elmo

        model = keras.saving.load_model(os.path.join(path, ELMO_FILE), custom_objects={"Elmo": Elmo})
        return model, openai.tokenizer(path, openai.vocabulary_file(path))
    from tf_bert.models.bert import Bert
    from tf_bert.models.gpt import GPT

    checkpoint = pretrained.open_checkpoint(path)
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
    layers = outputs["all_encoder_layers"]
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
