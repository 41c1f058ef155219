"""The command lines: flags, a call into the library, and what to print. ``tf-bert NAME`` or ``python tools/NAME.py``."""
