"""Learning-rate schedules, including AutoLRS."""
