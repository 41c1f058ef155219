"""Settings of how this process obtains memory from the operating system."""

import ctypes
import os
import platform

# Numbers of mallopt(3).
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
MOST_CORES = 16


def keep_freed_memory() -> bool:
    """Lets the C library keep what is freed for the next tensors, instead of handing it back at once.

    Training frees and asks for the same gigabytes in every step. glibc hands large blocks back, and the kernel has to
    find and clear each page of the next ones: a seventh of a BERT-Base step's CPU time on two cores, and more in
    smaller models. The process keeps its peak instead, which may be a quarter higher.

    Our training commands call this. In Python, call it before anything else of TensorFlow runs: threads that have begun
    have their own way to memory.

    Returns:
        Whether it was done: under Linux with glibc, and up to 16 cores, since all threads then share one lock; not
        where the environment says itself what malloc should do (``GLIBC_TUNABLES``, ``MALLOC_...``, ``LD_PRELOAD``).

    Example:
        >>> isinstance(keep_freed_memory(), bool)
        True
    """
    said = any(name in ("GLIBC_TUNABLES", "LD_PRELOAD") or name.startswith("MALLOC_") for name in os.environ)
    if said or platform.libc_ver()[0] != "glibc" or (os.cpu_count() or 1) > MOST_CORES:
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # Nothing by mmap, nothing trimmed, and one arena: the others cannot hold more than 64 MB and would use mmap.
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(ARENA_MAX, 1)])
