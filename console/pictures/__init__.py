"""Pure drawing: a View and a size become lines of styled text. No Textual in here."""
