"""Ask this container's own `/healthz`; exit 0 when it says alive. Standard library alone, for any role.

`DESPACHO_METRICS_PORT` is set for the roles without an API; the API answers on its own port.
"""

import os
import sys
import urllib.request

DEADLINE_SECONDS = 4


def main() -> int:
    """Return 0 when `/healthz` answers 200, else 1."""
    port = os.environ.get("DESPACHO_METRICS_PORT") or "0"
    if port == "0":
        port = os.environ.get("DESPACHO_API__PORT") or "8000"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{int(port)}/healthz", timeout=DEADLINE_SECONDS) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, ValueError) as error:
        sys.stderr.write(f"not healthy: {type(error).__name__}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
