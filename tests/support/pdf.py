"""PDF files made by hand: of a text, of nothing, and such as nobody should send."""

import zlib
from collections.abc import Sequence


def a_pdf(pages: Sequence[str], *, compressed: bool = True) -> bytes:
    """Make a PDF with these texts on its pages, in a standard font."""
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>",
    ]
    kids = []
    for text in pages:
        lines = b"".join(b"(" + _escaped(line) + b") Tj T*\n" for line in text.split("\n"))
        stream = b"BT /F1 8 Tf 9 TL 40 800 Td\n" + lines + b"ET"
        objects.append(_stream(stream, compressed=compressed))
        content = len(objects)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % content
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(kids))
    return _file(objects)


def a_bomb(megabytes: int) -> bytes:
    """Make a small PDF whose one page unpacks to so many megabytes of spaces, twice over."""
    inner = zlib.compress(b" " * (megabytes * 1024 * 1024), 9)
    packed = zlib.compress(inner, 9)
    stream = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(packed), packed)
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 3 0 R >>"
    return _file([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>", stream, page])


def _escaped(line: str) -> bytes:
    raw = line.encode("cp1252", "replace")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _stream(content: bytes, *, compressed: bool) -> bytes:
    packed = zlib.compress(content) if compressed else content
    kind = b" /Filter /FlateDecode" if compressed else b""
    return b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(packed), kind, packed)


def _file(objects: Sequence[bytes]) -> bytes:
    made = bytearray(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % place for place in places)
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(made)
