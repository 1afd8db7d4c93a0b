"""`python -m nanolm.interview` — то же, что `nanolm interview`."""

import sys

from nanolm.cli import prepare_console
from nanolm.interview.terminal import main

prepare_console()
sys.exit(main(sys.argv[1:], "python -m nanolm.interview"))
