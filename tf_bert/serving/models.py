"""Served models: turn a request's examples into inputs, compute, and build the answers."""

import dataclasses
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.classification import InputExample, convert_single_example
from tf_bert.data.finetuning.squad import SquadExample, convert_examples_to_features, split_words
from tf_bert.data.finetuning.squad_predictions import RawResult, predict_answers
from tf_bert.data.finetuning.tagging import TaggedSentence, convert_sentences_to_features
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.models.fill_mask import MASK, fillings_of
from tf_bert.models.pretrained import load_model, open_checkpoint
from tf_bert.serving import predictors
from tf_bert.serving.batching import TokenBatcher
from tf_bert.serving.generation import ServedGenerator
from tf_bert.serving.load import load_predictor
from tf_bert.trainer.prediction import SEQUENCES, prediction_function

Inputs = dict[str, np.ndarray]
TASKS = ("classify", "tag", "answer", "fill_mask", "embed", "generate")


@dataclasses.dataclass
class Encoded:
    """An example of a request: what it is, and its sequences for the model (several for a long document)."""

    example: Any
    sequences: list[Inputs]

    @property
    def tokens(self) -> int:
        """The tokens of all sequences."""
        return sum(len(sequence["input_ids"]) for sequence in self.sequences)


class ServedModel:
    """A model with its tokenizer and its queue; a subclass says what its examples are.

    Args:
        name: in addresses.
        path: where it was loaded from.
        version: a number; larger ones replace smaller ones.
        **batching: of `tf_bert.serving.batching.TokenBatcher`.

    Attributes:
        task: one of `TASKS`.
        fields: the texts of an example, each with the names it may have in a request, the usual one first.
        optional: those of the fields that may be left out.
        loaded: when, in seconds since 1970.
    """

    task: str
    fields: Mapping[str, Sequence[str]] = {"text": ("text", "texts", "input")}
    optional: Sequence[str] = ()
    outputs: Sequence[str] = ()

    def __init__(self, name: str, path: str, version: int, model, **batching):
        self.name, self.path, self.version, self.loaded = name, path, version, time.time()
        self.model = model
        run = prediction_function(model, SEQUENCES, tuple(self.outputs))
        self.batcher = TokenBatcher(
            lambda inputs: {name: value.numpy() for name, value in run(inputs).items()}, **batching
        )

    def describe(self) -> dict[str, Any]:
        """What the model does, for its metadata."""
        return {"task": self.task, "fields": list(self.fields), "optional": list(self.optional)}

    def texts_of(self, instance: Any, where: str) -> dict[str, str]:
        """The texts of an example by their usual names.

        Raises:
            ValueError: a key is unknown or missing, or a value is not a text.
        """
        if isinstance(instance, str) and len(self.fields) - len(self.optional) == 1:
            instance = {next(iter(self.fields)): instance}
        if not isinstance(instance, dict):
            raise ValueError(f"{where}: expected {self._expected()}")
        usual = {other: name for name, others in self.fields.items() for other in others}
        if unknown := [key for key in instance if key not in usual]:
            raise ValueError(f"{where}: {unknown[0]!r} is not a key of this model; expected {self._expected()}")
        texts = {usual[key]: value for key, value in instance.items()}
        for name in self.fields:
            if name not in texts and name not in self.optional:
                raise ValueError(f"{where}: {name!r} is missing; expected {self._expected()}")
            if not isinstance(texts.get(name, ""), str):
                raise ValueError(f"{where}: {name}: expected a text")
        return texts

    def _expected(self) -> str:
        keys = ", ".join(f'"{name}"' + (" (may be left out)" if name in self.optional else "") for name in self.fields)
        return f"{'a text, or ' if len(self.fields) - len(self.optional) == 1 else ''}an object with {keys}"

    def encode_all(self, instances: Sequence[Any]) -> list[Encoded]:
        """Checks and tokenizes the examples of a request.

        Raises:
            ValueError: names the first one that is wrong.
        """
        return [self.encode(self.texts_of(one, f"instance {place}"), place) for place, one in enumerate(instances)]

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes an example."""
        raise NotImplementedError

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> Any:
        """The answer, ready for JSON, from the outputs of the example's sequences."""
        raise NotImplementedError

    def decode_all(self, encoded: Sequence[Encoded], outputs: Sequence[list]) -> list:
        """The answers of a request."""
        return [self.decode(one.example, found) for one, found in zip(encoded, outputs, strict=True)]

    def warm_up(self) -> None:
        """Runs one short example, so that the first request does not pay for compilation."""
        (encoded,) = self.encode_all([dict.fromkeys(self.fields, f"a {MASK}" if self.task == "fill_mask" else "a")])
        for future in self.batcher.submit(encoded.sequences):
            future.result()

    def close(self) -> None:
        """Answers what waits, then stops."""
        self.batcher.close()


def _trimmed(feature) -> Inputs:
    """The inputs of a feature without its padding."""
    length = sum(feature.input_mask)
    return {name: np.array(getattr(feature, name)[:length], np.int32) for name in SEQUENCES}


class _Predicting(ServedModel):
    """A fine-tuned model, by its predictor for lines of text."""

    def __init__(self, name: str, path: str, version: int, predictor: predictors.LinePredictor, **batching):
        self.predictor = predictor
        super().__init__(name, path, version, predictor.model, **batching)

    def describe(self) -> dict[str, Any]:
        """What the model does, with its labels."""
        more = {"labels": self.predictor.labels} if self.predictor.labels else {}
        return super().describe() | more | {"max_seq_length": self.predictor.max_seq_length}


class ServedClassifier(_Predicting):
    """Labels, or a number, of a text or a pair of texts."""

    task, outputs = "classify", ("logits",)
    fields = {"text": ("text", "texts"), "text_pair": ("text_pair", "text_pairs")}
    optional = ("text_pair",)

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes a text or a pair."""
        example = InputExample("", texts["text"], texts.get("text_pair"))
        length, tokenizer = self.predictor.max_seq_length, self.predictor.tokenizer
        return Encoded(None, [_trimmed(convert_single_example(0, example, [""], length, tokenizer))])

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """``label``, ``labels`` or ``value``, and the probabilities."""
        return self.predictor.result(outputs[0]["logits"].astype(np.float64))


class ServedTagger(_Predicting):
    """Tags of the words of a text."""

    task, outputs = "tag", ("logits",)
    fields = {"text": ("text", "texts")}

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes the words; a long text has several windows."""
        sentence: TaggedSentence = self.predictor.read(texts["text"], f"instance {place}")
        length, tokenizer = self.predictor.max_seq_length, self.predictor.tokenizer
        windows = convert_sentences_to_features([sentence], self.predictor.labels, length, tokenizer)
        return Encoded((sentence, windows), [_trimmed(window) for window in windows])

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """``words`` and ``tags``."""
        sentence, windows = example
        tags = [""] * len(sentence.words)
        for window, found in zip(windows, outputs, strict=True):
            for position, word in window.places:
                tags[word] = self.predictor.labels[int(found["logits"][position].argmax())]
        return {"words": list(sentence.words), "tags": tags}


class ServedReader(_Predicting):
    """Answers to questions about documents."""

    task, outputs = "answer", ("start_logits", "end_logits")
    fields = {"question": ("question", "questions"), "document": ("document", "documents", "context")}

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes question and document; a long document has several windows."""
        words, offsets, _ = split_words(texts["document"])
        example = SquadExample("0", texts["question"], words, context=texts["document"], word_offsets=offsets)
        windows = []
        convert_examples_to_features(
            [example], self.predictor.tokenizer, *self.predictor.lengths, False, windows.append
        )
        return Encoded((example, windows), [_trimmed(window) for window in windows])

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """``answer``, empty for none, and its ``probability`` among the best ones."""
        question, windows = example
        results = [
            RawResult(window.unique_id, found["start_logits"][:length], found["end_logits"][:length])
            for window, found, length in zip(windows, outputs, (len(w.tokens) for w in windows), strict=True)
        ]
        found = predict_answers([question], windows, results, self.predictor.options)
        answer = found.predictions[question.qas_id]
        shares = [each["probability"] for each in found.nbest[question.qas_id] if each["text"] == answer]
        return {"answer": answer, "probability": float(shares[0]) if shares else 0.0}


class _Pieces(ServedModel):
    """A model without a task's head, by the checkpoint's tokenizer."""

    def __init__(self, name: str, path: str, version: int, model, tokenizer, **batching):
        self.tokenizer = tokenizer
        self.max_seq_length = model.config.max_position_embeddings
        super().__init__(name, path, version, model, **batching)

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes a text."""
        found = self.tokenizer.encode_batch([texts["text"]], max_seq_length=self.max_seq_length)
        length = int(found["input_mask"].sum())
        return Encoded(None, [{name: np.asarray(found[name][0][:length], np.int32) for name in SEQUENCES}])


class ServedEncoder(_Pieces):
    """Vectors of texts."""

    task, outputs = "embed", ("vectors",)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return self.model.config.hidden_size

    def describe(self) -> dict[str, Any]:
        """What the model does, with the length of its vectors."""
        return super().describe() | {"width": self.width, "pooling": self.model.pooling}

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """The ``vector``."""
        return {"vector": outputs[0]["vectors"].tolist()}


class ServedMaskedLM(_Pieces):
    """The likeliest words for each [MASK] of a text."""

    task, outputs = "fill_mask", ("masked_lm_logits",)
    top_k = 5

    def encode(self, texts: dict[str, str], place: int) -> Encoded:
        """Tokenizes a text with at least one [MASK]."""
        encoded = super().encode(texts, place)
        ids = encoded.sequences[0]["input_ids"]
        positions = np.flatnonzero(ids == self.tokenizer.vocab[MASK])
        if not len(positions):
            raise ValueError(f"instance {place}: there is no {MASK} in the text that is read: write {MASK} in capitals")
        return Encoded(positions, encoded.sequences)

    def decode(self, example: Any, outputs: list[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """For each [MASK] the likeliest ``tokens`` and their ``probabilities``."""
        logits = outputs[0]["masked_lm_logits"][example]
        found = fillings_of(logits, self.tokenizer.inv_vocab, self.top_k)
        return {"fillings": [[filling._asdict() for filling in of_mask] for of_mask in found]}


class Registry(Mapping[str, ServedModel | ServedGenerator]):
    """The models of a server, by name. A new version takes the place of the old one, which answers what it has begun.

    Args:
        paths: of checkpoints, export folders or runs, or published names; a folder of numbered versions stands for the
            one of the largest number. ``NAME=PATH`` gives a name; by default the last part of the path that tells.
        **batching: of `tf_bert.serving.batching.TokenBatcher`.
    """

    def __init__(self, paths: Sequence[str], **batching):
        self.batching, self.ready, self._lock = batching, False, threading.Lock()
        self._sources = dict(_named(path) for path in paths)
        if len(self._sources) < len(paths):
            raise ValueError("two models have one name: give them as NAME=PATH")
        self._models: dict[str, ServedModel | ServedGenerator] = {}
        for name, path in self._sources.items():
            self._models[name] = self._load(name, path)
        self.ready = True

    def __getitem__(self, name: str) -> ServedModel | ServedGenerator:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def reload(self, only_newer: bool = False) -> list[str]:
        """Loads the models again, or those of which there is a newer version; returns their names.

        A model that cannot be loaded leaves the one that serves.
        """
        changed = []
        with self._lock:
            for name, path in self._sources.items():
                if only_newer and newest_version(path)[1] <= self._models[name].version:
                    continue
                new = self._load(name, path)
                old, self._models[name] = self._models[name], new
                old.close()
                changed.append(name)
        return changed

    def close(self) -> None:
        """Answers what waits, then stops."""
        self.ready = False
        for model in self._models.values():
            model.close()

    def _load(self, name: str, path: str) -> ServedModel | ServedGenerator:
        folder, version = newest_version(path)
        model = load_served(name, folder, version, **self.batching)
        model.warm_up()
        return model


def newest_version(path: str) -> tuple[str, int]:
    """The folder of the largest number in a folder of versions, and the number; of anything else itself, and 1."""
    numbers = [name for name in os.listdir(path) if name.isdecimal()] if os.path.isdir(path) else []
    if not numbers:
        return path, 1
    newest = max(numbers, key=int)
    return os.path.join(path, newest), int(newest)


def _named(path: str) -> tuple[str, str]:
    """The name and the path of a model."""
    name, separator, rest = path.partition("=")
    if separator and re.fullmatch(r"[\w.-]+", name):
        return name, rest
    parts = [part for part in os.path.normpath(path).split(os.sep) if part not in ("export", "run", "best")]
    return os.path.splitext(parts[-1])[0] if parts else "model", path


def load_served(name: str, path: str, version: int = 1, **batching) -> ServedModel | ServedGenerator:
    """Loads a model of any task.

    Raises:
        ValueError, FileNotFoundError: see `tf_bert.models.pretrained.open_checkpoint`.
    """
    checkpoint = open_checkpoint(path)
    arguments = (name, path, version)
    if isinstance(checkpoint.config, GPTConfig) and checkpoint.architecture != "GPTClassifier":
        return ServedGenerator(*arguments, load_model(checkpoint), checkpoint.tokenizer())
    if checkpoint.architecture in ("BertForPreTraining", "BertForMaskedLM"):
        tokenizer = checkpoint.tokenizer(special_tokens_in_text=True)
        return ServedMaskedLM(*arguments, load_model(checkpoint), tokenizer, **batching)
    if checkpoint.architecture == "BertModel":
        encoder = load_model(checkpoint, BertEncoder)
        return ServedEncoder(*arguments, encoder, checkpoint.tokenizer(), **batching)
    predictor = load_predictor(path)
    kinds = {
        predictors.ClassifierPredictor: ServedClassifier,
        predictors.TaggerPredictor: ServedTagger,
        predictors.AnswerPredictor: ServedReader,
    }
    if type(predictor) not in kinds:
        raise ValueError(f"{path}: a {checkpoint.architecture} is not served; tf-bert predict answers lines with it")
    return kinds[type(predictor)](*arguments, predictor, **batching)
