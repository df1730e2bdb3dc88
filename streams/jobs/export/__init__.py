"""Datasets in the shapes that trainers load."""
