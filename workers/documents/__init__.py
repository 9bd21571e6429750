"""Documents on their way to a prompt: their text, what the input filters say about it, and one object for both.

`ctx.document(ref)` reads a stored input, takes its text out (plain text, HTML, PDF), has the type's filters look at it
and returns a `Document`. A prompt takes it as marked data, and as nothing else. See `README.md`.
"""

from workers.documents.document import Document, Documents

__all__ = ["Document", "Documents"]
