"""Plans: how a model is split over devices and time."""
