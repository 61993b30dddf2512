"""What is said where the packages of the extra are not installed."""

ADAPTERS = "pip install 'lostcities_jax[adapters]'"


def missing(error: ImportError, *packages: str) -> ImportError:
    """The error to raise: one line that names the extra, or `error` itself for other causes."""
    if error.name not in packages:
        return error
    return ImportError(f"this adapter needs {error.name}: {ADAPTERS}", name=error.name)
