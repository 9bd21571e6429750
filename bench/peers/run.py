"""Run one part of a system inside its own environment: `python -m bench.peers.run <module> spec|setup|produce`."""

import asyncio
import importlib
import importlib.metadata
import json
import sys
from dataclasses import asdict

from bench.peers.base import serve

PARTS = ("spec", "setup", "produce")


def main() -> None:
    """Read the peer and the part from the command line and run it."""
    if len(sys.argv) != 3 or sys.argv[2] not in PARTS:
        raise SystemExit(f"usage: python -m bench.peers.run <module> {'|'.join(PARTS)}")
    system = importlib.import_module(sys.argv[1])
    match sys.argv[2]:
        case "spec":
            versions = {name: importlib.metadata.version(name) for name in system.SPEC.packages}
            print(json.dumps({"spec": asdict(system.SPEC), "versions": versions}))
        case "setup":
            system.setup()
        case _:
            asyncio.run(serve(system.Producer()))


if __name__ == "__main__":
    main()
