"""Programs as MLCommons Chakra execution traces, which ASTRA-sim simulates."""
