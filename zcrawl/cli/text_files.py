"""Read text files that people write: job files and configuration files."""

from __future__ import annotations

from pathlib import Path

ENCODING = "utf-8-sig"  # some editors put a byte order mark first, which is not part of the text


class UnreadableText(Exception):
    """The file exists and cannot be read as text. The message names the reason, not the file."""


def read_text_file(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises FileNotFoundError or UnreadableText."""
    try:
        return path.read_text(ENCODING)
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise UnreadableText("this is a folder; name a file") from None
    except OSError as error:
        raise UnreadableText(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UnreadableText(
            f"line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; "
            "save the file with the encoding UTF-8"
        ) from None
