"""The small Transformer and the small LSTM with attention against equal models in plain PyTorch.

    python benchmarks/translation.py --peer_python=/path/to/python [--model=transformer] --data_dir=DATA
    python benchmarks/translation.py --peer_python=... --speed [--model=seq2seq] [--dropout=0.1] [--xla]

DATA is a folder of ``tf-bert create_translation_data``; the other interpreter needs torch and numpy, and runs
`plain_translation.py`. Both sides get the same initial weights, the same batches, Adam, the same rates. First form: the
losses of 200 steps, without dropout; they are to lie within 1 %. ``--speed``: seconds of a step at the layer sizes of
the Transformer base (LSTM: 512), the two sides in turn. What both learn: `translation_training.py`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints.names import model_variables
from tf_bert.configs import Seq2SeqConfig, TransformerConfig
from tf_bert.data.translation.input import Batching, find_translation_records, train_dataset
from tf_bert.tokenization.subwords import load_subwords
from tf_bert.training import translation
from tf_bert.training.options import TranslationOptions

TWIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain_translation.py")
KEEP = ("num_hidden_layers", "num_attention_heads", "layer_norm_epsilon", "hidden_dropout_prob", "hidden_size")


class Losses(keras.callbacks.Callback):
    """The loss and the seconds of each step."""

    def __init__(self):
        super().__init__()
        self.losses, self.times, self.cpu = [], [], []

    def on_train_begin(self, logs=None):
        self.last, self.last_cpu = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, batch, logs=None):
        now, now_cpu = time.perf_counter(), time.process_time()
        self.losses.append(float(logs["loss"]))
        self.times.append(now - self.last)
        self.cpu.append(now_cpu - self.last_cpu)
        self.model.reset_metrics()
        self.last, self.last_cpu = time.perf_counter(), time.process_time()


def make_config(arguments, vocab_size, source_size):
    options = {"hidden_dropout_prob": arguments.dropout, "label_smoothing": 0.1, "source_vocab_size": source_size}
    if arguments.model == "transformer":
        sizes = {} if arguments.speed else {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        return TransformerConfig(vocab_size, **sizes, **options, intermediate_size=2048 if arguments.speed else 512)
    sizes = (512, 512) if arguments.speed else (64, 128)
    return Seq2SeqConfig(vocab_size, **options, embedding_size=sizes[0], hidden_size=sizes[1])


def ours(model, batches, steps):
    def endless():
        while True:
            for source, target in batches:
                yield {"source_ids": source, "target_ids": target}

    spec = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(endless, output_signature={"source_ids": spec, "target_ids": spec})
    losses = Losses()
    model.fit(dataset.prefetch(4), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[losses])
    return {"losses": losses.losses, "times": losses.times, "cpu": losses.cpu}


def twin(folder, arguments):
    subprocess.run([arguments.peer_python, TWIN, folder], check=True)
    with open(f"{folder}/result.json", encoding="utf-8") as file:
        return json.load(file)


def write_job(folder, model, arguments, options, batches, steps, save_every=0):
    """What `plain_translation.py` reads."""
    config, schedule = model.config.to_dict(), translation.make_schedule(options)
    job = {
        "model": arguments.model,
        "config": {name: config[name] for name in KEEP if name in config},
        "label_smoothing": model.config.label_smoothing,
        "rates": [float(schedule(step)) for step in range(steps)],
        "save_every": save_every,
        "batches": len(batches),
        "threads": arguments.threads,
    }
    with open(f"{folder}/job.json", "w", encoding="utf-8") as file:
        json.dump(job, file)
    np.savez(f"{folder}/weights.npz", **{name: value.numpy() for name, value in model_variables(model).items()})
    arrays = {f"{side}_{i}": pair[j] for i, pair in enumerate(batches) for j, side in enumerate(("source", "target"))}
    np.savez(f"{folder}/batches.npz", **arrays)


def numbers(batches, count):
    """Source and target of the first batches as arrays."""
    return [(batch["source_ids"].numpy(), batch["target_ids"].numpy()) for batch in batches.take(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", required=True, help="an interpreter with torch")
    parser.add_argument("--model", choices=["transformer", "seq2seq"], default="transformer")
    parser.add_argument("--data_dir")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--batch_tokens", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    steps = 6 if arguments.speed else arguments.steps
    options = TranslationOptions(learning_rate=arguments.rate, num_warmup_steps=100, xla=arguments.xla)
    source_size = None
    if arguments.speed:
        shape, vocab_size = (16, 32), 8000
        draw = np.random.default_rng(0)
        batches = [tuple(draw.integers(4, vocab_size, (2, *shape)).astype("int32"))]
    else:
        records = find_translation_records(f"{arguments.data_dir}/train-*.tfrecord")
        tokenizers = [load_subwords(path) for path in records.vocab_files()]
        vocab_size = tokenizers[1].vocab_size
        if records.sidecar["source_vocab_sha256"] != records.sidecar["target_vocab_sha256"]:
            source_size = tokenizers[0].vocab_size
        batching = Batching(arguments.batch_tokens, pad_to_bucket=arguments.xla)
        batches = numbers(train_dataset(records, batching, seed=0), steps)

    model = translation.Translation(make_config(arguments, vocab_size, source_size), options=options).build()
    print(f"{arguments.model}, {model.count_params():,} parameters, dropout {arguments.dropout}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write_job(folder, model, arguments, options, batches, steps)
        sides = {"ours": [], "PyTorch": []}
        for _ in range(arguments.rounds if arguments.speed else 1):
            mine, theirs = ours(model, batches, steps), twin(folder, arguments)
            sides["ours"].append(mine)
            sides["PyTorch"].append(theirs)
    medians = {}
    for name, results in sides.items():
        wall, cpu = ([t for result in results for t in result[key][2:]] for key in ("times", "cpu"))
        medians[name] = statistics.median(wall), statistics.median(cpu)
        shown = f"{medians[name][0]:.3f} s, CPU {medians[name][1]:.3f} s (medians)"
        print(f"{name:8} step: {shown}, fastest {min(wall):.3f} s")
    ratios = [first / second for first, second in zip(medians["ours"], medians["PyTorch"], strict=True)]
    print(f"ratio {ratios[0]:.2f}, of CPU time {ratios[1]:.2f}")
    if not arguments.speed:
        first, second = np.array(mine["losses"]), np.array(theirs["losses"])
        for step in sorted({0, len(first) // 20, len(first) // 2, len(first) - 1}):
            print(f"step {step + 1}: loss {first[step]:.6f} and {second[step]:.6f}")
        print(f"largest difference of a step: {np.max(np.abs(first / second - 1)):.5%}")


if __name__ == "__main__":
    main()
