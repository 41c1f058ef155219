"""Trains the same model on one device and on several, and prints by how much they differ.

``python replica_runs.py REPLICAS CASE...`` runs in a process of its own: TensorFlow settles its devices once, and holds
one group of replicas. With TF_CONFIG set, REPLICAS is the number of workers, and each compares with one device.
"""

import contextlib
import functools
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tf_bert.configs import BertConfig, ElmoConfig, GPTConfig, Seq2SeqConfig, TransformerConfig
from tf_bert.models.bert import BertForPreTraining
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.models.bert_tasks import IGNORED_LABEL, BertClassifier, BertQuestionAnswering, BertTokenClassifier
from tf_bert.models.elmo import Elmo
from tf_bert.models.gpt import GPT
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.trainer.optimization import AdamWeightDecay, Lamb
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.distribution import distribute, get_strategy, set_logical_cpus, set_precision

BATCH = 8
STEPS = 20
VOCABULARY = 40

CASES = {
    "plain": {},
    "float32": {"precision": "float32"},
    "accumulated": {"gradient_accumulation_steps": 2},
    "accumulated unevenly": {"gradient_accumulation_steps": 3},
    "several steps": {"steps_per_execution": 3},
    "all at once": {"gradient_accumulation_steps": 2, "steps_per_execution": 8, "recompute": True},
    "compiled": {"jit_compile": True},
    "compiled in micro-batches": {"jit_compile": True, "gradient_accumulation_steps": 3, "steps_per_execution": 3},
    "lamb": {"optimizer": "lamb"},
    "keras adam": {"optimizer": "adam"},
    "classification": {"task": "classification", "gradient_accumulation_steps": 2},
    "tagging": {"task": "tagging", "gradient_accumulation_steps": 2},
    "questions": {"task": "questions", "optimizer": "by slices", "gradient_accumulation_steps": 2},
    "vectors": {"task": "vectors"},
    "translation": {"task": "translation", "gradient_accumulation_steps": 2},
    "translation recomputed": {"task": "translation", "gradient_accumulation_steps": 2, "recompute": True},
    "seq2seq": {"task": "seq2seq", "gradient_accumulation_steps": 2},
    "language modeling": {"task": "language modeling", "gradient_accumulation_steps": 2},
    "elmo": {"task": "elmo"},
    "keras losses and metrics": {"task": "classification", "gradient_accumulation_steps": 2, "compiled": "keras"},
    "keras metrics of tags": {"task": "tagging", "gradient_accumulation_steps": 3, "compiled": "metrics"},
}


def small_bert() -> BertConfig:
    """A small BERT without dropout."""
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    )


def small_transformer() -> TransformerConfig:
    """A small Transformer without dropout."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return TransformerConfig(vocab_size=VOCABULARY, hidden_dropout_prob=0.0, **sizes)


def small_seq2seq() -> Seq2SeqConfig:
    """A small recurrent model without dropout."""
    return Seq2SeqConfig(VOCABULARY, embedding_size=8, hidden_size=8, hidden_dropout_prob=0.0)


def small_gpt() -> GPTConfig:
    """A small GPT without dropout."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout_prob"), 0.0)
    return GPTConfig(VOCABULARY, pre_norm=True, **sizes, **rates)


MODELS = {
    "pretraining": lambda: BertForPreTraining(small_bert(), name="model"),
    "classification": lambda: BertClassifier(small_bert(), num_labels=3, dropout=0.0, name="model"),
    "tagging": lambda: BertTokenClassifier(small_bert(), num_labels=5, dropout=0.0, name="model"),
    "questions": lambda: BertQuestionAnswering(small_bert(), name="model"),
    "vectors": lambda: BertEncoder(small_bert(), layers=(0,), name="model"),
    "translation": lambda: Transformer(small_transformer(), name="model"),
    "seq2seq": lambda: Seq2Seq(small_seq2seq(), name="model"),
    "language modeling": lambda: GPT(small_gpt(), name="model"),
    "elmo": lambda: Elmo(ElmoConfig(VOCABULARY, hidden_size=8, hidden_dropout_prob=0.0), name="model"),
}


def with_dropout(model: Trainer, rate: float = 0.1) -> Trainer:
    """A fresh model like this one, with dropout."""
    config = model.get_config()
    config["config"] |= {name: rate for name in config["config"] if name.endswith("dropout_prob")}
    return type(model).from_config(config | ({"dropout": rate} if "dropout" in config else {}))


def task_data(task: str, examples: int) -> dict:
    """Examples with few and many counted words, some of weight 0, some of fractional weight."""
    random = np.random.default_rng(5)
    weights = (np.arange(4) < random.integers(0, 5, (examples, 1))).astype("float32")
    weights[::8] = 1.0
    weights[3::8] = 0.0
    weights[5::8] *= 0.25
    words = random.integers(1, VOCABULARY, (examples, 16), dtype="int32")
    lengths = random.integers(4, 17, (examples, 1))
    text = {
        "input_ids": words,
        "input_mask": (np.arange(16) < lengths).astype("int32"),
        "segment_ids": random.integers(0, 2, (examples, 16), dtype="int32"),
    }
    if task == "pretraining":
        return text | {
            "masked_lm_positions": random.integers(0, 4, (examples, 4), dtype="int32"),
            "masked_lm_ids": random.integers(0, VOCABULARY, (examples, 4), dtype="int32"),
            "masked_lm_weights": weights,
            "next_sentence_labels": random.integers(0, 2, (examples, 1), dtype="int32"),
        }
    sample_weight = weights[:, 0]
    if task == "classification":
        return text | {"label_ids": words[:, 0] % 3, "sample_weight": sample_weight}
    if task == "tagging":
        labels = np.where(text["input_mask"], words % 5, IGNORED_LABEL)
        return text | {"label_ids": labels, "sample_weight": sample_weight}
    if task == "questions":
        ends = {"start_positions": words[:, 0] % 4, "end_positions": words[:, 1] % 4}
        return text | ends | {"sample_weight": sample_weight}
    if task == "vectors":
        pair = {f"pair_{name}": value[:, ::-1] for name, value in text.items()}
        return text | pair | {"sample_weight": sample_weight}
    if task in ("language modeling", "elmo"):
        label_weights = np.repeat(weights, 4, axis=1) * text["input_mask"]
        return text | {"label_ids": words[:, ::-1], "label_weights": label_weights.astype("float32")}
    targets = np.where(np.arange(16) < lengths, words[:, ::-1], 0).astype("int32")
    return {"source_ids": words, "target_ids": targets, "sample_weight": sample_weight}


COMPILED = {
    "own": dict,
    "keras": lambda: {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy", keras.metrics.F1Score(average="macro", name="f1")],
        "weighted_metrics": [keras.metrics.AUC(name="auc"), keras.metrics.CategoricalAccuracy(name="share")],
    },
    "metrics": lambda: {"metrics": [keras.metrics.F1Score(average="macro", name="f1"), "accuracy"]},
}
OPTIMIZERS = {
    "adamw": lambda: AdamWeightDecay(1e-3, 0.01, global_clipnorm=0.1),
    "by slices": lambda: AdamWeightDecay(1e-3, 0.01, global_clipnorm=0.1, clip_unmerged_slices=True),
    "lamb": lambda: Lamb(1e-3, weight_decay=0.01, global_clipnorm=1.0),
    "adam": lambda: keras.optimizers.Adam(1e-3, global_clipnorm=1.0, epsilon=1e-4),
}


def train(
    strategy, precision="float64", optimizer="adamw", task="pretraining", compiled="own", **compile_arguments
) -> dict:
    """Trains 20 steps, the last on an uneven batch, and returns the weights and the figures of fit and evaluate."""
    set_precision(precision)
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = MODELS[task]()
        model.compile(OPTIMIZERS[optimizer](), **COMPILED[compiled](), **compile_arguments)
    before = {variable.path: variable.numpy() for variable in model.trainable_variables}
    data = task_data(task, BATCH * STEPS - 3)

    def batches(size):
        return tf.data.Dataset.from_tensor_slices(data).batch(size)

    place = strategy or tf.distribute.get_strategy()
    history = model.fit(distribute(place, batches, BATCH), verbose=0).history
    evaluated = model.evaluate(distribute(place, batches, 2 * BATCH), verbose=0, return_dict=True)
    assert int(model.optimizer.iterations.numpy()) == STEPS
    return {
        "change": {variable.path: variable.numpy() - before[variable.path] for variable in model.trainable_variables},
        "fit": {name: np.float64(values[-1]) for name, values in history.items()},
        "evaluate": {name: np.float64(value) for name, value in evaluated.items()},
    }


def difference(got: dict, expected: dict) -> float:
    """The largest difference between two dicts of arrays."""
    assert got.keys() == expected.keys(), (got.keys(), expected.keys())
    return max(float(np.max(np.abs(got[name] - expected[name]))) for name in expected)


def compare(got: dict, expected: dict) -> dict[str, float]:
    """How far two runs are apart, and how far the weights moved."""
    return {part: difference(got[part], expected[part]) for part in expected} | {
        "moved": max(float(np.max(np.abs(change))) for change in expected["change"].values())
    }


class Product(Trainer):
    """The inner product of ``x`` and two weights that begin at 0; squared errors, times ``boost``."""

    loss_names = ("loss",)

    def __init__(self):
        super().__init__()
        self.w = self.add_weight(shape=(2,), initializer="zeros", name="w")
        self.built = True

    def call(self, inputs):
        return tf.linalg.matvec(inputs["x"], self.w.value)

    def loss_weights(self, inputs):
        return {"loss": inputs["weight"]}

    def per_example_losses(self, inputs, outputs):
        return {"loss": inputs["boost"] * tf.square(outputs - inputs["y"])}


class Dropped(Trainer):
    """The sum of 64 weights after dropout: the gradient shows how many examples kept each of them."""

    loss_names = ("loss",)

    def __init__(self):
        super().__init__()
        self.w = self.add_weight(shape=(64,), initializer="zeros", name="w")
        self.dropout = keras.layers.Dropout(0.5)
        self.built = True

    def call(self, inputs, training=None):
        return tf.reduce_sum(self.dropout(inputs["x"] * self.w.value, training=training), axis=1)

    def loss_weights(self, inputs):
        return {"loss": tf.ones_like(inputs["x"][:, 0])}

    def per_example_losses(self, inputs, outputs):
        return {"loss": outputs}


def kept_by(strategy, micro_batches: int) -> tuple[list, int]:
    """How often each weight was kept by an example on each of two replicas, or in each of as many micro-batches, too;
    and how many reductions over the replicas were traced."""
    calls, reduce = [], tf.distribute.ReplicaContext.all_reduce

    def counted(*arguments, **options):
        calls.append(1)
        return reduce(*arguments, **options)

    with strategy.scope():
        model = Dropped()
        model.compile(keras.optimizers.SGD(1.0), gradient_accumulation_steps=micro_batches)
    tf.distribute.ReplicaContext.all_reduce = counted
    try:
        model.fit({"x": np.ones((2 * micro_batches, 64), "float32")}, batch_size=2 * micro_batches, verbose=0)
    finally:
        tf.distribute.ReplicaContext.all_reduce = reduce
    return (-micro_batches * model.w.numpy()).round().astype(int).tolist(), len(calls)


def by_hand(strategy) -> dict:
    """Runs whose results can be worked out on paper, each on one batch, half of it on each of two replicas."""
    set_precision("float32")
    x = np.array([[3, 4], [3, 4], [0, 1], [0, 1]], "float32")
    data = {"x": x, "y": np.array([1.0, 1, 0, 0]), "weight": np.array([1.0, 1, 1, 0]), "boost": np.ones(4)}
    data = {name: value.astype("float32") for name, value in data.items()}

    def fit(optimizer, micro_batches=1, **changes):
        with strategy.scope():
            model = Product()
            model.compile(optimizer(), gradient_accumulation_steps=micro_batches)
        history = model.fit(data | changes, batch_size=4, verbose=0).history
        return model, {"w": model.w.numpy().tolist(), "loss": history["loss"], "norm": history["gradient_norm"]}

    one = np.ones(4, "float32")
    results = {"uneven weights": fit(lambda: keras.optimizers.SGD(1.0))[1]}
    # squared errors of y = -3, x = (1, 4/3) on the first replica only: gradient (6, 8) there, (0, 0) on the other
    clipped = {"x": np.array([[1, 4 / 3]] * 2 + [[0, 0]] * 2, "float32"), "y": -6 * one * [1, 1, 0, 0], "weight": one}
    results["clipped"] = fit(lambda: keras.optimizers.SGD(1.0, global_clipnorm=1.0), **clipped)[1]
    boost = np.array([1, 1, 1e35, 1], "float32")  # finite, and infinite when the loss is scaled
    scaled = functools.partial(keras.optimizers.LossScaleOptimizer, initial_scale=2.0**15)
    results["overflow on the second replica"] = {}
    for parts in (1, 2):
        model, found = fit(lambda: scaled(AdamWeightDecay(1.0)), parts, boost=boost, y=one)
        found["iterations"] = int(model.optimizer.iterations.numpy())
        found["scale"] = float(model.optimizer.dynamic_scale.numpy())
        results["overflow on the second replica"][parts] = found
    results["kept"] = {parts: kept_by(strategy, parts) for parts in (1, 4)}
    return results


def train_for_ever(strategy) -> None:
    """Trains and prints the steps, until something ends it."""
    with strategy.scope():
        model = MODELS["pretraining"]()
        model.compile(OPTIMIZERS["adamw"]())

    def batches(size):
        return tf.data.Dataset.from_tensor_slices(task_data("pretraining", 8 * BATCH)).batch(size).repeat()

    say = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: print("step", batch, flush=True))
    model.fit(distribute(strategy, batches, BATCH), steps_per_epoch=10**9, verbose=0, callbacks=[say])


def main(replicas: int, cases: list[str]) -> None:
    """Prints a JSON object: the differences of each case, and the results that are worked out by hand."""
    global BATCH
    BATCH = -(-BATCH // replicas) * replicas  # three workers share nine examples
    workers = "TF_CONFIG" in os.environ
    if not workers:
        set_logical_cpus(replicas)
    strategy = get_strategy("multi_worker_mirrored" if workers else "mirrored")
    assert strategy.num_replicas_in_sync == replicas
    one_device = functools.cache(lambda **choices: train(None, **choices))
    if cases == ["endless"]:
        train_for_ever(strategy)
    differences = {}
    for case in cases:
        same = {
            name: value for name, value in CASES[case].items() if name in ("precision", "optimizer", "task", "compiled")
        }
        differences[case] = compare(train(strategy, **CASES[case]), one_device(**same))
        print(case, differences[case], file=sys.stderr, flush=True)
    results = {"differences": differences}
    if not workers and replicas == 2:
        results["by hand"] = by_hand(strategy)
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or list(CASES))
