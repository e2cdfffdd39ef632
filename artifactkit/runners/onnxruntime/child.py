"""The script that a child process runs, by its path: ``python -P -E child.py PARENT TIED``.

This package is looked for behind everything else, at the place that the script knows from its own.
"""

import os
import sys

if __name__ == "__main__":
    here = os.path.join("artifactkit", "runners", "onnxruntime", "child.py")
    sys.path.append(os.path.abspath(__file__).removesuffix(here))

    from artifactkit.runners.onnxruntime.serve import main

    main()
