"""The closed form: step time and memory of many strategies at once."""
