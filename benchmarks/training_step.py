"""BERT's pre-training step and forward pass against Hugging Face's on torch, keras-hub's, and the machine's products.

Each side is a process of its own that waits for its turn; the turns alternate, so that a loaded machine disturbs all
alike. Reported are medians of wall and CPU seconds, and the share of what the matrix products alone would need at the
rate of a large product in the same process (three times the forward's products for a step, attention and the masked
head included). All train masked LM on 20 positions with AdamW and clipping, dropout 0.1, batch 8, length 128, float32;
Hugging Face and we the next sentence too, keras-hub's model has none. Our step keeps freed memory, as our commands do;
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_ARENA_MAX=1 in the environment do the same for all sides.

Run, with environments made from requirements-peers.txt:
    python benchmarks/training_step.py [step] [forward] --torch=peers/bin/python --keras_hub=peers_keras/bin/python
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH, LENGTH, PREDICTIONS = 8, 128, 20
VOCAB, HIDDEN, INTERMEDIATE = 30522, 768, 3072
SIDES = ["tf_bert", "tf_bert XLA", "huggingface", "keras_hub", "keras_hub XLA"]


def products(layers: int, step: bool) -> float:
    """Floating-point operations of the matrix products of a forward pass, or of a whole step."""
    tokens = BATCH * LENGTH
    dense = 2 * tokens * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INTERMEDIATE)
    attention = 2 * 2 * tokens * LENGTH * HIDDEN
    head = 2 * BATCH * PREDICTIONS * (HIDDEN * HIDDEN + HIDDEN * VOCAB)
    return 3 * (layers * (dense + attention) + head) if step else layers * (dense + attention)


def make_batch():
    """Rows of full length, as pre-training data mostly are."""
    import numpy as np

    rng = np.random.default_rng(0)
    positions = [sorted(rng.choice(LENGTH, PREDICTIONS, replace=False)) for _ in range(BATCH)]
    return {
        "input_ids": rng.integers(1000, VOCAB, (BATCH, LENGTH)).astype("int32"),
        "input_mask": np.ones((BATCH, LENGTH), "int32"),
        "segment_ids": np.repeat([[0] * 64 + [1] * 64], BATCH, axis=0).astype("int32"),
        "masked_lm_positions": np.array(positions, "int32"),
        "masked_lm_ids": rng.integers(1000, VOCAB, (BATCH, PREDICTIONS)).astype("int32"),
        "masked_lm_weights": np.ones((BATCH, PREDICTIONS), "float32"),
        "next_sentence_labels": rng.integers(0, 2, (BATCH, 1)).astype("int32"),
    }


def tf_bert_calls(layers: int, step: bool, xla: bool):
    sys.path.insert(0, ROOT)
    from tf_bert.memory import keep_freed_memory

    if step:
        keep_freed_memory()  # as the training commands do
    import tensorflow as tf

    from tf_bert import Bert, BertConfig, BertForPreTraining
    from tf_bert.trainer.optimization import create_optimizer

    config = BertConfig(VOCAB, num_hidden_layers=layers, type_vocab_size=2)
    batch = {name: tf.constant(value) for name, value in make_batch().items()}
    if step:
        model = BertForPreTraining(config)
        model.compile(create_optimizer(1e-4, 10_000, 100), jit_compile=xla)
        data = tf.data.Dataset.from_tensors(batch).repeat()
        model.fit(data, steps_per_epoch=1, verbose=0)
        iterator = iter(data)
        call = lambda: float(model.train_function(iterator)["loss"])  # noqa: E731
    else:
        bert = Bert(config)
        inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
        forward = tf.function(lambda x: bert(x)["sequence_output"], jit_compile=xla)
        call = lambda: forward(inputs).numpy()  # noqa: E731
    return call, tensorflow_product()


def tensorflow_product():
    import tensorflow as tf

    a = tf.random.normal([BATCH * LENGTH, HIDDEN])
    b = tf.random.normal([HIDDEN, INTERMEDIATE])
    multiply = tf.function(lambda: tf.matmul(a, b))
    return lambda: multiply().numpy().shape


def huggingface_calls(layers: int, step: bool):
    import torch
    from transformers import BertConfig, BertForPreTraining, BertModel

    config = BertConfig(vocab_size=VOCAB, num_hidden_layers=layers, attn_implementation="sdpa")
    batch = {name: torch.from_numpy(value).long() for name, value in make_batch().items() if "weights" not in name}
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }
    if step:
        model = BertForPreTraining(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
        labels = torch.full((BATCH, LENGTH), -100).scatter(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

        def call():
            optimizer.zero_grad()
            loss = model(**inputs, labels=labels, next_sentence_label=batch["next_sentence_labels"][:, 0]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.item()
    else:
        model = BertModel(config).eval()

        def call():
            with torch.inference_mode():
                return model(**inputs).last_hidden_state.numpy()

    a, b = torch.randn(BATCH * LENGTH, HIDDEN), torch.randn(HIDDEN, INTERMEDIATE)
    return call, lambda: (a @ b).shape


def keras_hub_calls(layers: int, step: bool, xla: bool):
    import keras
    import keras_hub
    import tensorflow as tf

    backbone = keras_hub.models.BertBackbone(VOCAB, layers, HIDDEN // 64, HIDDEN, INTERMEDIATE, dropout=0.1)
    batch = {name: tf.constant(value) for name, value in make_batch().items()}
    inputs = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    if step:
        model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
        model.compile(
            keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=xla,
        )
        inputs["mask_positions"] = batch["masked_lm_positions"]
        data = tf.data.Dataset.from_tensors((inputs, batch["masked_lm_ids"], batch["masked_lm_weights"])).repeat()
        model.fit(data, steps_per_epoch=1, verbose=0)
        iterator = iter(data)
        call = lambda: float(model.train_function(iterator)["loss"])  # noqa: E731
    else:
        forward = tf.function(lambda x: backbone(x)["sequence_output"], jit_compile=xla)
        call = lambda: forward(inputs).numpy()  # noqa: E731
    return call, tensorflow_product()


def serve(side: str, layers: int, step: bool) -> None:
    """Waits for lines on standard input; answers each with wall and CPU seconds of a call and a product's rate."""
    name, _, xla = side.partition(" ")
    calls = {"tf_bert": tf_bert_calls, "huggingface": huggingface_calls, "keras_hub": keras_hub_calls}[name]
    call, product = calls(layers, step) if name == "huggingface" else calls(layers, step, bool(xla))
    for _ in range(2):
        call(), product()
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        times = time.perf_counter() - wall, time.process_time() - cpu
        rates = []
        for _ in range(20):
            start = time.perf_counter()
            product()
            rates.append(2 * BATCH * LENGTH * HIDDEN * INTERMEDIATE / (time.perf_counter() - start))
        print(json.dumps([*times, statistics.median(rates)]), flush=True)


def compare(step: bool, options) -> None:
    """Prints a table."""
    interpreters = {"tf_bert": sys.executable, "huggingface": options.torch, "keras_hub": options.keras_hub}
    command = [__file__, f"--layers={options.layers}", "step" if step else "forward"]
    servers = {
        side: subprocess.Popen(
            [interpreter, *command, f"--serve={side}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if options.verbose else subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        for side in options.sides.split(",")
        if (interpreter := interpreters[side.partition(" ")[0]])
    }
    answers: dict[str, list] = {side: [] for side in servers}
    for side, server in servers.items():
        while (line := server.stdout.readline().strip()) != "ready":
            if not line and server.poll() is not None:
                raise SystemExit(f"{side} did not start; try --verbose")
    for _ in range(options.rounds):
        for side, server in servers.items():
            print(file=server.stdin, flush=True)
            answers[side].append(json.loads(server.stdout.readline()))
    for server in servers.values():
        server.stdin.close()
        server.wait()

    medians = {
        side: [statistics.median(column) for column in zip(*rows, strict=True)] for side, rows in answers.items()
    }
    best = min(wall for side, (wall, *_) in medians.items() if side.startswith("tf_bert"))
    rate = max(row[2] for row in medians.values())
    needed = products(options.layers, step) / rate
    print(f"\n{'training step' if step else 'forward'}, {options.layers} layers, medians of {options.rounds} turns")
    print(f"matrix products: {rate / 1e9:.0f} GFLOP/s, so that the products alone need {needed:.2f} s")
    print(f"{'':15}{'wall s':>8}{'CPU s':>8}{'of our best':>13}{'share of the product rate':>28}")
    for side, (wall, cpu, own_rate) in medians.items():
        share = products(options.layers, step) / wall / own_rate
        print(f"{side:15}{wall:8.2f}{cpu:8.2f}{wall / best:13.2f}{share:28.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="step, forward; both by default")
    parser.add_argument("--torch", help="a Python that has torch and transformers")
    parser.add_argument("--keras_hub", help="a Python that has keras-hub")
    parser.add_argument("--sides", default=",".join(SIDES), help="which of: %(default)s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--verbose", action="store_true", help="show what the sides say")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for part in options.parts or ["forward", "step"]:
        if options.serve:
            serve(options.serve, options.layers, part == "step")
        else:
            compare(part == "step", options)


if __name__ == "__main__":
    main()
