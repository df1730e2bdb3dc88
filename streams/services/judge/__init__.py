"""The judge as a service: votes on requests from the log."""
