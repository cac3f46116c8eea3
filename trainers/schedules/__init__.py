"""Learning-rate schedules, AutoLRS among them."""
