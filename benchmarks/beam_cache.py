"""Beam search of the Transformer with its key/value cache against running the whole prefix at each step.

    python benchmarks/beam_cache.py [--sentences 64] [--beam 4] [--length 32] [--rounds 3]

Both sides use the same loop, weights and sources in one run; the weights are random, so every search goes on to the
greatest length. Prints the CPU time of each (median of the rounds), and whether the outputs are identical.
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import keras
import numpy as np
from keras import ops

from tf_bert.configs import TransformerConfig
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.models.transformer import Transformer


class WholePrefix(Transformer):
    """The same model without a cache: its state is the prefix."""

    def start_decoding(self, source_ids, source_mask, width, length):
        memory, _ = self.encode(source_ids, source_mask, training=False)
        memory = [block.cross_attention.keys_and_values(memory) for block in self.decoder]
        rows = ops.shape(source_ids)[0] * width

        def step(tokens, index, prefix):
            prefix = ops.slice_update(prefix, (0, index), tokens[:, None])
            x, _, probs = self.decode(self.target_embedding(prefix, training=False), memory, source_mask)
            cross = ops.mean(probs[max(len(probs) - 2, 0)][1], axis=1)  # [B, W * T, S]
            cross = ops.reshape(cross, (rows, length, -1))
            return self.logits(ops.take(x, index, axis=1)), prefix, ops.take(cross, index, axis=1)

        return step, ops.zeros((rows, length), "int32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    config = TransformerConfig(
        8000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024
    )
    keras.utils.set_random_seed(0)
    cached, whole = Transformer(config), WholePrefix(config)
    whole.set_weights(cached.get_weights())
    sources = np.random.default_rng(0).integers(4, 8000, (arguments.sentences, 24)).astype("int32")
    constraints = Constraints(min_length=arguments.length)
    search = BeamSearch(arguments.beam, length_penalty=0.6, n_best=arguments.beam)
    results, times = [], []
    for name, model in (("cached", cached), ("whole prefix", whole)):
        taken = []
        for repeat in range(1 + arguments.rounds):
            start = time.process_time()
            output = model.generate(sources, search=search, max_length=arguments.length, constraints=constraints)
            if repeat:  # the first compiles
                taken.append(time.process_time() - start)
        results.append(output)
        times.append(statistics.median(taken))
        print(f"{name:12}  {times[-1]:7.2f} CPU seconds")
    same = all(np.array_equal(results[0][key], results[1][key]) for key in ("tokens", "lengths", "alignments"))
    print(f"ratio {times[1] / times[0]:.1f}, outputs {'identical' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
