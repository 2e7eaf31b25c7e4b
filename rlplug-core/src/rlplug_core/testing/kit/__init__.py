"""The parts of the conformance kit: the list of checks, the tested plugin (`subject`), and one file per topic."""
