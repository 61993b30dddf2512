"""Playing against agents: matches of rounds, on a page of a local server or in a terminal."""
