"""The network model: predicted times of steps, rates, costs and break-even."""
