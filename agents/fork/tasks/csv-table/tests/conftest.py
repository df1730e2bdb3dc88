"""The workspace comes last on the path: it can be imported, and hides nothing."""

import os
import sys

sys.path.append(os.environ["WORKSPACE"])
