"""Peak memory of attention in chunks against plain attention, forward and backward, at length 2048.

Each side is a process of its own that runs a BERT-Base attention layer (12 heads of 64, dropout 0.1, a mask of keys) on
a short sequence first, and then on a long one; reported is by how much the long one raised the peak. On a GPU it is
what TensorFlow's allocator says; elsewhere the resident memory of the process.

Run: python benchmarks/attention_memory.py [--length=2048] [--batch=1] [--xla]
"""

import argparse
import os
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class PeakMemory:
    """The greatest resident memory of this process inside a ``with`` block, looked at each millisecond."""

    def __enter__(self):
        self.before = self.peak = self._resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._done.set()
        self._thread.join()

    def _watch(self):
        while not self._done.wait(0.001):
            self.peak = max(self.peak, self._resident())

    @staticmethod
    def _resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(implementation: str, length: int, batch: int, xla: bool) -> None:
    """Prints the peak in bytes and the seconds of a pass."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.path.insert(0, ROOT)
    import tensorflow as tf

    from tf_bert.layers.attention import MultiHeadAttention

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    layer = MultiHeadAttention(12, 768, dropout=0.1, implementation=implementation)
    layer.build((None, None, 768))

    @tf.function(jit_compile=xla)
    def gradients(x, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x, attention_mask=mask, training=True)))
        return tape.gradient(loss, [x, *layer.trainable_variables])

    def run(length):
        x = tf.random.normal([batch, length, 768])
        return [float(tf.reduce_sum(g)) for g in gradients(x, tf.ones([batch, length], tf.int32))]

    run(64)
    if gpus:
        run(length)
        tf.config.experimental.reset_memory_stats("GPU:0")
        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        start = time.perf_counter()
        run(length)
        print(tf.config.experimental.get_memory_info("GPU:0")["peak"] - before, time.perf_counter() - start)
        return
    with PeakMemory() as memory:
        run(length)
    start = time.process_time()
    run(length)
    print(memory.peak - memory.before, time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        measure(arguments.only, arguments.length, arguments.batch, arguments.xla)
        return
    peaks = {}
    for name in ("plain", "chunked"):
        command = [sys.executable, __file__, *sys.argv[1:], f"--only={name}"]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        peak, seconds = map(float, output.split()[-2:])
        peaks[name] = peak
        print(
            f"{name}: {peak / 1e6:,.0f} MB at the peak, {seconds:.2f} CPU seconds (of a GPU: seconds) a pass",
            flush=True,
        )
    print(f"length {arguments.length}: attention in chunks needs {peaks['chunked'] / peaks['plain']:.3f} of the memory")


if __name__ == "__main__":
    main()
