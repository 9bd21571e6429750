"""Ask this container's own `/healthz`; exit 0 when it says alive. Standard library alone, for any role.

`DESPACHO_METRICS_PORT` is set for the roles without an API; the API answers on its own port.
"""

import os
import sys
from http.client import HTTPConnection, HTTPException

DEADLINE_SECONDS = 4


def main() -> int:
    """Return 0 when `/healthz` answers 200, else 1."""
    port = os.environ.get("DESPACHO_METRICS_PORT") or "0"
    if port == "0":
        port = os.environ.get("DESPACHO_API__PORT") or "8000"
    try:
        connection = HTTPConnection("127.0.0.1", int(port), timeout=DEADLINE_SECONDS)
        connection.request("GET", "/healthz")
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, ValueError, HTTPException) as error:
        sys.stderr.write(f"not healthy: {type(error).__name__}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
