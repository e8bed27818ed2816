"""The operator console (Textual). It reads snapshots that the leader publishes."""
