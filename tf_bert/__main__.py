"""``python -m tf_bert``: the same as ``tf-bert``."""

import sys

from tf_bert.commands.main import main

sys.exit(main())
