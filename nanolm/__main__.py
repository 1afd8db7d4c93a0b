"""`python -m nanolm budget …` — то же, что консольная команда `nanolm`."""

import sys

from nanolm.cli import main

sys.exit(main())
