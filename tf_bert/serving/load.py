"""Makes the predictor of a fine-tuned checkpoint: its model, tokenizer, labels and length, from what is noted there."""

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tf_bert.checkpoints.formats import Checkpoint
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import check_vocabulary_size
from tf_bert.configs import Config, GPTConfig
from tf_bert.data.finetuning.label_list import given_or_noted_labels, noted_labels
from tf_bert.data.finetuning.squad_predictions import AnswerOptions
from tf_bert.models.pretrained import ARCHITECTURES, load_model, open_checkpoint
from tf_bert.serving import predictors
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import save_vocab

PREDICTORS = {
    "BertForSequenceClassification": predictors.ClassifierPredictor,
    "BertForTokenClassification": predictors.TaggerPredictor,
    "BertForQuestionAnswering": predictors.AnswerPredictor,
    "BertForMultipleChoice": predictors.ChoicePredictor,
}
# The architecture of each kind of task that `label_list.json` may note; the variables alone leave it open.
ARCHITECTURE_OF_KIND = {
    "single": "BertForSequenceClassification",
    "multi": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tags": "BertForTokenClassification",
    "squad": "BertForQuestionAnswering",
    "choice": "BertForMultipleChoice",
}
MAX_SEQ_LENGTH = 512


def load_predictor(
    path_or_name: str | os.PathLike,
    *,
    batch_size: int = 32,
    max_seq_length: int | None = None,
    labels: Sequence[str] = (),
    config: Config | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    version_2_with_negative: bool | None = None,
    null_score_diff_threshold: float = 0.0,
    doc_stride: int = 128,
    max_query_length: int = 64,
    max_answer_length: int = 30,
) -> predictors.LinePredictor:
    """Loads a fine-tuned model that predicts lines of text; what is not given is what training noted.

    Args:
        path_or_name: see `tf_bert.models.pretrained.open_checkpoint`.
        batch_size: examples in a batch.
        max_seq_length: pieces that are read; by default as in training, at most 512 and what the model reads.
        labels: in the order of their ids.
        config: the sizes, where no configuration is next to the weights.
        vocab_file: the vocabulary, where none is next to the weights.
        do_lower_case: whether to lower-case text, where nothing next to the weights says so.
        version_2_with_negative: questions: whether there may be no answer.
        null_score_diff_threshold: questions: no answer if its score exceeds the best answer's by more than this.
        doc_stride, max_query_length, max_answer_length: questions: numbers of pieces, see
            `tf_bert.data.finetuning.squad.convert_examples_to_features`.

    Raises:
        ValueError, FileNotFoundError: the checkpoint was not fine-tuned, lacks a part, or contradicts an argument.
    """
    checkpoint = open_checkpoint(path_or_name, config)
    noted = noted_labels(path_or_name) or {}
    architecture = ARCHITECTURE_OF_KIND.get(noted.get("kind"), checkpoint.architecture)
    if isinstance(checkpoint.config, GPTConfig):
        architecture = checkpoint.architecture
    check_fine_tuned(checkpoint.path, architecture)
    is_gpt = architecture == "GPTClassifier"
    tokenizer = checkpoint.tokenizer() if is_gpt else tokenizer_of(checkpoint, vocab_file, do_lower_case)
    model = complete_model(checkpoint, architecture)
    length = sequence_length(checkpoint, max_seq_length, noted)
    arguments = (model, tokenizer, labels_of(checkpoint, model, labels, noted), length, batch_size)
    if is_gpt:
        choice = model.kind == "choice"
        return (predictors.GPTChoicePredictor if choice else predictors.GPTClassifierPredictor)(*arguments)
    if architecture != "BertForQuestionAnswering":
        return PREDICTORS[architecture](*arguments)
    if version_2_with_negative is None:
        version_2_with_negative = noted.get("version_2_with_negative", False)
    options = AnswerOptions(
        max_answer_length=max_answer_length,
        do_lower_case=tokenizer.basic_tokenizer.do_lower_case,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
        no_answer_text="",
        text_as_in_document=True,
    )
    lengths = {"doc_stride": doc_stride, "max_query_length": max_query_length}
    return predictors.AnswerPredictor(*arguments, options=options, **lengths)


def check_fine_tuned(path: str, architecture: str) -> None:
    """Raises ValueError for a model without the head of a task."""
    if architecture in ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel"):
        raise ValueError(
            f"{path} is a GPT that was not fine-tuned to classify: tf-bert run_gpt does that, and tf-bert generate "
            "goes on with a text"
        )
    if architecture != "GPTClassifier" and architecture not in PREDICTORS:
        raise ValueError(
            f"{path} is a {architecture}: it was not fine-tuned and has nothing to predict here; tf-bert fill_mask "
            "fills masks, tf-bert extract_features gives vectors"
        )


def tokenizer_of(checkpoint: Checkpoint, vocab_file: str | os.PathLike | None, do_lower_case: bool | None):
    """Returns the tokenizer inside a ``.keras`` file, or that of the vocabulary next to the weights or given.

    Raises:
        ValueError: vocabulary or casing is unknown, contradicts what is noted, or does not fit the model.
    """
    inside = getattr(getattr(checkpoint.reader, "model", None), "preprocessor_config", lambda: None)()
    if checkpoint.vocab_file is None and vocab_file is None and inside is not None:
        return _tokenizer_inside(inside["config"])
    if vocab_file is None and do_lower_case is None:
        return checkpoint.tokenizer()
    vocab_file = vocab_file or checkpoint.vocab_file
    if vocab_file is None:
        raise ValueError(f"there is no vocabulary beside {checkpoint.path}: give --vocab_file")
    settings = checkpoint.settings.to_dict() if checkpoint.settings else {}
    if do_lower_case is not None:
        if settings.get("do_lower_case", do_lower_case) != do_lower_case:
            raise ValueError(f"{checkpoint.path} notes do_lower_case {not do_lower_case}: leave the flag out")
        settings["do_lower_case"] = do_lower_case
    if "do_lower_case" not in settings:
        raise ValueError(f"nothing beside {checkpoint.path} says the casing: give --do_lower_case or --nodo_lower_case")
    tokenizer = FullTokenizer(vocab_file, **settings)
    rows = checkpoint.config.vocab_size
    check_vocabulary_size(tokenizer.vocab_size, rows, rows, vocab_file)
    return tokenizer


def _tokenizer_inside(config: Mapping[str, Any]) -> FullTokenizer:
    """Returns the tokenizer of the configuration of a preprocessor, which holds the vocabulary itself."""
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = os.path.join(folder, "vocab.txt")
        save_vocab(config["vocabulary"], vocab_file)
        return FullTokenizer(vocab_file, **TokenizerSettings.from_dict(config).to_dict())


def complete_model(checkpoint: Checkpoint, architecture: str):
    """Loads the model.

    Raises:
        ValueError: a variable is not in the checkpoint; predictions would be random.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load_model` warns of what is an error here
        model = load_model(checkpoint, ARCHITECTURES[architecture])
    if model.load_report.missing:
        raise ValueError(
            f"{checkpoint.path} has no value for {', '.join(model.load_report.missing)}: predictions would be random; "
            "fine-tune it first"
        )
    return model


def sequence_length(checkpoint: Checkpoint, given: int | None, noted: Mapping[str, Any]) -> int:
    """Returns the number of pieces that are read: as given, else as in training, else what the model reads.

    Raises:
        ValueError: more than the model reads is given.
    """
    most = checkpoint.config.max_position_embeddings
    if given and given > most:
        raise ValueError(f"--max_seq_length={given}: the model reads {most} pieces")
    return min(given or noted.get("max_seq_length") or MAX_SEQ_LENGTH, most)


def labels_of(checkpoint: Checkpoint, model, given: Sequence[str], noted: Mapping[str, Any]) -> list[str]:
    """Returns the names of a model's labels: given, noted by training or by Hugging Face, else their numbers.

    Raises:
        ValueError: they contradict each other, or there are not as many as the model has outputs.
    """
    outputs = getattr(model, "num_labels", None)
    if outputs is None or getattr(model, "kind", None) in ("regression", "choice"):
        return []
    theirs = checkpoint.config.extra.get("id2label") or {}  # Hugging Face's
    labels = given_or_noted_labels(given, noted)
    labels = labels or [theirs[key] for key in sorted(theirs, key=int)] or [str(number) for number in range(outputs)]
    if len(labels) != outputs:
        raise ValueError(f"{checkpoint.path} has {outputs} labels, and {len(labels)} are named: {', '.join(labels)}")
    return labels
