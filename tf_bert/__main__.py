"""``python -m tf_bert``: the same as ``tf-bert``."""

import sys

from tf_bert.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
