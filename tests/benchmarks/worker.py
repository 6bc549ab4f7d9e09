"""One engine in a process of its own: `worker.py ENGINE` answers requests until its input ends.

A request is one line of JSON: "do" names a method of the engine, the rest are its arguments.
"""

import importlib
import json
import os
import sys

from engines import ENGINES
from engines.engine import Unfit


def main() -> None:
    """Answer requests until the input ends."""
    # What libraries print must not reach the pipe.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, name = ENGINES[sys.argv[1]]
    engine = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if engine is None:
                engine = getattr(importlib.import_module(f"engines.{module}"), name)()
            reply = getattr(engine, request.pop("do"))(**request)
        except ImportError as error:
            reply = {"absent": str(error)}
        except Unfit as error:
            reply = {"unfit": str(error)}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}".replace("\n", " ")[:300]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
