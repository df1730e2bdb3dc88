"""The pages: pure functions from what is known of a rollout to HTML, SVG and JSON."""
