"""What the trainer adds to the bare work: replicas, micro-batches, metrics, checkpoints, and what precision does.

    replicas     a step of BERT (4 layers, width 512; batch 32, length 128) by hand, by ``fit`` on one device, in four
                 micro-batches, with recomputed activations, and on two logical replicas; the turns alternate. What
                 replicas, micro-batches and recomputation cost shows against ``fit`` on one device, what ``fit`` costs
                 against the step by hand.
    checkpoint   how long it takes to write a training checkpoint of BERT-Base with its moments (1.3 GB), and its
                 share of the default interval of 1,000 steps at --step_seconds each
    precision    the loss curve of a small real run (Python's own help texts) in float32, bfloat16 and float16, and in
                 float32 with another seed, which is the noise to compare with; and of float32 with XLA

Run: python benchmarks/training_overheads.py [replicas] [checkpoint] [precision] [--rounds=7] [--steps=400]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

BATCH, LENGTH, PREDICTIONS = 32, 128, 20
FIT = "fit, one device"


def make_batch():
    import numpy as np

    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(1000, 8000, (BATCH, LENGTH)).astype("int32"),
        "input_mask": np.ones((BATCH, LENGTH), "int32"),
        "segment_ids": np.zeros((BATCH, LENGTH), "int32"),
        "masked_lm_positions": np.sort(rng.integers(1, LENGTH, (BATCH, PREDICTIONS))).astype("int32"),
        "masked_lm_ids": rng.integers(1000, 8000, (BATCH, PREDICTIONS)).astype("int32"),
        "masked_lm_weights": np.ones((BATCH, PREDICTIONS), "float32"),
        "next_sentence_labels": rng.integers(0, 2, (BATCH, 1)).astype("int32"),
    }


def replicas(options) -> None:
    from tf_bert.memory import keep_freed_memory

    keep_freed_memory()  # as the training commands do
    import tensorflow as tf

    from tf_bert import BertConfig, BertForPreTraining
    from tf_bert.trainer.optimization import create_optimizer

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    config = BertConfig(
        8000, 512, 4, 8, 2048, type_vocab_size=2, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
    )
    batch = make_batch()

    def data():
        return tf.data.Dataset.from_tensor_slices(batch).batch(BATCH, drop_remainder=True).repeat()

    def fitted(strategy, **compile_options):
        with strategy.scope():
            model = BertForPreTraining(config)
            model.compile(create_optimizer(1e-4, 10_000, 100), **compile_options)
        model.fit(strategy.experimental_distribute_dataset(data()), steps_per_epoch=1, verbose=0)
        iterator = iter(strategy.experimental_distribute_dataset(data()))
        return lambda: float(model.train_function(iterator)["loss"])

    def by_hand():
        model, optimizer = BertForPreTraining(config), create_optimizer(1e-4, 10_000, 100)
        optimizer.build(model.trainable_variables)

        @tf.function
        def step(inputs):
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                losses, weights = model.per_example_losses(inputs, outputs), model.loss_weights(inputs)
                loss = tf.add_n(
                    [
                        tf.reduce_sum(losses[name] * tf.cast(weights[name], tf.float32))
                        / tf.reduce_sum(tf.cast(weights[name], tf.float32))
                        for name in model.loss_names
                    ]
                )
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        iterator = iter(data())
        return lambda: float(step(next(iterator)))

    one = tf.distribute.OneDeviceStrategy("CPU:0")
    makers = {
        "by hand": by_hand,
        FIT: lambda: fitted(one),
        "four micro-batches": lambda: fitted(one, gradient_accumulation_steps=4),
        "recompute": lambda: fitted(one, recompute=True),
        "two replicas": lambda: fitted(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])),
    }
    chosen = [FIT, *options.sides.split(",")] if options.sides else makers
    sides = {side: make() for side, make in makers.items() if side in chosen}
    seconds: dict[str, list] = {side: [] for side in sides}
    for turn in range(options.rounds + 1):
        for side, call in sides.items():
            wall, cpu_time = time.perf_counter(), time.process_time()
            call()
            if turn:
                seconds[side].append((time.perf_counter() - wall, time.process_time() - cpu_time))
    medians = {
        side: [statistics.median(column) for column in zip(*rows, strict=True)] for side, rows in seconds.items()
    }
    base = medians[FIT]
    print(f"{'':20}{'wall s':>8}{'CPU s':>8}{'wall':>8}{'CPU':>8}   against fit on one device")
    for side, (wall, cpu_time) in medians.items():
        print(f"{side:20}{wall:8.3f}{cpu_time:8.3f}{wall / base[0]:8.3f}{cpu_time / base[1]:8.3f}")


def checkpoint(options) -> None:
    from tf_bert import BertConfig, BertForPreTraining
    from tf_bert.trainer.optimization import create_optimizer
    from tf_bert.training.resume import RunState, save_run

    model = BertForPreTraining(BertConfig(30522, type_vocab_size=2))
    model.compile(create_optimizer(1e-4, 10_000, 100))
    model.optimizer.build(model.trainable_variables)
    seconds = []
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for step in range(3):
            start = time.perf_counter()
            save_run(model, folder, RunState(step, 0), 2)
            seconds.append(time.perf_counter() - start)
        size = max(
            sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if f"ckpt-{step}." in name)
            for step in (1, 2)
        )
    median = statistics.median(seconds)
    share = median / (1000 * options.step_seconds)
    print(
        f"a checkpoint of {size / 1e9:.2f} GB: {median:.1f} s; {share:.3%} of 1,000 steps of {options.step_seconds} s"
    )


def precision(options) -> None:
    with tempfile.TemporaryDirectory(dir=options.work) as work:

        def tool(name, *flags):
            command = [sys.executable, os.path.join(ROOT, "tools", f"{name}.py"), *flags]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")

        tool("prepare_corpus", "--builtin_corpus", "--output_file=text.txt", "--heldout_file=heldout.txt")
        tool("train_vocab", "--input_file=text.txt", "--output_file=vocab.txt", "--vocab_size=1500", "--num_unused=0")
        tool(
            "create_pretraining_data",
            *("--input_file=text.txt", "--output_file=data", "--vocab_file=vocab.txt", "--dupe_factor=1"),
            *("--max_seq_length=32", "--max_predictions_per_seq=5"),
        )
        config = {"vocab_size": 1500, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        config |= {"intermediate_size": 512, "max_position_embeddings": 32, "type_vocab_size": 2}
        with open(os.path.join(work, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**config, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}, file)
        runs = {
            "float32": (),
            "another seed": ("--seed=7",),
            "XLA": ("--xla",),
            "bfloat16": ("--precision=bfloat16",),
            "float16": ("--precision=float16",),
        }
        curves = {}
        for name, flags in runs.items():
            folder = name.replace(" ", "_")
            tool(
                "run_pretraining",
                *("--bert_config_file=config.json", "--input_file=data", f"--output_dir={folder}", "--do_train"),
                *("--max_seq_length=32", "--max_predictions_per_seq=5", f"--num_train_steps={options.steps}"),
                *(f"--num_warmup_steps={options.steps // 10}", "--learning_rate=1e-3", "--train_batch_size=32"),
                *(f"--log_steps={max(1, options.steps // 8)}", "--vocab_file=vocab.txt", *flags),
            )
            with open(os.path.join(work, folder, "training.jsonl"), encoding="utf-8") as file:
                curves[name] = {line["step"]: line["loss"] for line in map(json.loads, file) if "loss" in line}
        steps = list(curves["float32"])
        print(f"{'loss up to step':16}" + "".join(f"{step:8}" for step in steps))
        for name, curve in curves.items():
            print(f"{name:16}" + "".join(f"{curve[step]:8.3f}" for step in steps))


def main() -> None:
    parts = {"replicas": replicas, "checkpoint": checkpoint, "precision": precision}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="what to measure; all by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sides", help="of replicas, separated by commas, beside fit on one device; all by default")
    parser.add_argument("--steps", type=int, default=400, help="of each run of precision")
    parser.add_argument("--step_seconds", type=float, default=6.0, help="a step of BERT-Base, see training_step.py")
    parser.add_argument("--work", help="folder for files; a temporary one by default")
    options = parser.parse_args()
    for part in options.parts or parts:
        parts[part](options)


if __name__ == "__main__":
    main()
