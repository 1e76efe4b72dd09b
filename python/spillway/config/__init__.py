"""The settings of simulations: their classes, files, descriptions and profiles."""
