"""Run one part of a peer inside the peer's environment: `python -m bench.peers.run <peer> spec|setup|produce`."""

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
        raise SystemExit(f"usage: python -m bench.peers.run <peer> {'|'.join(PARTS)}")
    peer = importlib.import_module(f"bench.peers.{sys.argv[1]}")
    match sys.argv[2]:
        case "spec":
            versions = {name: importlib.metadata.version(name) for name in peer.SPEC.packages}
            print(json.dumps({"spec": asdict(peer.SPEC), "versions": versions}))
        case "setup":
            peer.setup()
        case _:
            asyncio.run(serve(peer.Producer()))


if __name__ == "__main__":
    main()
