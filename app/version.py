"""Which release this is."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Name the installed release; `source` where the project runs without being installed."""
    try:
        return version("despacho")
    except PackageNotFoundError:
        return "source"
