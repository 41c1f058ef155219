"""Converting a BERT-Base-sized TensorFlow 1 checkpoint: seconds, and memory above the process with TensorFlow imported.

Each conversion runs in a process of its own, after the imports; beside it stands the time to read the same file once.
Memory is the peak of the resident set (VmHWM, reset before the conversion) minus what the imports took, in units of the
checkpoint's size.

Run:
    python benchmarks/checkpoints.py [--rounds=3] [--layers=12]
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
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TARGETS = {
    "model in memory": "",
    "huggingface folder": "out",
    "google, half": "out-half",
    ".weights.h5 file": "out.weights.h5",
    ".keras file": "out.keras",
}


def status(field: str) -> int:
    """A number of bytes from /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def measure(source: str, target: str) -> None:
    """Converts once and prints wall seconds, CPU seconds and peak bytes above the imports."""
    import keras  # noqa: F401
    import tensorflow as tf

    from tf_bert.models import (
        bert_tasks,  # noqa: F401
        convert,
        pretrained,
    )

    tf.zeros(1).numpy()  # starts the runtime
    base = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    wall, cpu = time.perf_counter(), time.process_time()
    if target:
        convert.convert(source, target, dtype="float16" if "half" in target else None, **_format(target))
    else:
        pretrained.load_model(source)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, status("VmHWM") - base]))


def _format(target: str) -> dict:
    return {"format": "google"} if "half" in target else {}


def write_checkpoint(folder: str, layers: int) -> int:
    """Writes a checkpoint of that many layers of BERT-Base's size; returns its bytes."""
    import numpy as np

    from tf_bert import BertConfig
    from tf_bert.checkpoints import google, names

    config = BertConfig(vocab_size=30522, num_hidden_layers=layers, type_vocab_size=2)
    sizes = {"V": 30522, "T": 2, "P": 512, "H": 768, "I": 3072, "N": 2}
    generator = np.random.default_rng(0)
    tensors = {}
    for row in [*names.BERT, *names.PRETRAINING_HEADS]:
        for i in range(layers if "{i}" in row.google else 1):
            name = row.google.replace("{i}", str(i))
            shape = [sizes[letter] for letter in _shape(name)]
            tensors[name] = generator.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
    google.write_tensors(os.path.join(folder, "bert_model.ckpt"), tensors)
    with open(os.path.join(folder, "bert_config.json"), "w") as file:
        file.write(config.to_json_string())
    return sum(value.nbytes for value in tensors.values())


def _shape(name: str) -> str:
    tables = {"word_embeddings": "VH", "token_type_embeddings": "TH", "position_embeddings": "PH"}
    last = name.rsplit("/", 1)[-1]
    if last in tables:
        return tables[last]
    if name.startswith("cls/") and last.startswith("output_"):
        return {"output_weights": "NH"}.get(last, "V" if "predictions" in name else "N")
    inner = "intermediate" in name
    if last == "kernel":
        return "HI" if inner else "IH" if name.endswith("layer_output/dense/kernel") or _is_output(name) else "HH"
    return "I" if inner else "H"


def _is_output(name: str) -> bool:
    return "/output/dense/" in name and "attention" not in name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        size = write_checkpoint(source, arguments.layers)
        print(f"checkpoint: {size / 1e6:.0f} MB, {arguments.layers} layers")
        print(f"{'to':<20} {'wall s':>7} {'CPU s':>7} {'reading s':>10} {'memory / file':>14}")
        for name, target in TARGETS.items():
            rounds = []
            for number in range(arguments.rounds):
                path = target and os.path.join(folder, str(number), target)
                command = [sys.executable, os.path.abspath(__file__), "--measure", source, path]
                started = time.perf_counter()
                with open(os.path.join(source, "bert_model.ckpt.data-00000-of-00001"), "rb") as file:
                    while file.read(1 << 20):
                        pass
                reading = time.perf_counter() - started
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                rounds.append([*json.loads(done.stdout.splitlines()[-1]), reading])
            wall, cpu, memory, reading = (statistics.median(values) for values in zip(*rounds, strict=True))
            print(f"{name:<20} {wall:7.1f} {cpu:7.1f} {reading:10.2f} {memory / size:14.2f}", flush=True)


if __name__ == "__main__":
    main()
