"""Which release this is."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Name the installed release; a checkout that was never installed has none and is `source`."""
    try:
        return version("despacho")
    except PackageNotFoundError:
        return "source"
