import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tf_bert.commands.pretrain_demo import main

sys.exit(main())
