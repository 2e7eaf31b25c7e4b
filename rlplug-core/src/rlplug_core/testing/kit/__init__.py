"""The parts of the conformance kit: what is checked (`rules`), what of (`subject`), and how (one file per topic)."""
