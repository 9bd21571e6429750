"""`python -m app` is `despacho`."""

from app.cli import main

main()
