"""Textual widgets: they paint lines and pass keys on. They decide nothing."""
