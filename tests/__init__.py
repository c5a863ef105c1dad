"""The tests. Processes that quick tests start treat graphs as the quick tests do, so that their numbers agree to the bit."""

import os

from tests.support import graphs

if os.environ.get(graphs.PLAIN):
    graphs.plain()
