"""A character model of a book: the commands of tf_bert against the same model in plain PyTorch, on this machine.

    python benchmarks/gpt_book.py --peer_python PATH --folder FOLDER [--steps 2000] [--small]
        [--side both|ours|twin|report]

PATH is a Python that can ``import torch`` (2.13 was compared). The text is ../shared/data/corpora/austen.txt.gz (or
below TF_BERT_DATA); its last twentieth is held out. FOLDER gets everything and is reused: what was stopped goes on.

``tf-bert train_bpe`` (single bytes), ``create_language_modeling_data`` and ``run_language_modeling`` train ours: 4
layers of width 256, blocks of 128, batches of 16; with ``--small`` width 128, blocks of 64, batches of 12. The twin
gets the batches that the command draws, the initial weights, the schedule (linear warm-up, half a cosine), AdamW and
clipping. There is no dropout. Prints the CPU minutes of each side and, for each step at which both were evaluated on
the held-out text, the bits per character of both.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
from gpt_training import DATA, PEER_MODEL, ROOT, twin_weights
from gpt_training import sizes as make_sizes

EVERY, WARMUP, SEED = 200, 100, 12345
TRAINING = {"learning_rate": 1e-3, "weight_decay": 0.1, "beta_2": 0.95, "clip": 1.0}
BYTES = {"vocab_size": 257, "end_id": 256}
LARGE, SMALL = make_sizes(4, 256, 128, 16) | BYTES, make_sizes(4, 128, 64, 12) | BYTES

PEER = (
    r"""
import json, math, os, sys
import numpy as np
request = json.loads(sys.argv[1])
"""
    + PEER_MODEL
    + r"""
train, held_out = np.load(request["train"], mmap_mode="r"), np.load(request["held_out"])
steps, warmup, every, state = request["steps"], request["warmup"], request["every"], request["state"]
done, losses = 0, []
if os.path.exists(state):
    saved = torch.load(state)
    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
    done, losses = saved["done"], saved["losses"]

def rate(step):
    if step < warmup:
        return t["learning_rate"] * step / warmup
    return t["learning_rate"] * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

def tensors(blocks):  # [B, S + 1]; -1 where a block has ended
    blocks = torch.tensor(np.asarray(blocks), dtype=torch.long)
    return blocks[:, :-1].clamp(min=0), blocks[:, 1:].where(blocks[:, 1:] >= 0, -100)

def bits():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(held_out), c["batch"]):
            x, y = tensors(held_out[i : i + c["batch"]])
            total += model(x, y).item() * (y >= 0).sum().item()
    return total / request["bytes"] / math.log(2)

while done < steps:
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate(done)
    loss = model(*tensors(train[done]))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), t["clip"])
    optimizer.step()
    losses.append(loss.item())
    done += 1
    if done % every == 0 or done == steps:
        mean = sum(losses[-every:]) / len(losses[-every:])
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done, "losses": losses}
        torch.save(saved, state + ".new")
        os.replace(state + ".new", state)
        print(json.dumps({"step": done, "loss": mean, "bits_per_byte": bits()}), flush=True)
"""
)


def prepare(folder: Path, sizes: dict, steps: int):
    """Text, vocabulary, records and initial weights, by our commands; the twin's batches and weights."""
    import gzip

    import keras

    from tf_bert.commands import create_language_modeling_data, train_bpe
    from tf_bert.configs import GPTConfig
    from tf_bert.data.language_modeling import input as blocks
    from tf_bert.models.gpt import GPT
    from tf_bert.training.recipe import set_seed

    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(DATA / "corpora" / "austen.txt.gz", "rt", encoding="ascii") as file:
        text = file.read()
    cut = text.index("\n\n", len(text) * 19 // 20)
    for name, part in {"train": text[:cut], "heldout": text[cut:]}.items():
        (folder / f"{name}.txt").write_text(part, encoding="utf-8")
    assert train_bpe.main([f"--input_file={folder}/train.txt", f"--output_dir={folder}/vocab", "--vocab_size=257"]) == 0
    for name in ("train", "heldout"):
        flags = [f"--input_file={folder}/{name}.txt", f"--output_file={folder}/{name}.tfrecord"]
        flags += [f"--vocab_dir={folder}/vocab", f"--block_size={sizes['context']}"]
        assert create_language_modeling_data.main(flags) == 0

    names = set(GPTConfig.__dataclass_fields__)
    config = GPTConfig(**{name: value for name, value in sizes.items() if name in names}, pre_norm=True)
    (folder / "config.json").write_text(config.to_json_string(), encoding="utf-8")
    keras.utils.set_random_seed(1)
    model = GPT(config)
    model.save_checkpoint(folder / "initial")
    np.savez(folder / "weights.npz", **twin_weights(model))

    set_seed(SEED)  # as the command does: the order depends on it

    def array(batch):
        real = np.asarray(batch["label_weights"]) > 0
        return np.concatenate([batch["input_ids"][:, :1], np.where(real, batch["label_ids"], -1)], 1).astype(np.int16)

    found = blocks.find_blocks(str(folder / "train.tfrecord"))
    drawn = blocks.train_dataset(found, sizes["batch"], seed=SEED, **BYTES).take(steps)
    np.save(folder / "train.npy", np.stack([array(batch) for batch in drawn]))
    found = blocks.find_blocks(str(folder / "heldout.tfrecord"))
    held_out = list(blocks.eval_dataset(found, sizes["batch"], **BYTES))
    np.save(folder / "heldout.npy", np.concatenate([array(batch) for batch in held_out]))
    num_bytes = int(sum(np.sum(batch["num_bytes"]) for batch in held_out))
    (folder / "sidecar.json").write_text(
        json.dumps({"steps": steps, "bytes": num_bytes, "sizes": sizes}), encoding="utf-8"
    )


def train_ours(folder: Path, sizes: dict, steps: int):
    flags = [
        f"--config_file={folder}/config.json",
        f"--input_file={folder}/train.tfrecord",
        f"--eval_input_file={folder}/heldout.tfrecord",
        f"--init_checkpoint={folder}/initial",
        f"--output_dir={folder}/ours",
        "--do_train",
        "--do_eval",
        f"--num_train_steps={steps}",
        f"--num_warmup_steps={WARMUP}",
        f"--train_batch_size={sizes['batch']}",
        f"--eval_batch_size={sizes['batch']}",
        f"--learning_rate={TRAINING['learning_rate']}",
        f"--weight_decay={TRAINING['weight_decay']}",
        f"--beta_2={TRAINING['beta_2']}",
        f"--clip_norm={TRAINING['clip']}",
        f"--seed={SEED}",
        f"--eval_every_steps={EVERY}",
        f"--log_steps={EVERY}",
        f"--save_checkpoints_steps={EVERY}",
        "--keep_checkpoint_max=1",
    ]
    subprocess.run([sys.executable, ROOT / "tools" / "run_language_modeling.py", *flags], check=True)


def train_twin(folder: Path, sizes: dict, steps: int, python: str):
    sidecar = json.loads((folder / "sidecar.json").read_text(encoding="utf-8"))
    paths = {"train": "train.npy", "held_out": "heldout.npy", "weights": "weights.npz", "state": "twin.pt"}
    request = {name: str(folder / path) for name, path in paths.items()}
    request |= {"config": sizes, "training": TRAINING, "threads": os.cpu_count(), "bytes": sidecar["bytes"]}
    request |= {"steps": steps, "warmup": WARMUP, "every": EVERY}
    with open(folder / "twin.jsonl", "a", encoding="utf-8") as log:
        subprocess.run([python, "-c", PEER, json.dumps(request)], stdout=log, check=True)


def report(folder: Path):
    def lines(name):
        path = folder / name
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    ours = lines("ours/training.jsonl")
    mine = {line["step"]: line["eval"]["bits_per_byte"] for line in ours if "eval" in line}
    losses = {line["step"]: line["loss"] for line in ours if "loss" in line}
    for line in lines("twin.jsonl"):
        step, other = line["step"], line["bits_per_byte"]
        if step in mine:
            print(f"step {step:,}: bits per held-out character {mine[step]:.4f}, PyTorch {other:.4f} ", end="")
            print(f"({mine[step] / other - 1:+.2%}); training loss {losses[step]:.4f}, {line['loss']:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", default=os.environ.get("PEER_PYTHON"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--side", choices=["both", "ours", "twin", "report"], default="both")
    flags = parser.parse_args()
    if flags.side in ("both", "twin") and not flags.peer_python:
        parser.error("--peer_python is needed for the twin")
    config, sidecar = SMALL if flags.small else LARGE, flags.folder / "sidecar.json"
    if not sidecar.exists():
        prepare(flags.folder, config, flags.steps)
    begun = json.loads(sidecar.read_text(encoding="utf-8"))
    if (begun["steps"], begun["sizes"]) != (flags.steps, config):
        parser.error(f"{flags.folder} was begun with other sizes, or other --steps: {begun['steps']}")
    for side in ("ours", "twin"):
        if flags.side in ("both", side):
            before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
            if side == "ours":
                train_ours(flags.folder, config, flags.steps)
            else:
                train_twin(flags.folder, config, flags.steps, flags.peer_python)
            minutes = (sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before) / 60
            print(f"{side}: {minutes:.1f} CPU minutes", flush=True)
    report(flags.folder)


if __name__ == "__main__":
    main()
