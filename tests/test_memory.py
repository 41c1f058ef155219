"""Memory that is freed stays for the next tensors."""

import os
import platform
import subprocess
import sys

import pytest

from tf_bert.memory import MOST_CORES

# Each thread asks for 80 MB, frees them and asks again; printed are the pages that the kernel had to give in between.
SCRIPT = """
import resource, sys, threading
from tf_bert.memory import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "keep" else None)
def work():
    for _ in range(5):
        b"x" * 80_000_000
def faults():
    thread = threading.Thread(target=work); thread.start(); thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
faults()
before = faults()
print(faults() - before)
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or os.cpu_count() > MOST_CORES, reason="only glibc has these settings"
)


def run(word: str, **environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_"))}
    command = [sys.executable, "-c", SCRIPT, word]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True).stdout.split()


def test_freed_memory_is_used_again():
    assert int(run("leave")[1]) > 50_000  # five times 80 MB in pages of 4 KB are 97,656
    kept, faults = run("keep")
    assert kept == "True"
    assert int(faults) < 1000


def test_the_environment_has_the_last_word():
    assert run("keep", MALLOC_ARENA_MAX="3")[0] == "False"
