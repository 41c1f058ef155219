import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tf_bert.commands.serve import main

if __name__ == "__main__":  # worker processes import this file too
    sys.exit(main())
