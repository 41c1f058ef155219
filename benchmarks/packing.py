"""Pre-training on packed rows of 512 tokens against padded ones: real tokens per second of whole training steps.

The text is prose cut into short documents, so that an example has some 180 pieces. The model has BERT-Base's
proportions and fewer, narrower layers. The rounds alternate between the two kinds of rows, so that a loaded machine
disturbs both alike. Reported are medians by wall and by CPU seconds.

Run: python benchmarks/packing.py [--rounds=7] [--layers=4] [--hidden=256] [--rows=8]
"""

import argparse
import contextlib
import io
import os
import random
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf
from data_creation import VOCAB, read_documents

from tf_bert import BertConfig, BertForPreTraining
from tf_bert.commands import create_pretraining_data
from tf_bert.data.pretraining.input import find_records, train_dataset
from tf_bert.trainer.optimization import create_optimizer

LENGTH, PREDICTIONS = 512, 77


def make_records(folder: str) -> dict[str, str]:
    """The same examples, padded and packed."""
    rng = random.Random(0)
    sentences = [sentence for document in read_documents()[:120] for sentence in document]
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
        while sentences:
            n = rng.randint(4, 15)
            file.write("\n".join(sentences[:n]) + "\n\n")
            del sentences[:n]
    paths = {}
    for name, flags in (("padded", []), ("packed", [f"--packed_length={LENGTH}"])):
        paths[name] = os.path.join(folder, name)
        command = [f"--input_file={folder}/text.txt", f"--vocab_file={VOCAB}", f"--output_file={paths[name]}", *flags]
        sizes = [f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}", "--dupe_factor=2"]
        with contextlib.redirect_stdout(io.StringIO()):
            if create_pretraining_data.main([*command, *sizes]):
                raise SystemExit("no records could be made")
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 7), ("layers", 4), ("hidden", 256), ("rows", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    batches, tokens = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in make_records(folder).items():
            found = find_records(path)
            batches[name] = list(train_dataset(found, arguments.rows).take(arguments.rounds + 1))
            everything = train_dataset(found, sum(found.counts())).take(1)
            total = sum(int(tf.reduce_sum(batch["input_mask"])) for batch in everything)
            if name == "padded":
                examples = sum(found.counts())
                print(f"{examples:,} examples of {total / examples:.0f} tokens on average")
            filled = total / sum(found.counts()) / LENGTH
            print(f"{name}: {sum(found.counts()):,} rows of {LENGTH}, {filled:.1%} of their positions are tokens")
    config = BertConfig(
        vocab_size=30522,
        hidden_size=arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=max(1, arguments.hidden // 64),
        intermediate_size=4 * arguments.hidden,
    )
    models = {}
    for name in batches:
        models[name] = BertForPreTraining(config)
        models[name].compile(create_optimizer(1e-4, 1000, 100))
        models[name].train_on_batch(batches[name][0])  # compiles
    rates = {name: [] for name in batches}
    for turn in range(1, arguments.rounds + 1):
        for name, model in models.items():
            batch = batches[name][turn]
            tokens = int(tf.reduce_sum(batch["input_mask"]))
            wall, cpu = time.perf_counter(), time.process_time()
            model.train_on_batch(batch)
            rates[name].append((tokens / (time.perf_counter() - wall), tokens / (time.process_time() - cpu)))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in rates.items()}
    for name, (wall, cpu) in medians.items():
        print(f"{name}: {wall:,.0f} real tokens a second, {cpu:,.0f} a CPU second")
    ratio = np.array(medians["packed"]) / np.array(medians["padded"])
    print(f"packed rows train {ratio[0]:.2f} times as fast by wall time, {ratio[1]:.2f} by CPU time")


if __name__ == "__main__":
    main()
