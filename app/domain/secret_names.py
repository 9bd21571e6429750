"""How secrets are named: what can be an environment variable, a file, and an argument of a command, and no path."""

import re

SECRET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
