"""Pure drawing: numbers and a size become lines of styled text.

No Textual in here: widgets paint what these functions return, and `--snapshot` prints it. Start
with `axes` (which values and which clock times get a label), then `curve` and `chart`.
"""
