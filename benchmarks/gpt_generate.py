"""Greedy decoding of 64 tokens after 32, GPT-2 small (random weights), against Hugging Face on PyTorch and keras-hub.

Each side is a process of its own, with its own interpreter; they take turns, so that a loaded machine disturbs all
alike. Hugging Face has our weights, and its tokens are compared with ours. Reported are the shortest wall and CPU time
of some rounds, and the median of the ratios of wall times within a round. On a loaded machine PyTorch's threads wait
for each other and lose far more than the others do: there take --threads=1 and compare CPU times.

Run, with interpreters that have torch and transformers, and keras-hub:
    python benchmarks/gpt_generate.py --torch=TORCH/bin/python --keras_hub=HUB/bin/python [--rounds=5] [--threads=2]
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
PROMPT, NEW = 32, 64


def prompts(batch: int):
    """The same for every side."""
    import numpy as np

    return np.random.default_rng(batch).integers(0, 50000, (batch, PROMPT)).astype("int32")


def ours(folder: str, jit_compile: bool):
    sys.path.insert(0, ROOT)
    from tf_bert.decoding.constraints import Constraints
    from tf_bert.models.gpt import GPT

    model = GPT.from_checkpoint(folder)
    never_ends = Constraints(min_length=NEW + 1)

    def run(ids):
        results = model.generate(ids, max_length=NEW, constraints=never_ends, jit_compile=jit_compile)
        return results["tokens"][:, 0].tolist()

    return run


def hugging_face(folder: str):
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 50256}

    def run(ids):
        ids = torch.from_numpy(ids.astype("int64"))
        with torch.inference_mode():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return output[:, PROMPT:].tolist()

    return run


def keras_hub(jit_compile: bool):
    import keras_hub as hub
    import numpy as np

    backbone = hub.models.GPT2Backbone(50257, 12, 12, 768, 3072, dropout=0.0, max_sequence_length=1024)
    model = hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy", jit_compile=jit_compile)

    def run(ids):
        room = np.zeros((len(ids), NEW), "int32")
        mask = np.concatenate([np.ones_like(ids), room], axis=1)
        inputs = {"token_ids": np.concatenate([ids, room], axis=1), "padding_mask": mask}
        output = model.generate(inputs, stop_token_ids=None)
        return np.asarray(output["token_ids"])[:, PROMPT:].tolist()

    return run


SIDES = {
    "tf_bert": lambda folder: ours(folder, False),
    "tf_bert XLA": lambda folder: ours(folder, True),
    "Hugging Face": hugging_face,
    "keras-hub": lambda folder: keras_hub(False),
    "keras-hub XLA": lambda folder: keras_hub(True),
}


def serve(side: str, folder: str, threads: int) -> None:
    """Runs once for each line of standard input, a batch size, and answers with wall and CPU seconds and tokens."""
    if side == "Hugging Face":
        import torch

        torch.set_num_threads(threads)
    else:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    run = SIDES[side](folder)
    print("ready", flush=True)
    for line in sys.stdin:
        ids = prompts(int(line))
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = run(ids)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print("answer " + json.dumps([wall, cpu, tokens]), flush=True)


class Side:
    """The process of one side."""

    def __init__(self, name: str, interpreter: str, folder: str, threads: int):
        command = [interpreter, os.path.abspath(__file__), f"--serve={name}", f"--folder={folder}"]
        command.append(f"--threads={threads}")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._read("ready")

    def _read(self, start: str) -> str:
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start)
        raise RuntimeError(f"{self.process.args} ended with status {self.process.wait()}; run it to see why")

    def ask(self, batch: int) -> tuple[float, float, list[list[int]]]:
        """Wall and CPU seconds and tokens of one run."""
        self.process.stdin.write(f"{batch}\n")
        self.process.stdin.flush()
        return json.loads(self._read("answer "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="interpreter with torch and transformers")
    parser.add_argument("--keras_hub", help="interpreter with keras-hub and TensorFlow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES), help="which, in this order")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.threads)
        return
    sys.path.insert(0, ROOT)
    import keras

    from tf_bert.configs import GPTConfig
    from tf_bert.models.gpt import GPT

    keras.utils.set_random_seed(0)
    interpreters = {"tf": sys.executable, "Hu": options.torch, "ke": options.keras_hub}
    with tempfile.TemporaryDirectory() as folder:
        GPT(GPTConfig.gpt2()).save_checkpoint(folder)
        keras.backend.clear_session()
        chosen = [name for name in options.sides.split(",") if interpreters[name[:2]]]
        sides = {name: Side(name, interpreters[name[:2]], folder, options.threads) for name in chosen}
        for batch in map(int, options.batches.split(",")):
            tokens = {name: side.ask(batch)[2] for name, side in sides.items()}  # the first run compiles
            rounds = [{name: side.ask(batch)[:2] for name, side in sides.items()} for _ in range(options.rounds)]
            print(f"batch {batch}: {NEW} tokens after {PROMPT}, {options.rounds} rounds, {options.threads} threads")
            for name in sides:
                best, cpu = (min(times[name][kind] for times in rounds) for kind in (0, 1))
                line = f"  {name:14}{best:8.2f} s {batch * NEW / best:8.1f} tokens/s {cpu:8.2f} CPU s"
                for ours in ("tf_bert", "tf_bert XLA"):
                    if ours in sides and not name.startswith("tf"):
                        ratio = statistics.median(times[name][0] / times[ours][0] for times in rounds)
                        line += f"   {ours} {ratio:.2f} times as fast"
                if name == "Hugging Face" and "tf_bert" in sides:
                    same = sum(a == b for a, b in zip(tokens[name], tokens["tf_bert"], strict=True))
                    line += f"   the same tokens in {same} of {batch} rows"
                print(line, flush=True)


if __name__ == "__main__":
    main()
