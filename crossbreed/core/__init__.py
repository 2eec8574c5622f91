"""The engine: genome, contracts, model, budgets, one trial, many trials. Imports run downward only."""
