"""Training on sentences of mixed length: batches of like lengths against batches padded to one length.

Lengths are drawn with a mean of about 30 of 128 pieces. A pass over the data with --group_by_length is measured by some
of its batches, evenly spread over their lengths; a padded batch is like any other. Both in one process, in turn.
With --data, also what a small published model learns either way: intents, three seeds.

Run: python benchmarks/group_by_length.py [--layers=12] [--hidden=768] [--batches=5] [--data=../shared/data]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "benchmarks")]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tf_bert import BertClassifier, BertConfig, create_optimizer  # noqa: E402
from tf_bert.training.execution import StepFunction  # noqa: E402
from tf_bert.training.finetuning import shuffled_batches  # noqa: E402

LENGTH, BATCH, EXAMPLES = 128, 32, 3200


def columns() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    lengths = np.clip(random.gamma(3.0, 10.0, EXAMPLES).round(), 5, LENGTH).astype(int)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    ids = random.integers(1000, 30000, mask.shape).astype(np.int32) * mask
    labels = random.integers(0, 2, EXAMPLES).astype(np.int32)
    print(f"{EXAMPLES} sentences, mean length {lengths.mean():.1f} of {LENGTH}")
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * mask, "label_ids": labels}


def batches_of_a_pass(data, **options) -> list[dict[str, tf.Tensor]]:
    return list(shuffled_batches(data, BATCH, **options).take(EXAMPLES // BATCH))


def speed(options) -> None:
    config = BertConfig(
        30522,
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        type_vocab_size=2,
    )
    model = BertClassifier(config)
    model.compile(create_optimizer(2e-5, 1000))
    model.optimizer.build(model.trainable_variables)
    data = columns()
    grouped = sorted(batches_of_a_pass(data, group_by_length=True), key=lambda batch: batch["input_ids"].shape[1])
    padded = batches_of_a_pass(data, fixed_length=True)
    places = ((np.arange(options.batches) + 0.5) / options.batches * len(grouped)).astype(int)
    chosen = [grouped[place] for place in places]
    widths = [batch["input_ids"].shape[1] for batch in grouped]
    print(f"grouped batches are {np.mean(widths):.1f} wide in the mean; measured {[widths[p] for p in places]}")
    spec = {name: tf.TensorSpec([BATCH, None][: value.shape.rank], value.dtype) for name, value in padded[0].items()}
    step = tf.function(lambda batch: StepFunction(model, model.train_step).run(batch), [spec])

    def measure(batch) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        step(batch)["loss"].numpy()
        return time.perf_counter() - wall, time.process_time() - cpu

    measure(grouped[0])  # traced
    times = {"grouped": [], "padded": []}
    for number, batch in enumerate(chosen):
        times["grouped"].append(measure(batch))
        if number < options.padded:
            times["padded"].append(measure(padded[number]))
    for kind, name in enumerate(("wall", "CPU")):
        ours = statistics.mean(pair[kind] for pair in times["grouped"])
        theirs = statistics.median(pair[kind] for pair in times["padded"])
        print(f"{name:5} a step: grouped {ours:7.2f} s   padded {theirs:7.2f} s   {theirs / ours:.2f} times faster")


def metric(options) -> None:
    import finetuning

    model = os.path.join(options.data, "models", "bleurt-tiny")

    def accuracies(*more: str) -> list[float]:
        values = []
        for seed in (1, 2, 3):
            with tempfile.TemporaryDirectory() as folder:
                flags = finetuning.classification(options.data, "intent_snips_693.tsv", folder)
                flags += [f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json"]
                flags += [f"--init_checkpoint={model}/variables/variables", "--learning_rate=1e-3", *more]
                flags += ["--num_train_epochs=4", f"--seed={seed}", f"--output_dir={folder}/run"]
                finetuning.run(finetuning.run_classifier, *flags)
                values.append(100 * finetuning.figure(f"{folder}/run", "eval_accuracy"))
        return values

    for name, more in (("grouped", ["--group_by_length"]), ("in random order", [])):
        values = accuracies(*more)
        shown = " ".join(f"{value:.1f}" for value in values)
        print(f"intents, {name:16} accuracy {statistics.mean(values):.1f} ({shown})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--batches", type=int, default=5, help="grouped batches that are measured")
    parser.add_argument("--padded", type=int, default=2, help="padded batches that are measured")
    parser.add_argument("--data", help="folder of models/bleurt-tiny and starter/; without it, speed alone")
    options = parser.parse_args()
    if options.layers:
        speed(options)
    if options.data:
        metric(options)


if __name__ == "__main__":
    main()
