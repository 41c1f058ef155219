"""Training on sentences of mixed length: batches of like lengths against batches padded to one length.

Lengths are drawn with a mean of about 30 of 128 pieces. A pass over the data with --group_by_length is measured by some
of its batches, evenly spread over their lengths; a padded batch is like any other. Both in one process, in turn, for
some rounds; of each batch the median counts. With --data, also what a small published model learns either way (intents,
three seeds) and the share of its batches that was padding; --layers=0 leaves the times out.

Run: python benchmarks/group_by_length.py [--layers=12] [--hidden=768] [--rounds=3] [--data=../shared/data]
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

from tf_bert.memory import keep_freed_memory  # noqa: E402

keep_freed_memory()  # as the training commands do

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tf_bert import BertClassifier, BertConfig, create_optimizer  # noqa: E402
from tf_bert.data.finetuning.batches import shuffled_batches  # noqa: E402
from tf_bert.data.tfrecord.files import decode_example, read_records  # noqa: E402
from tf_bert.trainer.execution import StepFunction  # noqa: E402

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
    model.trimmed = lambda inputs: inputs  # a padded batch is to stay what it is; a grouped one has no column too many
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
    times = {"grouped": [[] for _ in chosen], "padded": [[] for _ in range(options.padded)]}
    for _ in range(options.rounds):
        for number, batch in enumerate(chosen):
            times["grouped"][number].append(measure(batch))
            if number < options.padded:
                times["padded"][number].append(measure(padded[number]))
    for kind, name in enumerate(("wall", "CPU")):
        ours, theirs = (
            statistics.mean(statistics.median(pair[kind] for pair in of_batch) for of_batch in times[side])
            for side in ("grouped", "padded")
        )
        print(f"{name:5} a step: grouped {ours:7.2f} s   padded {theirs:7.2f} s   {theirs / ours:.2f} times faster")


def metric(options) -> None:
    import finetuning

    with tempfile.TemporaryDirectory() as model:
        finetuning.prune(options.data, model)
        for name, more in (("grouped", ["--group_by_length"]), ("in random order", [])):
            values = []
            for seed in (1, 2, 3):
                with tempfile.TemporaryDirectory() as folder:
                    flags = [f"--init_checkpoint={model}", *more]
                    values.append(finetuning.intents(options.data, flags, folder, seed))
                    padding = share_of_padding(f"{folder}/run/train.tf_record", bool(more))
            shown = " ".join(f"{value:.1f}" for value in values)
            mean = statistics.mean(values)
            print(f"intents, {name:16} accuracy {mean:.1f} ({shown}), padding {padding:.0%}", flush=True)


def share_of_padding(records: str, group_by_length: bool) -> float:
    """The share of ten passes' batches that is padding."""
    mask = np.array([decode_example(record)["input_mask"] for record in read_records(records)], np.int32)
    batches = shuffled_batches({"input_mask": mask}, BATCH, group_by_length=group_by_length)
    pieces = [(tf.size(b["input_mask"]), tf.reduce_sum(b["input_mask"])) for b in batches.take(10 * len(mask) // BATCH)]
    return 1 - float(sum(real for _, real in pieces) / sum(size for size, _ in pieces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--batches", type=int, default=5, help="grouped batches that are measured")
    parser.add_argument("--padded", type=int, default=2, help="padded batches that are measured")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--data", help="folder of models/bleurt-tiny and starter/; without it, speed alone")
    options = parser.parse_args()
    if options.layers:
        speed(options)
    if options.data:
        metric(options)


if __name__ == "__main__":
    main()
