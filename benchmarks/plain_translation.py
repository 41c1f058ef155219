"""The Transformer and the LSTM with attention of `translation.py` in plain PyTorch; run by the benchmarks.

    python benchmarks/plain_translation.py FOLDER

FOLDER holds ``job.json`` (sizes, what to do) and ``weights.npz`` (initial weights under tf_bert's names, kernels
[in, out]); ``batches.npz`` has the batches. What was measured goes to ``result.json``, trained weights to
``weights-STEP.npz`` every so many steps, if asked for.
"""

import itertools
import json
import math
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Weights:
    """Initial weights under tf_bert's names, which remembers who took them: it writes the trained ones back."""

    def __init__(self, path):
        self.arrays, self.taken = dict(np.load(path)), {}

    def parameter(self, name, transposed=False):
        value = torch.tensor(self.arrays[name])
        parameter = nn.Parameter(value.T.contiguous() if transposed else value)
        self.taken[name] = parameter, transposed
        return parameter

    def save(self, path):
        trained = {name: (p.T if transposed else p).detach().numpy() for name, (p, transposed) in self.taken.items()}
        np.savez(path, **trained)


def linear(weights, name, bias=True):
    kernel = weights.parameter(f"{name}/kernel", transposed=True)
    layer = nn.Linear(*kernel.shape[::-1], bias=bias)
    layer.weight = kernel
    if bias:
        layer.bias = weights.parameter(f"{name}/bias")
    return layer


def norm(weights, name, epsilon):
    gamma = weights.parameter(f"{name}/LayerNorm/gamma")
    layer = nn.LayerNorm(gamma.shape[0], eps=epsilon)
    layer.weight, layer.bias = gamma, weights.parameter(f"{name}/LayerNorm/beta")
    return layer


def tables(weights):
    """The embeddings of target and source, which may be one."""
    target, name = weights.parameter("target_ids/word_embeddings"), "source_ids/word_embeddings"
    return target, weights.parameter(name) if name in weights.arrays else target


class Attention(nn.Module):
    def __init__(self, weights, name, heads, kind="self"):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (
            linear(weights, f"{name}/{kind}/{part}") for part in ("query", "key", "value")
        )
        self.dense = linear(weights, f"{name}/output/dense")

    def forward(self, x, memory, mask=None, causal=False):
        def split(y):
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.dense(context.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, weights, name, config, decoder):
        super().__init__()
        heads, epsilon, self.decoder = config["num_attention_heads"], config["layer_norm_epsilon"], decoder
        self.attention = Attention(weights, f"{name}/attention", heads)
        self.norms = nn.ModuleList([norm(weights, f"{name}/attention/output", epsilon)])
        if decoder:
            self.cross = Attention(weights, f"{name}/cross_attention", heads, "cross")
            self.norms.append(norm(weights, f"{name}/cross_attention/output", epsilon))
        self.inner, self.outer = linear(weights, f"{name}/intermediate/dense"), linear(weights, f"{name}/output/dense")
        self.norms.append(norm(weights, f"{name}/output", epsilon))
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])

    def forward(self, x, mask, memory=None):
        own = (None, True) if self.decoder else (mask, False)
        x = self.norms[0](x + self.dropout(self.attention(x, x, *own)))
        if self.decoder:
            x = self.norms[1](x + self.dropout(self.cross(x, memory, mask)))
        return self.norms[-1](x + self.dropout(self.outer(F.relu(self.inner(x)))))


class Transformer(nn.Module):
    def __init__(self, weights, config):
        super().__init__()
        self.table, self.source_table = tables(weights)
        layers = range(config["num_hidden_layers"])
        self.encoder = nn.ModuleList([Block(weights, f"encoder/layer_{i}", config, False) for i in layers])
        self.decoder = nn.ModuleList([Block(weights, f"decoder/layer_{i}", config, True) for i in layers])
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])
        width = self.table.shape[1]
        rates = np.exp(-math.log(10000.0) * np.arange(0, width, 2) / width)
        angles = np.arange(512)[:, None] * rates
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(512, width)
        self.register_buffer("positions", torch.tensor(table, dtype=torch.float32))

    def embed(self, ids, table):
        x = F.embedding(ids, table) * math.sqrt(self.table.shape[1])
        return self.dropout(x + self.positions[: ids.shape[1]])

    def encode(self, source):
        mask, x = (source != 0)[:, None, None, :], self.embed(source, self.source_table)
        for block in self.encoder:
            x = block(x, mask)
        return x, mask

    def decode(self, words, memory):
        x = self.embed(words, self.table)
        for block in self.decoder:
            x = block(x, memory[1], memory[0])
        return x @ self.table.T

    def forward(self, source, words):
        return self.decode(words, self.encode(source))


class Seq2Seq(nn.Module):
    """Bidirectional LSTM, Bahdanau's attention from the state before, LSTM decoder."""

    def __init__(self, weights, config):
        super().__init__()
        self.units = config["hidden_size"]
        self.table, self.source_table = tables(weights)
        self.encoder = nn.LSTM(self.table.shape[1], self.units, batch_first=True, bidirectional=True)
        for way, ending in (("forward", ""), ("backward", "_reverse")):
            self.load(self.encoder, f"_l0{ending}", weights, f"encoder/layer_0_{way}/lstm_cell")
        self.bridge_h, self.bridge_c = linear(weights, "bridge/layer_0_h"), linear(weights, "bridge/layer_0_c")
        self.cell = nn.LSTMCell(self.table.shape[1] + 2 * self.units, self.units)
        self.load(self.cell, "", weights, "decoder/layer_0")
        score = "decoder/attention/score"
        self.query, self.key = (weights.parameter(f"{score}/{part}_kernel") for part in ("query", "key"))
        self.vector = weights.parameter(f"{score}/vector")
        self.readout = linear(weights, "decoder/readout", bias=False)
        self.output = linear(weights, "output")
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])

    def load(self, layer, ending, weights, name):
        """Keras's gates stand in PyTorch's order; of PyTorch's two biases one stays 0."""
        setattr(layer, f"weight_ih{ending}", weights.parameter(f"{name}/kernel", transposed=True))
        setattr(layer, f"weight_hh{ending}", weights.parameter(f"{name}/recurrent_kernel", transposed=True))
        setattr(layer, f"bias_ih{ending}", weights.parameter(f"{name}/bias"))
        second = getattr(layer, f"bias_hh{ending}")
        second.data.zero_()
        second.requires_grad_(False)

    def encode(self, source):
        lengths = (source != 0).sum(1).clamp(min=1)
        x = self.dropout(F.embedding(source, self.source_table))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        memory, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True, total_length=source.shape[1])
        state = torch.tanh(self.bridge_h(torch.cat([*h], -1))), self.bridge_c(torch.cat([*c], -1))
        return (memory, memory @ self.key, source != 0), state

    def step(self, x, state, memory):
        values, keys, mask = memory
        scores = (torch.tanh((state[0] @ self.query)[:, None] + keys) @ self.vector)[..., 0]
        probs = F.softmax(scores.masked_fill(~mask, -1e30), -1)
        context = (probs[:, None] @ values)[:, 0]
        state = self.cell(torch.cat([x, context], -1), state)
        return torch.tanh(self.readout(torch.cat([context, state[0]], -1))), state

    def decode(self, words, encoded):
        memory, state = encoded
        x, outputs = self.dropout(F.embedding(words, self.table)), []
        for t in range(words.shape[1]):
            output, state = self.step(x[:, t], state, memory)
            outputs.append(output)
        return self.output(self.dropout(torch.stack(outputs, 1)))

    def forward(self, source, words):
        return self.decode(words, self.encode(source))


def loss_of(model, source, target, smoothing):
    start = torch.full_like(target[:, :1], 2)
    logits = model(source, torch.cat([start, target[:, :-1]], 1))
    real = target != 0
    logits, target = logits[real], target[real]
    # The right word has 1 - e and each word e / V: PyTorch's smoothing is the same.
    return F.cross_entropy(logits, target, label_smoothing=smoothing)


def train_steps(model, batches, job):
    optimizer = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], lr=1.0, betas=(0.9, 0.98), eps=1e-9
    )
    model.train()
    for rate, (source, target) in zip(job["rates"], batches, strict=False):
        began, began_cpu = time.perf_counter(), time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, torch.tensor(source).long(), torch.tensor(target).long(), job["label_smoothing"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach()), time.perf_counter() - began, time.process_time() - began_cpu


def main():
    folder = sys.argv[1]
    with open(f"{folder}/job.json", encoding="utf-8") as file:
        job = json.load(file)
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    weights = Weights(f"{folder}/weights.npz")
    model = (Transformer if job["model"] == "transformer" else Seq2Seq)(weights, job["config"])
    arrays = np.load(f"{folder}/batches.npz")
    batches = [(arrays[f"source_{i}"], arrays[f"target_{i}"]) for i in range(job["batches"])]
    losses, times, cpu = [], [], []
    for loss, seconds, cpu_seconds in train_steps(model, itertools.cycle(batches), job):
        losses.append(loss)
        times.append(seconds)
        cpu.append(cpu_seconds)
        if job["save_every"] and len(losses) % job["save_every"] == 0:
            weights.save(f"{folder}/weights-{len(losses)}.npz")
            print(f"PyTorch step {len(losses)}: loss {np.mean(losses[-job['save_every'] :]):.4f}", flush=True)
    result = {"losses": losses, "times": times, "cpu": cpu}
    with open(f"{folder}/result.json", "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
