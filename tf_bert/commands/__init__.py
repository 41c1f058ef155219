"""The command lines (``tf-bert NAME`` or ``python tools/NAME.py``): flags, a call into the library, what to print."""
