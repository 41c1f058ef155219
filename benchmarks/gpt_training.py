"""How GPT learns, and how fast, against the same model in plain PyTorch (nanoGPT's architecture), on this machine.

    python benchmarks/gpt_training.py --peer_python PATH [--steps 200] [--time_steps 6]
        [--xla] [--small] [--threads N]

PATH is a Python that can ``import torch`` (2.13 was compared). A character model reads a book of ../shared/data (or
TF_BERT_DATA). Both sides have the same initial weights, batches, Adam and clipping, and GELU in its tanh form.

1. Loss curve: ``--steps`` updates without dropout; prints the largest relative difference.
2. Step time: 6 layers of width 384, context 256, batch 12 (nanoGPT's on a CPU), ``--time_steps`` updates of each side
   in turn, without and with dropout 0.1; prints the median of the ratios. ``--small`` takes the model of the curve.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DATA = Path(os.environ.get("TF_BERT_DATA", ROOT.parent / "shared" / "data"))
TRAINING = {"learning_rate": 1e-3, "weight_decay": 0.1, "beta_2": 0.95, "clip": 1.0}

# Both sides run this: batch number i of a seed is the same everywhere.
BATCHES = """
import numpy as np
def batch(data, i, size, context, seed=1):
    starts = np.random.default_rng([seed, i]).integers(0, len(data) - context - 1, size)
    rows = np.stack([data[start : start + context + 1] for start in starts]).astype(np.int32)
    return rows[:, :-1], rows[:, 1:]
"""
exec(BATCHES)

# The model and its AdamW from a `request`; benchmarks/gpt_book.py has the same.
PEER_MODEL = r"""
import torch
from torch import nn
from torch.nn import functional as F

c, t = request["config"], request["training"]
torch.set_num_threads(request["threads"])
weights = {k: torch.tensor(v) for k, v in np.load(request["weights"]).items()}
H, N, drop = c["hidden_size"], c["num_attention_heads"], c["hidden_dropout_prob"]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(H), nn.LayerNorm(H)
        self.attn, self.proj = nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.fc, self.out = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)
        self.drop = nn.Dropout(drop)
    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (y.view(B, T, N, H // N).transpose(1, 2) for y in self.attn(self.ln_1(x)).split(H, dim=2))
        p = drop if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(B, T, H)))
        return x + self.drop(self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(c["vocab_size"], H)
        self.wpe = nn.Embedding(c["max_position_embeddings"], H)
        self.drop = nn.Dropout(drop)
        self.h = nn.ModuleList(Block() for _ in range(c["num_hidden_layers"]))
        self.ln_f = nn.LayerNorm(H)
    def forward(self, ids, labels):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))

model = GPT()
model.load_state_dict(weights)
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": t["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=t["learning_rate"], betas=(0.9, t["beta_2"]), eps=1e-8)
"""

PEER = (
    BATCHES
    + """
import json, sys, time
request = json.loads(sys.stdin.readline())
train = np.load(request["train"])
"""
    + PEER_MODEL
    + r"""
print("ready", flush=True)
done = 0
for line in sys.stdin:
    losses = []
    start = time.perf_counter()
    for _ in range(json.loads(line)["steps"]):
        x, y = (torch.tensor(a, dtype=torch.long) for a in batch(train, done, c["batch"], c["context"]))
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), t["clip"])
        optimizer.step()
        losses.append(loss.item())
        done += 1
    print(json.dumps([losses, time.perf_counter() - start]), flush=True)
"""
)


class Ours:
    """Our GPT, trained batch by batch through the model's own training step."""

    def __init__(self, config, texts, xla):
        import keras

        from tf_bert.configs import GPTConfig
        from tf_bert.models.gpt import GPT
        from tf_bert.trainer.optimization import AdamWeightDecay

        keras.utils.set_random_seed(1)
        names = set(GPTConfig.__dataclass_fields__)
        self.config, self.texts, self.done = config, texts, 0
        self.model = GPT(GPTConfig(**{k: v for k, v in config.items() if k in names}, pre_norm=True))
        optimizer = AdamWeightDecay(
            TRAINING["learning_rate"],
            TRAINING["weight_decay"],
            beta_2=TRAINING["beta_2"],
            epsilon=1e-8,
            exclude_from_weight_decay=("LayerNorm|bias",),
            bias_correction=True,
            global_clipnorm=TRAINING["clip"],
        )
        self.model.compile(optimizer, jit_compile=xla)

    def _batch(self, text, i, seed):
        x, y = batch(text, i, self.config["batch"], self.config["context"], seed)  # noqa: F821 (from BATCHES)
        return {"input_ids": x, "label_ids": y}

    def train(self, steps):
        losses, start = [], time.perf_counter()
        for _ in range(steps):
            self.model.reset_metrics()
            logs = self.model.train_on_batch(self._batch(self.texts[0], self.done, 1), return_dict=True)
            losses.append(float(logs["loss"]))
            self.done += 1
        return losses, time.perf_counter() - start


def twin_weights(model):
    """The weights of a GPT under the twin's names."""
    of = {w.path.removeprefix("gpt/"): np.asarray(w) for w in model.weights if "seed" not in w.path}
    named = {
        "wte.weight": of["input_ids/word_embeddings"],
        "wpe.weight": of["input_ids/position_embeddings"],
        "ln_f.weight": of["output/LayerNorm/gamma"],
        "ln_f.bias": of["output/LayerNorm/beta"],
    }
    for i in range(model.config.num_hidden_layers):
        at = f"layer_{i}/"
        qkv = [f"{at}attention/self/{name}/" for name in ("query", "key", "value")]
        named[f"h.{i}.attn.weight"] = np.concatenate([of[f"{name}kernel"] for name in qkv], 1).T
        named[f"h.{i}.attn.bias"] = np.concatenate([of[f"{name}bias"] for name in qkv])
        dense = {"proj": "attention/output/dense", "fc": "intermediate/dense", "out": "output/dense"}
        for there, here in dense.items():
            named[f"h.{i}.{there}.weight"] = of[f"{at}{here}/kernel"].T
            named[f"h.{i}.{there}.bias"] = of[f"{at}{here}/bias"]
        for there, here in {"ln_1": "attention/output/LayerNorm", "ln_2": "output/LayerNorm"}.items():
            named[f"h.{i}.{there}.weight"] = of[f"{at}{here}/gamma"]
            named[f"h.{i}.{there}.bias"] = of[f"{at}{here}/beta"]
    return named


class Twin:
    """The PyTorch model in a process of its own, which waits while ours works."""

    def __init__(self, python, ours, folder, threads):
        paths = {name: os.path.join(folder, f"{name}.npy") for name in ("train", "held_out")}
        for path, text in zip(paths.values(), ours.texts, strict=True):
            np.save(path, text)
        weights = os.path.join(folder, "weights.npz")
        np.savez(weights, **twin_weights(ours.model))
        self.process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        request = {"config": ours.config, "training": TRAINING, "threads": threads, "weights": weights, **paths}
        self._say(request)
        assert self.process.stdout.readline().strip() == "ready"

    def _say(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def ask(self, **order):
        self._say(order)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def sizes(layers, width, context, batch_size, dropout=0.0):
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout_prob"), dropout)
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // (64 if width >= 256 else 32),
        "intermediate_size": 4 * width,
        "max_position_embeddings": context,
        "context": context,
        "batch": batch_size,
    } | rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer_python", default=os.environ.get("PEER_PYTHON"), required="PEER_PYTHON" not in os.environ
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--time_steps", type=int, default=6)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side")
    flags = parser.parse_args()
    from tf_bert.memory import keep_freed_memory

    keep_freed_memory()  # as the training commands do
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(flags.threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.threads)
    with gzip.open(DATA / "corpora" / "austen.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read()
    characters, ids = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    texts = [ids[: len(ids) * 9 // 10].astype(np.uint16), ids[len(ids) * 9 // 10 :].astype(np.uint16)]
    small = sizes(4, 128, 64, 12) | {"vocab_size": len(characters)}

    with tempfile.TemporaryDirectory() as folder:
        if flags.steps:
            ours = Ours(small, texts, flags.xla)
            twin = Twin(flags.peer_python, ours, folder, flags.threads)
            mine, _ = ours.train(flags.steps)
            other, _ = twin.ask(do="train", steps=flags.steps)
            difference = np.max(np.abs(np.array(mine) / np.array(other) - 1))
            print(f"loss after {flags.steps} steps: {mine[-1]:.4f}, PyTorch {other[-1]:.4f}; ", end="")
            print(f"largest relative difference on the way {difference:.3%}", flush=True)
            twin.close()
        for dropout in (0.0, 0.1) if flags.time_steps else ():
            config = sizes(6, 384, 256, 12, dropout) | {"vocab_size": len(characters)}
            if flags.small:
                config = sizes(4, 128, 64, 12, dropout) | {"vocab_size": len(characters)}
            ours = Ours(config, texts, flags.xla)
            twin = Twin(flags.peer_python, ours, folder, flags.threads)
            ours.train(2), twin.ask(do="train", steps=2)
            times = [(ours.train(1)[1], twin.ask(do="train", steps=1)[1]) for _ in range(flags.time_steps)]
            mine, other = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(a / b for a, b in times)
            print(f"step with dropout {dropout}: {mine:.3f} s, PyTorch {other:.3f} s: {ratio:.2f} times", flush=True)
            twin.close()


if __name__ == "__main__":
    main()
