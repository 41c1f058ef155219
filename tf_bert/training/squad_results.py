"""What a model reads of the windows of questions, and the scores that it gives them."""

from collections.abc import Callable, Sequence

import numpy as np

from tf_bert.data.finetuning.squad import InputFeatures
from tf_bert.data.finetuning.squad_predictions import RawResult
from tf_bert.trainer.prediction import predict_by_length, stack


def columns_of(features: Sequence[InputFeatures], training: bool = False) -> dict[str, np.ndarray]:
    """The inputs of all windows, int32 [N, S]; for training also where answers start and end, int32 [N]."""
    columns = stack(features)
    if training:
        for name in ("start_position", "end_position"):
            columns[f"{name}s"] = np.array([getattr(feature, name) for feature in features], np.int32)
    return columns


def raw_results(
    model,
    features: Sequence[InputFeatures],
    batch_size: int,
    fixed_length: bool = False,
    progress: Callable[[int], None] = lambda windows: None,
) -> list[RawResult]:
    """The scores of all windows. Those of padding are left out, so that they take no place among the best.

    Args:
        model: a `tf_bert.models.bert_tasks.BertQuestionAnswering`.
        features: the windows.
        batch_size: windows in a batch.
        fixed_length: see `tf_bert.trainer.prediction.predict_by_length`.
        progress: called with the number of windows of each batch.
    """
    results = []
    names = ["start_logits", "end_logits"]
    batches = predict_by_length(model, columns_of(features), batch_size, names, fixed_length) if features else ()
    for rows, outputs in batches:
        for row, start, end in zip(rows, outputs["start_logits"], outputs["end_logits"], strict=True):
            length = len(features[row].tokens)
            results.append(RawResult(features[row].unique_id, start[:length], end[:length]))
        progress(len(rows))
    return results
