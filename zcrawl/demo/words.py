"""Word lists that the demo catalogue picks from. Data only."""

from __future__ import annotations

ADJECTIVES = (
    "Quiet", "Crooked", "Silver", "Last", "Borrowed", "Hollow", "Northern", "Patient",
    "Second", "Unwritten", "Salted", "Distant", "Gentle", "Broken", "Amber", "Late",
    "Narrow", "Restless", "Painted", "Forgotten", "Burning", "Ordinary", "Invisible", "Winter",
)  # fmt: skip

NOUNS = (
    "Harbour", "Clockmaker", "Orchard", "Lighthouse", "Ledger", "Cartographer", "River",
    "Archive", "Café", "Garden", "Violin", "Station", "Compass", "Apprentice", "Bridge",
    "Letter", "Museum", "Island", "Beekeeper", "Window", "Translator", "Market", "Señora",
    "Observatory",
)  # fmt: skip

PLACES = (
    "of Lisbon", "at Low Tide", "in Winter", "of Göteborg", "under Glass", "beyond the Pass",
    "by the Sea", "after the Flood", "without a Map", "in Three Movements", "of Kraków",
    "on Platform Nine", "and Other Stories", "at the Edge of Town",
)  # fmt: skip

FIRST_NAMES = (
    "Ada", "Jonas", "Mireille", "Tomasz", "Ines", "Ruth", "Søren", "Amara", "Kenji", "Lucía",
    "Oskar", "Priya", "Viktor", "Hanna", "Malik", "Elif", "Zoë", "Daniel",
)  # fmt: skip

LAST_NAMES = (
    "Albrecht", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Ferreira", "Novák", "Haddad",
    "O'Brien", "Castellanos", "Petrov", "Yıldız", "Brandt", "Nakamura", "Sørensen", "Iyer",
)  # fmt: skip

TAGS = (
    "poetry", "travel", "mystery", "history", "science", "cooking", "philosophy", "fantasy",
    "biography", "music", "gardening", "architecture", "romance", "horror", "mathematics",
    "short stories", "politics", "nature", "art", "sports", "classics", "religion",
    "psychology", "young adult", "economics", "crime", "humour", "essays",
)  # fmt: skip

OPENINGS = (
    "When a letter arrives that was posted forty years ago,",
    "In the spring after the war,",
    "On the first day of an unusually long summer,",
    "Three siblings who have not spoken in years meet again when",
    "Between two trains and one missed appointment,",
    "What begins as an inventory of a dead man's house ends where",
    "Nobody in the village believes it when",
)

MIDDLES = (
    "a surveyor finds that the map and the valley no longer agree.",
    "the keeper of a small museum starts to write back.",
    "an apprentice learns which of her teacher's rules were lies.",
    "the ferry stops running and the island has to be enough.",
    "a retired translator is asked for one last, impossible sentence.",
    "someone has to count the birds, and nobody else is left to do it.",
    "a city decides by vote to forget one of its streets.",
)

ENDINGS = (
    "A book about patience, told without any.",
    "Dry, warm and exact.",
    "The final chapter is worth the long way there.",
    "Winner of two prizes that no longer exist.",
    "With an afterword by the author's neighbour & a map.",
    "First published in a run of 300 copies; this edition restores <the missing> chapter.",
    "Readers either love the ending or write letters about it.",
)
