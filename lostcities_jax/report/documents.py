"""Whole HTML documents with everything in them."""

import html
import pathlib


def html_page(title: str, body: str) -> str:
    """A document of a title and a body, to be opened by itself.

    Args:
      title: as text.
      body: as HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{asset('report.css')}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def asset(name: str) -> str:
    """Text of a file beside this module."""
    return (pathlib.Path(__file__).parent / name).read_text(encoding="utf-8")
