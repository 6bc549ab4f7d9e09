"""`python -m jaxjoints` is the command line."""

import sys

from jaxjoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
