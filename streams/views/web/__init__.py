"""The pages: pure functions from the facts of a rollout to HTML, SVG and JSON."""
