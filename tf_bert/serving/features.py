"""Vectors of the pieces of texts from chosen layers of BERT, line by line (the original's ``extract_features``)."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.data.finetuning.classification import convert_single_example
from tf_bert.data.finetuning.extracted_features import read_example
from tf_bert.models.bert import Bert
from tf_bert.models.pretrained import load_model
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.trainer.prediction import predict_by_length, stack

BATCHES_AT_ONCE = 64  # their lines are sorted by length


class ChosenLayers(Bert):
    """An encoder that returns some of its layers as ``vectors`` [B, S, layers, H]. It is not meant to be saved.

    Args:
        config: sizes and rates.
        chosen: the layers; 0 is the first, -1 the last.
        **arguments: of `Bert`.
    """

    def __init__(self, config: BertConfig, chosen: Sequence[int], **arguments):
        super().__init__(config, add_pooler=False, **arguments)
        self.chosen = tuple(chosen)

    def call(self, inputs, **options):
        """Encodes a batch."""
        outputs = super().call(inputs, **options)["all_encoder_layers"]
        return {"vectors": ops.stack([outputs[layer] for layer in self.chosen], axis=2)}


def load_layers(path_or_name: str | os.PathLike, config: BertConfig, layers: Sequence[int], **arguments):
    """Loads the encoder of a checkpoint of any format as `ChosenLayers`."""
    return load_model(path_or_name, ChosenLayers, config, chosen=layers, **arguments)


def piece_vectors(
    model: ChosenLayers, tokenizer: FullTokenizer, lines: Iterable[str], max_seq_length: int, batch_size: int
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yields the pieces of each line, [CLS] and [SEP] among them, and their vectors [T, layers, H], in order.

    Args:
        model: from `load_layers`.
        tokenizer: with the vocabulary of the model.
        lines: texts or pairs, see `tf_bert.data.finetuning.extracted_features.read_example`. Memory does not grow with
            their number.
        max_seq_length: pieces of a line that are read.
        batch_size: lines in a batch.
    """
    numbered = enumerate(lines)
    while chunk := list(itertools.islice(numbered, BATCHES_AT_ONCE * batch_size)):
        inputs = stack(
            convert_single_example(number, read_example(number, line), [], max_seq_length, tokenizer)
            for number, line in chunk
        )
        lengths = inputs["input_mask"].sum(axis=1)
        vectors = [np.zeros(0)] * len(chunk)  # each as long as its line: padded to the longest they would fill memory
        for rows, outputs in predict_by_length(model, inputs, batch_size, ["vectors"]):
            for row, of_row in zip(rows, outputs["vectors"], strict=True):
                vectors[row] = of_row[: lengths[row]]
        for ids, length, of_line in zip(inputs["input_ids"], lengths, vectors, strict=True):
            yield tokenizer.convert_ids_to_tokens(ids[:length].tolist()), of_line
