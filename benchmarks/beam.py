"""Data creation on Beam's DirectRunner with two workers against the single-machine sharded mode with two.

Both make the same shards of the same text (that of `data_creation.py`), which are compared byte by byte. Figures are
wall seconds, CPU seconds of parent and workers together, and the memory of the largest process.

Run, with apache-beam installed:
    python benchmarks/beam.py [speed] [flat] [--work=FOLDER] [--megabytes=50] [--sizes=10,200]
    speed    time and bytes against the sharded mode
    flat     texts of --sizes, dupe_factor 1: the memory of the largest worker
"""

import argparse
import os
import tempfile

from data_creation import ROOT, VOCAB, run, write_prose

TIMED = """
import resource, sys
from tf_bert.commands.create_pretraining_data import main
if __name__ == "__main__":
    status = main()
    parent, workers = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = [usage.ru_utime + usage.ru_stime for usage in (parent, workers)]
    print(*cpu, parent.ru_maxrss / 1024, workers.ru_maxrss / 1024)
    sys.exit(status)
"""


def create(text: str, output: str, *flags: str) -> dict[str, float]:
    program = os.path.join(os.path.dirname(output), "timed.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(f"import sys; sys.path.insert(0, {ROOT!r})\n" + TIMED)
    names = (f"--input_file={text}", f"--vocab_file={VOCAB}", f"--output_file={output}", "--sharded", "--num_workers=2")
    figures = run(program, *names, *flags)
    figures["parent"], figures["workers"], figures["parent MB"], figures["worker MB"] = map(
        float, figures["output"].split()[-4:]
    )
    return figures


def shown(name: str, figures: dict[str, float]) -> str:
    return (
        f"{name}: {figures['wall']:.0f} s; CPU seconds: {figures['parent']:.0f} in the parent, "
        f"{figures['workers']:.0f} in workers; {figures['parent MB']:.0f} MB in the parent, "
        f"{figures['worker MB']:.0f} MB in the largest worker"
    )


def shards(folder: str, prefix: str) -> list[str]:
    return sorted(file for file in os.listdir(folder) if file.startswith(prefix + "-") and not file.endswith(".json"))


def same_bytes(one: str, other: str) -> bool:
    with open(one, "rb") as first, open(other, "rb") as second:
        while True:
            block = first.read(1 << 20)
            if block != second.read(1 << 20):
                return False
            if not block:
                return True


def speed(work: str, megabytes: float) -> None:
    text = os.path.join(work, "prose.txt")
    write_prose(text, megabytes)
    flags = ("--num_shards=8", "--dupe_factor=2")
    single = create(text, os.path.join(work, "single"), *flags)
    print(shown(f"{megabytes:g} MB, sharded mode", single), flush=True)
    beam = create(text, os.path.join(work, "beam"), *flags, "--runner=DirectRunner")
    print(shown(f"{megabytes:g} MB, DirectRunner", beam), flush=True)
    pairs = list(zip(shards(work, "single"), shards(work, "beam"), strict=True))
    same = all(same_bytes(*(os.path.join(work, name) for name in pair)) for pair in pairs)
    print(f"{len(pairs)} shards, {'identical' if same else 'DIFFERENT'}")
    cpu = [figures["parent"] + figures["workers"] for figures in (beam, single)]
    print(f"Beam takes {beam['wall'] / single['wall']:.2f} times the time, {cpu[0] / cpu[1]:.2f} times the CPU time")
    for pair in pairs:
        for name in pair:
            os.remove(os.path.join(work, name))


def flat(work: str, sizes: str) -> None:
    text = os.path.join(work, "large.txt")
    for size in map(float, sizes.split(",")):
        write_prose(text, size)
        flags = ("--num_shards=16", "--dupe_factor=1", "--runner=DirectRunner")
        print(shown(f"{size:g} MB", create(text, os.path.join(work, "flat"), *flags)), flush=True)


def main() -> None:
    parts = ("speed", "flat")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=" ".join(parts))
    parser.add_argument("--work", help="folder for text and records; a temporary one by default")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--sizes", default="10,200")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        for part in arguments.parts or ["speed"]:
            if part == "speed":
                speed(work, arguments.megabytes)
            else:
                flat(work, arguments.sizes)


if __name__ == "__main__":
    main()
